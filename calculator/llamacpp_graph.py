"""
The computation graph of one micro-batch as llama.cpp builds it, as far as the size of its tensors goes.

Sources, llama.cpp b11434: src/models/llama.cpp, qwen3.cpp, qwen3moe.cpp, qwen35.cpp, gemma4.cpp (order of nodes),
src/llama-graph.cpp (`build_inp_embd`, `build_attn_mha`, `build_ffn`, `build_moe_ffn`), ggml/src/ggml-backend.cpp (what
crosses from one device to another is copied at the beginning of the part that reads it).
"""

from __future__ import annotations

from collections.abc import Sequence

from calculator.llamacpp_allocator import Graph
from calculator.llamacpp_cache import widest_v
from calculator.llamacpp_work import Part, Work, kind_of, representative
from calculator.model import Attention, Layer, Model

FLOAT_BYTES = 4
INDEX_BYTES = 4  # token and row numbers of outputs, positions
CELL_INDEX_BYTES = 8  # where K and V are written


class _Builder:
    """Adds blocks to a graph."""

    def __init__(self, model: Model, work: Work) -> None:
        self.graph = Graph()
        self.model = model
        self.work = work
        self.row = work.tokens * FLOAT_BYTES  # one number a token
        self.masks: dict[bool, int] = {}
        self.cast: set[int] = set()
        self.index = self.rows = self.chosen = -1
        self.model_is_sparse = any(layer.indexer_width for layer in model.layers)
        self.staged_bytes = 0

    def inputs(self, part: Part) -> int:
        """Places of inputs; returns the tensor that the first block reads."""
        graph, work, width = self.graph, self.work, self.model.n_embd * self.row
        embeds = part.embeds
        place = graph.leaf if embeds else graph.node
        tokens = graph.leaf(work.tokens * INDEX_BYTES) if embeds else -1
        mixed: tuple[int, ...] = ()
        if embeds and work.embedding_inputs:
            graph.keep(graph.leaf(width))
        if embeds and work.embedding_inputs > 1:
            mixed = (
                graph.leaf(work.tokens * INDEX_BYTES),
                graph.leaf(work.tokens * CELL_INDEX_BYTES),
                graph.leaf(width),
            )
        x = -1 if embeds else graph.node(width)
        self.staged_bytes = part.staged_bytes
        indices = work.tokens * (INDEX_BYTES + 2 * CELL_INDEX_BYTES)  # positions, and cells of K and V
        if work.cell_indices and not work.flash:
            indices += work.tokens * CELL_INDEX_BYTES * widest_v(part.layers)
        self.index = place(indices)
        for slides in (False, True):
            if any(bool(layer.window) is slides and layer.attention is not Attention.NONE for layer in part.layers):
                cells = work.window_cells if slides else work.cells
                self.masks[slides] = place(cells * work.tokens * work.mask_bytes)
        self.rows = place(work.outputs * INDEX_BYTES)
        if part.copies > 1:
            sizes = width + sum((work.window_cells if slides else work.cells) for slides in self.masks) * (
                work.tokens * work.mask_bytes
            )
            graph.keep(graph.node((part.copies - 1) * sizes))
        if embeds:
            x = graph.node(width, tokens)
            if mixed:
                rows = graph.node(width, mixed[0])
                copy = graph.node(width, mixed[2])
                graph.keep(copy)
                graph.use(rows, mixed[1], copy)
        if self.model.n_embd_per_layer:
            every = self.model.n_embd_per_layer * len(self.model.layers) * self.row
            looked_up = graph.node(every)
            if part.inputs_only:
                graph.keep(looked_up)
                return x
            projected = graph.node(every, x)
            projected = graph.node(every, projected, looked_up, inplace=True)
            graph.keep(projected)
        return x

    def weight(self) -> tuple[int, ...]:
        """The staged copy of a weight that lies on the host."""
        return (self.graph.node(self.staged_bytes),) if self.staged_bytes else ()

    def norm(self, x: int, size: int) -> int:
        """A norm and its weight."""
        graph = self.graph
        return graph.node(size, graph.node(size, x, inplace=True), inplace=True)

    def attention(self, layer: Layer, x: int) -> int:
        """Attention with heads; returns the heads' outputs."""
        graph, row = self.graph, self.row
        wide = layer.n_head * layer.head_dim_k * row
        out = layer.n_head * layer.head_dim_v * row
        gate = -1
        q = graph.node(wide * (2 if self._gated(layer) else 1), x)
        if self._gated(layer):
            gate = graph.node(wide, q)
            q = graph.node(wide, q)
        q = graph.node(wide, q, self.index)  # rotated positions take a place of their own, as the figures show
        rotates_k = self.work.rotates_k and layer.head_dim_k % 64 == 0
        rotates_v = self.work.rotates_v and layer.head_dim_v % 64 == 0
        if not layer.shares_kv:
            v = graph.node(layer.n_head_kv * layer.head_dim_v * row, x)
            k = graph.node(layer.n_head_kv * layer.head_dim_k * row, x)
            k = graph.node(layer.n_head_kv * layer.head_dim_k * row, k, self.index)
            if rotates_k:
                q = graph.node(wide, q)
                k = graph.node(layer.n_head_kv * layer.head_dim_k * row, k)
            if rotates_v:
                v = graph.node(layer.n_head_kv * layer.head_dim_v * row, v)
            graph.use(k, self.index)
            graph.use(v, self.index)
        heads = self.scores(layer, q, out)
        if rotates_v:
            heads = graph.node(out, heads)
        return graph.node(out, heads, gate, inplace=True) if gate >= 0 else heads

    def _gated(self, layer: Layer) -> bool:
        """Qwen3-Next and its successors project a gate beside Q."""
        return self.model.architecture in GATED and layer.attention is Attention.FULL

    def scores(self, layer: Layer, q: int, out: int) -> int:
        """Attention over the cache: one step under flash attention, else the whole matrix of scores."""
        graph = self.graph
        mask = self.masks[bool(layer.window)]
        cells = self.work.window_cells if layer.window else self.work.cells
        if self.work.cast_mask and mask not in self.cast:
            mask = graph.node(cells * self.work.tokens * 2, mask)
            self.cast.add(mask)
            self.masks[bool(layer.window)] = mask
        if self.work.flash:
            return graph.node(out, q, mask)
        size = cells * layer.n_head * self.row
        kq = graph.node(size, graph.node(size, q), mask, inplace=True)
        return graph.node(out, graph.node(out, kq))

    def compressed(self, layer: Layer, x: int) -> int:
        """MLA with the up-projection of K absorbed into Q (src/models/deepseek2.cpp)."""
        graph, row, heads = self.graph, self.row, layer.n_head
        rank, width = layer.mla_lora_rank or 0, layer.mla_width or 0
        q = graph.node(heads * layer.head_dim_k * row, x)
        latent = graph.node(width * row, x)
        q = graph.node(heads * width * row, graph.node(heads * rank * row, q), q)
        graph.use(latent, self.index)
        if self.model_is_sparse:
            self.select(layer)
        out = self.scores(layer, q, heads * rank * row)
        return graph.node(heads * layer.head_dim_v * row, out)

    def select(self, layer: Layer) -> None:
        """Sparse attention: scores of the indexer, and a mask of what it chose (`build_attn` with top_k)."""
        graph, size = self.graph, self.work.cells * self.row
        if layer.indexer_width:
            scores = graph.node(size, self.masks[False])
            self.chosen = graph.node(self.row, scores)
            graph.keep(self.chosen)
        chosen = (self.chosen,) if self.chosen >= 0 else ()
        mask = graph.node(size, graph.node(size), self.masks[False], *chosen, inplace=True)
        graph.use(graph.node(size // 2, mask))

    def recurrent(self, layer: Layer, x: int) -> int:
        """A recurrent mixer: projection, convolution, scan; `delta-net-base.cpp`, `mamba-base.cpp`, `lfm2.cpp`."""
        graph, row, state = self.graph, self.row, layer.state
        if state is None:
            raise ValueError("the layer keeps no state")
        if state.kind == "lfm2":
            every = graph.node(3 * self.model.n_embd * row, x)
            gated = graph.node(self.model.n_embd * row, every)
            joined = graph.node(self.model.n_embd * row + state.conv_elements * FLOAT_BYTES, gated)
            out = graph.node(self.model.n_embd * row, joined)
            return graph.node(self.model.n_embd * row, out, every, inplace=True)
        if state.kind == "rwkv":
            width = self.model.n_embd * row
            shifted = graph.node(width, x)
            parts = [graph.node(width, shifted, x) for _ in range(5)]
            return graph.node(width + self.work.sequences * state.ssm_elements * FLOAT_BYTES, *parts)
        kernel = (state.kernel or 4) - 1
        channels = state.conv_elements // max(kernel, 1)
        inner = state.v_heads * state.v_dim if state.v_heads and state.v_dim else min(channels, state.ssm_elements) or 1
        if state.kind == "mamba2" and state.groups is not None and state.ssm_elements:
            # channels = inner + 2 groups x width and elements = inner x width
            inner = _inner_width(channels, state.ssm_elements, state.groups)
        states = self.work.sequences * state.ssm_elements * FLOAT_BYTES
        z = graph.node(inner * row, x)
        mixed = graph.node(channels * row, x)
        joined = graph.node(channels * row + self.work.sequences * state.conv_elements * FLOAT_BYTES, mixed)
        before = graph.node(states)
        convolved = graph.node(channels * row, joined)
        convolved = graph.node(channels * row, convolved, inplace=True)
        if state.kind in ("gdn", "kda"):
            keys = (channels - inner) // 2 * row
            q, k = graph.node(keys, convolved), graph.node(keys, convolved)
            scanned = graph.node(inner * row + states, q, k, convolved, before)
        else:
            scanned = graph.node(inner * row + states, convolved, before)
        normed = graph.node(inner * row, graph.node(inner * row, scanned), inplace=True)
        z = graph.node(inner * row, z, inplace=True)
        return graph.node(inner * row, normed, z, inplace=True)

    def dense(self, x: int, width: int, size: int) -> int:
        """Feed-forward with a gate; without one it has no peak of its own."""
        graph = self.graph
        gate, up = graph.node(width, x, *self.weight()), graph.node(width, x, *self.weight())
        return graph.node(size, graph.node(width, gate, up, inplace=not self.work.fused_gate))

    def experts(self, layer: Layer, x: int, rows: int) -> int:
        """Routed experts (`build_moe_ffn`), and the shared one."""
        graph, model = self.graph, self.model
        used, row = model.n_expert_used, rows * FLOAT_BYTES
        hidden, size = (model.n_ff_exp or layer.n_ff) * used * row, model.n_embd * row
        logits = graph.node(layer.experts * row, x)
        chances = graph.node(layer.experts * row, logits, inplace=True)
        chosen = graph.node(layer.experts * row, chances)
        weights = graph.node(used * row, chances, chosen)
        weights = graph.node(used * row, weights, graph.node(row, graph.node(row, weights), inplace=True), inplace=True)
        up, gate = (graph.node(hidden, x, chosen, *self.weight()) for _ in range(2))
        active = graph.node(hidden, gate, up, inplace=not self.work.fused_gate)
        down = graph.node(size * used, graph.node(size * used, active, chosen, *self.weight()), weights, inplace=True)
        out = graph.node(size, down, down) if used > 1 else down
        for _ in range(2, used):
            out = graph.node(size, out, down, inplace=True)
        if model.n_shared_experts or model.architecture in SHARED_EXPERT:
            shared = (model.n_ff_exp or layer.n_ff) * max(model.n_shared_experts, 1) * row
            out = graph.node(size, self.dense(x, shared, size), out, inplace=True)
        return out

    def block(self, layer: Layer, x: int, *, last: bool) -> int:
        """One block with its residuals; the last one keeps only the rows that are asked for."""
        graph, work = self.graph, self.work
        size = self.model.n_embd * self.row
        late = last and self.model.architecture not in OUTPUTS_AFTER_NORM
        rows = work.outputs if late else work.tokens
        less = self.model.n_embd * rows * FLOAT_BYTES
        has_mixer = layer.attention is not Attention.NONE or layer.state is not None
        if has_mixer:
            normed = self.norm(x, size)
            mixed = [self.recurrent(layer, normed)] if layer.state is not None else []
            if layer.attention is Attention.MLA:
                mixed.append(self.compressed(layer, normed))
            elif layer.attention is not Attention.NONE:
                mixed.append(self.attention(layer, normed))
            out = graph.node(size, *mixed)
            if late:
                out, x = graph.node(less, out, self.rows), graph.node(less, x, self.rows)
            if self.model.architecture in POST_NORMS:
                out = self.norm(out, less)
            x = graph.node(less, out, x, inplace=True)
        width = layer.n_ff * rows * FLOAT_BYTES
        if layer.experts or width:
            normed = self.norm(x, less)
            out = self.experts(layer, normed, rows) if layer.experts else self.dense(normed, width, less)
            if self.model.architecture in POST_NORMS:
                out = self.norm(out, less)
            x = graph.node(less, out, x, inplace=True)
        if self.model.n_embd_per_layer:
            narrow = self.model.n_embd_per_layer * rows * FLOAT_BYTES
            gate = graph.node(narrow, graph.node(narrow, x), inplace=True)
            x = graph.node(less, x, self.norm(graph.node(less, gate), less), inplace=True)
        return x

    def head(self, x: int, staged_bytes: int) -> None:
        """The last norm and the logits, which stay."""
        rows = self.model.n_embd * self.work.outputs * FLOAT_BYTES
        if self.model.architecture in OUTPUTS_AFTER_NORM:
            normed = self.norm(x, self.model.n_embd * self.row)
            self.graph.keep(normed)
            normed = self.graph.node(rows, normed, self.rows)
        else:
            normed = self.norm(x, rows)
        weight = (self.graph.node(staged_bytes),) if staged_bytes else ()
        self.graph.keep(self.graph.node(self.model.n_vocab * self.work.outputs * FLOAT_BYTES, normed, *weight))


def _inner_width(channels: int, elements: int, groups: int) -> int:
    """The inner width d of `d + 2 g s = channels`, `d s = elements`."""
    root = channels * channels - 8 * groups * elements
    return int((channels + root**0.5) / 2) if root > 0 else channels


GATED = frozenset({"qwen3next", "qwen35", "qwen35moe"})
SHARED_EXPERT = frozenset({"qwen2moe", "qwen3next", "qwen35moe", "llama4", "granitemoe", "granitehybrid"})
OUTPUTS_AFTER_NORM = frozenset({"qwen3next", "qwen35", "qwen35moe", "gemma4"})
POST_NORMS = frozenset({"gemma2", "gemma3", "gemma3n", "gemma4", "glm4"})


def graph_bytes(model: Model, work: Work, part: Part) -> int:
    """Bytes of the buffer that holds this part of the graph."""
    builder = _Builder(model, work)
    x = builder.inputs(part)
    for index, layer in enumerate(part.layers):
        x = builder.block(layer, x, last=part.outputs and index == len(part.layers) - 1)
    if part.outputs:
        builder.head(x, part.staged_head_bytes)
    return builder.graph.buffer_bytes()


def input_bytes(model: Model, work: Work, layers: Sequence[Layer]) -> int:
    """Bytes of the host's buffer when every block runs on a device: inputs, masks, and the looked-up rows."""
    kinds = [kind_of(layer) for layer in layers]
    part = Part(tuple(layers[number] for number in representative(kinds)), embeds=True, outputs=False, inputs_only=True)
    builder = _Builder(model, work)
    builder.inputs(part)
    return builder.graph.buffer_bytes()
