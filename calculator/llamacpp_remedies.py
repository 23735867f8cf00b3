"""Flags that make a llama.cpp plan fit: each is found by planning again, none is a rule of thumb."""

from __future__ import annotations

from collections.abc import Callable

from calculator.llamacpp_settings import ALL_LAYERS, LlamaCppSettings, with_flags
from calculator.model import CalculatorError, Fits, MemoryPlan, Model

WHOLLY_FITS = 2
LEAST_CONTEXT = 4096  # no shorter context is offered (the engine's own --fit-ctx)


def grade(plan: MemoryPlan) -> int:
    """How well a plan fits: WHOLLY_FITS, 1 where it depends, 0 where something does not."""
    verdicts = {part.fits for part in (*plan.devices, plan.host)}
    return 0 if Fits.NO in verdicts else 1 if Fits.MAYBE in verdicts else WHOLLY_FITS


def find_remedies(
    model: Model,
    settings: LlamaCppSettings,
    plan: MemoryPlan,
    attempt: Callable[[LlamaCppSettings], MemoryPlan],
) -> tuple[str, ...]:
    """Flags that make it fit, each found by planning again; cautions where it then still depends."""
    before, devices = grade(plan), plan.devices
    out: list[str] = []

    def offer(flags: str, changed: LlamaCppSettings) -> None:
        try:
            reached = grade(attempt(changed))
        except CalculatorError:
            return  # the engine would refuse these flags
        if reached > before:
            out.append(flags if reached == WHOLLY_FITS else f"{flags} (may fit)")

    def search(low: int, high: int, change: Callable[[int], LlamaCppSettings], *, most: bool) -> int | None:
        """The largest (or smallest) value with the best grade that any value reaches."""
        best_end, other = (low, high) if most else (high, low)
        wanted = grade(attempt(change(best_end)))
        if wanted <= before:
            return None
        good, bad = best_end, other
        while abs(good - bad) > 1:
            middle = (good + bad) // 2
            if grade(attempt(change(middle))) >= wanted:
                good = middle
            else:
                bad = middle
        return good

    context = settings.context or model.context_train or 0
    small_cache = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    light = with_flags(settings, **small_cache) if settings.uses_flash_attention else None
    if light is not None and settings.cache_type_k in ("f16", "f32", "bf16"):
        offer("-ctk q8_0 -ctv q8_0", light)
    if context > LEAST_CONTEXT:
        step = 1024
        found = search(
            LEAST_CONTEXT // step, context // step, lambda n: with_flags(settings, context=n * step), most=True
        )
        if found is not None:
            offer(f"-c {found * step}", with_flags(settings, context=found * step))
        elif light is not None:
            both = with_flags(light, context=LEAST_CONTEXT)
            offer(f"-c {LEAST_CONTEXT} -ctk q8_0 -ctv q8_0", both)
    if settings.slots > 1:
        offer("-np 1", with_flags(settings, parallel=1, kv_unified=None))
    if devices and model.n_expert and not settings.cpu_moe:
        blocks = len(model.layers)
        found = search(settings.n_cpu_moe, blocks, lambda n: with_flags(settings, n_cpu_moe=n), most=False)
        if found is not None:
            offer(f"--n-cpu-moe {found}", with_flags(settings, n_cpu_moe=found))
    if devices:
        most_layers = min(settings.gpu_layers if settings.gpu_layers is not None else ALL_LAYERS, len(model.layers) + 1)
        found = search(0, most_layers, lambda n: with_flags(settings, gpu_layers=n), most=True)
        if found is not None:
            offer(f"-ngl {found}", with_flags(settings, gpu_layers=found))
    if settings.ubatch > 128:
        offer("-ub 128", with_flags(settings, ubatch=128))
    return tuple(out)
