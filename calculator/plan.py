"""
The facade: from what a person or an engine names to a memory plan.

A model is a GGUF file, a folder with ``config.json``, a name of the catalogue or a Hugging Face id; the settings are
an engine's own flags; devices are sizes or presets (`calculator.devices`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from calculator import catalog, llamacpp_settings, sglang_arguments, vllm_settings
from calculator.gguf_header import read_header
from calculator.gguf_model import model_from_header
from calculator.hf_config import load_folder
from calculator.llamacpp import plan_llamacpp
from calculator.llamacpp_settings import LlamaCppSettings
from calculator.model import CalculatorError, Device, MemoryPlan, Model
from calculator.references import Allowed, as_path
from calculator.sglang import SglangSettings, plan_sglang
from calculator.vllm import plan_vllm
from calculator.vllm_settings import VllmSettings

Settings = VllmSettings | LlamaCppSettings | SglangSettings
ENGINES = ("vllm", "llama.cpp", "sglang")
# A quantisation that a repository's name tells and the shapes of a catalogue entry do not.
_QUANTIZED = re.compile(r"[-_](fp8|awq|gptq|nvfp4|mxfp4)(?:[-_]|\Z)", re.IGNORECASE)
_GGUF_QUANT = re.compile(r"(.+):((?:I?Q\d|B?F16|F32|MXFP4|TQ\d)\w*)\Z", re.IGNORECASE)


def load_model(reference: str, *, allowed: Allowed | None = None, network: bool = False) -> Model:
    """
    The facts of the model that `reference` names.

    A name may carry a GGUF quantisation as in llama.cpp's own ``-hf repo:Q4_K_M``. `allowed` limits which files may
    be read (None: what this user may read). With `network` an id that is not in the catalogue is asked for at
    Hugging Face. Raises `CalculatorError` in one of its kinds; the message says what to do.
    """
    path = as_path(reference, allowed)
    if path is not None:
        return _from_path(path if allowed is None else allowed.check(path))
    match = _GGUF_QUANT.match(reference)
    name, quantization = (match[1], match[2].upper()) if match else (reference, None)
    model = _from_name(name, network)
    return replace(model, quantization=quantization) if quantization else model


def _from_path(path: Path) -> Model:
    if path.is_dir():
        if not (path / "config.json").is_file() and (files := sorted(path.glob("*.gguf"))):
            listed = ", ".join(file.name for file in files[:5])
            raise CalculatorError(f"{path} is a folder of GGUF files; name one of them: {listed}")
        return load_folder(path)
    if path.name == "config.json":
        return load_folder(path.parent)
    return model_from_header(read_header(path))


def _from_name(name: str, network: bool) -> Model:
    """A model of the catalogue by its exact name; else the network's or cache's; else a namesake of the catalogue."""
    try:
        entry = catalog.find(name)
    except CalculatorError:
        entry = None
    if entry is not None and name.lower() in (entry.name.lower(), entry.repo.lower()):
        return catalog.load(entry.name)
    if "/" in name:
        folder = _cached(name)
        if folder is not None:
            return load_folder(folder, name=name)
        if network:
            from calculator import hub  # costs half a second and is rarely needed

            try:
                return hub.load(name)
            except CalculatorError:
                if entry is None:
                    raise
    model = catalog.load(name)  # raises with the nearest names
    match = _QUANTIZED.search(name)
    made = replace(model, name=name, source=f"{model.source} (same shapes as {name})")
    return in_format(made, match[1].lower()) if match else made


def in_format(model: Model, method: str) -> Model:
    """
    The same shapes as a checkpoint of another quantisation of vLLM's ("fp8", "awq", "gptq", "nvfp4", "mxfp4").

    Its groups and the matrices it leaves alone are the usual ones: a checkpoint's own list may differ.
    """
    return replace(model, quantization=method, quantization_config={"quant_method": method}, tensors=())


def _cached(repository: str) -> Path | None:
    """The snapshot of a repository in this user's Hugging Face cache, where its configuration is there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repository, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def settings_of(engine: str, arguments: Sequence[str], version: str | None, devices: Sequence[Device]) -> Settings:
    """
    An engine's own flags as settings. `version` None: the newest that the rules were read of.

    Raises `CalculatorError` for an unknown engine and for values that the engine would not take.
    """
    match engine:
        case "vllm":
            return vllm_settings.from_arguments(
                arguments, version=version or VllmSettings().version, platform="cuda" if devices else "cpu"
            )
        case "llama.cpp":
            return llamacpp_settings.from_arguments(arguments, version)
        case "sglang":
            return sglang_arguments.from_arguments(arguments, version)
    raise CalculatorError(f"engine {engine!r} is not known; one of {', '.join(ENGINES)}")


def plan(
    model: Model,
    settings: Settings,
    devices: Sequence[Device],
    host: Device | None = None,
    *,
    draft: Model | None = None,
    remedies: bool = True,
) -> MemoryPlan:
    """
    The memory plan of one model on one engine; the type of the settings says which.

    Without `remedies` none are looked for, which saves planning each of them. Raises `CalculatorError`
    where a fact that a rule needs is not known, or the engine refuses the settings.
    """
    match settings:
        case VllmSettings():
            return plan_vllm(model, settings, devices, host, draft=draft, remedies=remedies)
        case LlamaCppSettings():
            return plan_llamacpp(model, settings, devices, host, draft=draft, remedies=remedies)
        case SglangSettings():
            return plan_sglang(model, settings, devices, host)


def with_files(settings: Settings, allowed: Allowed | None = None) -> tuple[Settings, Model | None]:
    """
    The settings with the size of the projector file they name, and the draft model they name.

    Raises `CalculatorError` when such a file can't be read.
    """
    if not isinstance(settings, LlamaCppSettings):
        return settings, None
    if settings.mmproj_path and not settings.mmproj_bytes:
        path = as_path(settings.mmproj_path, allowed)
        if path is None:
            raise CalculatorError(f"--mmproj {settings.mmproj_path} does not exist")
        real = path if allowed is None else allowed.check(path)
        settings = replace(settings, mmproj_bytes=real.stat().st_size)
    draft = load_model(settings.draft_path, allowed=allowed) if settings.draft_path else None
    return settings, draft
