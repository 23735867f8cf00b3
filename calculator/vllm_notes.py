"""What a plan of vLLM says about itself: the rule behind each figure, and refusals in the engine's own words."""

from __future__ import annotations

from collections.abc import Sequence

from calculator.model import Attention, Model, Note
from calculator.vllm_kv import Capacity, longest_request
from calculator.vllm_outcome import Outcome, enough
from calculator.vllm_settings import CPU_UTILIZATION, GIB, GRAPHS_IN_BUDGET, TOKENS_FROM_CONCURRENCY
from calculator.vllm_weights import scheme_of

SOURCE = "vLLM 0.32.0 "


def explain(model: Model, outcome: Outcome, capacities: Sequence[Capacity]) -> list[Note]:
    """Give the notes of a plan."""
    resolved, layout = outcome.resolved, outcome.layout
    settings = resolved.settings
    scheme = None if model.tensors else scheme_of(model, settings.quantization)
    origin = "stored tensors, exact" if model.tensors else f"shapes, {scheme.name if scheme else 'not quantised'}"
    out = [
        Note(
            "vllm-weights",
            f"weights of a rank from {origin}; vocabulary padded to 64, norms and routers whole on every rank, "
            "rotary table included",
            SOURCE + "model_executor/layers/linear.py, vocab_parallel_embedding.py, rotary_embedding/base.py",
        )
    ]
    if outcome.refused is not None:
        return [*out, Note("vllm-refuses", outcome.refused, SOURCE + "v1/worker/utils.py request_memory")]
    out.append(_budget_note(outcome))
    if not layout.groups:
        return [*out, Note("vllm-no-cache", "no layer keeps a cache", SOURCE + "v1/core/kv_cache_utils.py")]
    states = sum(group.spec.kind is Attention.NONE for group in layout.groups)
    shared = f", {states} of recurrent state (in the same pool, so its bytes are in the KV figure)" if states else ""
    out += [
        Note(
            "vllm-groups",
            f"{len(layout.groups)} group(s) of layers{shared}; a block is {layout.attention_block_tokens} tokens and "
            f"{layout.block_bytes} bytes; a request of {resolved.max_model_len} tokens takes "
            f"{layout.blocks_per_request} blocks; block 0 is never used",
            SOURCE + "v1/core/kv_cache_utils.py, platforms/interface.py",
        ),
        Note(
            "vllm-tokens",
            "printed tokens are "
            + (
                "concurrency x max_model_len"
                if resolved.version >= TOKENS_FROM_CONCURRENCY
                else "blocks // groups x the smallest block"
            )
            + f"; between {capacities[0].tokens} and {capacities[2].tokens}, concurrency between "
            f"{capacities[0].max_concurrency:.2f} and {capacities[2].max_concurrency:.2f}",
            SOURCE + "v1/core/kv_cache_utils.py get_kv_cache_capacity; vllm#43308",
        ),
        Note(
            "vllm-activation",
            "activations: the largest of feed-forward, experts' workspace and logits of a full batch, up to twice "
            f"that; {resolved.max_num_batched_tokens} tokens and {resolved.max_num_seqs} sequences in a batch",
            SOURCE + "v1/worker/gpu_model_runner.py profile_run; bounds observed",
        ),
    ]
    if not enough(outcome, outcome.available.low):
        out.append(_too_small(outcome))
    return out


def _budget_note(outcome: Outcome) -> Note:
    resolved = outcome.resolved
    settings = resolved.settings
    if settings.kv_cache_memory_bytes is not None:
        text = "--kv-cache-memory-bytes is reserved as it stands and does not respect --gpu-memory-utilization"
    elif settings.platform == "cpu" and resolved.version < CPU_UTILIZATION:
        text = "the CPU back end reserves 4 GiB unless VLLM_CPU_KVCACHE_SPACE says otherwise"
    else:
        inside = "inside" if resolved.version >= GRAPHS_IN_BUDGET else "on top of"
        text = (
            f"the cache gets what {resolved.utilization:g} of the device's total leaves after weights, activations and "
            f"libraries; CUDA graphs are {inside} this budget; the tightest rank decides"
        )
    return Note("vllm-budget", text, SOURCE + "v1/worker/gpu_worker.py determine_available_memory")


def _too_small(outcome: Outcome) -> Note:
    layout, low = outcome.layout, outcome.available.low
    needed = layout.blocks_per_request * layout.block_bytes
    longest = longest_request(layout, outcome.resolved, low)
    if low <= 0:
        text = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    else:
        text = (
            f"To serve at least one request with the model's max seq len ({outcome.resolved.max_model_len}), "
            f"{needed / GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
            f"({low / GIB:.2f} GiB at the least)"
        )
    if longest:
        text += f". The longest length that fits for sure is {longest}"
    return Note("vllm-refuses", text, SOURCE + "v1/core/kv_cache_utils.py _check_enough_kv_cache_memory")
