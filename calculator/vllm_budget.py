"""
What vLLM takes beside weights and cache: activations, CUDA graphs, the rest of the driver's and libraries' memory.

None of these has a closed form: each is an interval whose upper bound is at most twice its lower bound.
"""

from __future__ import annotations

from calculator.model import Attention, Interval, Model
from calculator.vllm_settings import FEWER_GRAPHS, Resolved

MIB = 1 << 20
# Observed on 9 single-GPU starts (0.17 to 1.56 GiB for 24 to 48 layers): MiB for a layer and a captured size.
GRAPH_MIB = 0.25
# Observed: 0.05 to 0.12 GiB on one GPU; with NCCL's buffers about 0.4 GiB on two and 0.95 GiB on four.
OTHER_MIB = 64
OTHER_RANK_MIB = 200
# Observed: 0.85 GiB of Python and PyTorch beside weights in a worker on a CPU (0.32.0).
OTHER_CPU_MIB = 512
# Observed on Gemma 4: 0.6 to 1.3 GiB for a batch of 2048 tokens and one image; larger images take more.
ENCODER_MIB = 640


def activation(model: Model, resolved: Resolved) -> Interval:
    """
    Bound the peak of activations while vLLM profiles a full batch.

    Lower bound: the largest of the feed-forward of `max_num_batched_tokens` (gate and up, their product, and three
    rows of the hidden size), the buffers of the fused experts (fused_moe/modular_kernel.py workspace shapes), and the
    sampler's logits of `max_num_seqs` in the model's type and in float32; an image encoder's batch takes at least
    `ENCODER_MIB`. Upper bound: twice that.
    """
    tp, width = resolved.settings.tensor_parallel_size, resolved.dtype_bytes
    tokens = resolved.max_num_batched_tokens
    hidden = model.n_embd
    feed = tokens * (3 * -(-(model.n_ff or 0) // tp) + 3 * hidden) * width
    if model.n_expert and model.n_ff_exp:
        own = model.n_ff_exp if resolved.settings.enable_expert_parallel else -(-model.n_ff_exp // tp)
        feed = max(feed, tokens * model.n_expert_used * (max(own, hidden) + max(2 * own, hidden)) * width)
    if any(layer.attention is Attention.MLA for layer in model.layers) and model.n_head:
        feed = max(feed, tokens * -(-model.n_head // tp) * 2 * 192 * width)
    logits = resolved.max_num_seqs * model.n_vocab * (width + 4)
    low = max(feed, logits, ENCODER_MIB * MIB if model.has_vision else 0)
    return Interval(low, 2 * low)


def captured_sizes(resolved: Resolved) -> int:
    """Count the batch sizes for which graphs are captured (0.32 config/vllm.py, up to min(2 x max_num_seqs, 512))."""
    largest = min(2 * resolved.max_num_seqs, 512, resolved.max_num_batched_tokens)
    sizes = [size for size in (1, 2, 4) if size <= largest]
    if resolved.version >= FEWER_GRAPHS:
        sizes += [*range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]
    else:
        sizes += list(range(8, largest + 1, 8))
    return len(sizes)


def graphs(model: Model, resolved: Resolved) -> Interval:
    """Bound the memory of CUDA graphs (observed, see `GRAPH_MIB`); none with --enforce-eager or on a CPU."""
    if resolved.settings.enforce_eager or resolved.settings.platform == "cpu":
        return Interval.exactly(0)
    layers = -(-len(model.layers) // resolved.settings.pipeline_parallel_size)
    low = int(layers * captured_sizes(resolved) * GRAPH_MIB * MIB)
    return Interval(low, 2 * low)


def other(resolved: Resolved) -> Interval:
    """Bound what the driver and communication libraries take inside the budget (observed, see `OTHER_MIB`)."""
    if resolved.settings.platform == "cpu":
        return Interval(OTHER_CPU_MIB * MIB, 2 * OTHER_CPU_MIB * MIB)
    tp = resolved.settings.tensor_parallel_size
    low = (OTHER_RANK_MIB * min(tp, 4) if tp > 1 else OTHER_MIB) * MIB
    return Interval(low, 2 * low)
