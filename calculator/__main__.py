"""
The calculator on the command line.

    python -m calculator plan MODEL --engine vllm|llama.cpp|sglang [--engine-version V] [the engine's own flags]
                              --devices 24GiB[,24GiB...] [--host-memory 64GiB] [--json]
    python -m calculator models | devices

MODEL is a GGUF file, a folder with config.json, a name of the catalogue, or a Hugging Face id; a name may end in a
GGUF quantisation (Qwen3-8B:Q4_K_M). Devices are sizes, presets (h100, 2xl4) or cpu. Everything else is handed to
the engine's own parser: -c 8192 -np 4 -ngl all, --max-model-len 32k --gpu-memory-utilization 0.9.

Exit status: 0 a plan was made (whether or not it fits), 2 the question can't be answered.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from calculator import catalog, flags, report
from calculator.devices import PRESETS, parse_devices, parse_size
from calculator.document import document
from calculator.model import CalculatorError, Device
from calculator.plan import load_model, plan, settings_of, with_files

_VALUES = ("--engine", "--engine-version", "--devices", "--host-memory")


@dataclass(slots=True)
class _Question:
    """Our own options, and what is left for the engine."""

    model: str = ""
    options: dict[str, str] = field(default_factory=dict)
    as_json: bool = False
    engine_arguments: list[str] = field(default_factory=list)


def _read(arguments: Sequence[str]) -> _Question:
    question = _Question()
    rest = list(arguments)
    if not rest or rest[0].startswith("-"):
        raise CalculatorError("name the model first: python -m calculator plan MODEL --engine ... --devices ...")
    question.model = rest.pop(0)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--json":
            question.as_json = True
        elif name in _VALUES:
            if not equals and not rest:
                raise CalculatorError(f"{name} needs a value")
            question.options[name] = value if equals else rest.pop(0)
        else:
            question.engine_arguments.append(word)
    for needed in ("--engine", "--devices"):
        if needed not in question.options:
            raise CalculatorError(f"{needed} is missing")
    return question


def _plan(arguments: Sequence[str]) -> str:
    question = _read(arguments)
    engine = question.options["--engine"]
    version = question.options.get("--engine-version")
    devices = parse_devices(question.options["--devices"])
    host_memory = question.options.get("--host-memory")
    host = Device("host", parse_size(host_memory, "--host-memory")) if host_memory else None
    if not devices and host is None and engine != "llama.cpp":
        raise CalculatorError(f"{engine} on the CPU takes a share of the host's memory: give --host-memory")
    if engine in ("vllm", "llama.cpp"):
        flags.refuse_unknown(engine, question.engine_arguments)
    settings, draft = with_files(settings_of(engine, question.engine_arguments, version, devices))
    model = load_model(question.model, network=True)
    answer = plan(model, settings, devices, host, draft=draft)
    return json.dumps(document(answer), indent=2) if question.as_json else report.text(answer)


def _models() -> str:
    return "\n".join(f"{entry.name:<44} {entry.repo}" for entry in catalog.entries())


def _devices() -> str:
    lines = []
    for preset in PRESETS:
        total = "" if preset.capacity_bytes is None else report.size(preset.capacity_bytes)
        lines.append(f"{preset.key:<12} {total:>12}  {preset.source}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Answer one command line; returns the exit status."""
    match list(arguments):
        case [] | ["-h" | "--help", *_] | ["plan", "-h" | "--help", *_]:
            print((__doc__ or "").strip())
            return 0
        case ["plan", *rest]:
            try:
                print(_plan(rest))
            except CalculatorError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
            return 0
        case ["models"]:
            print(_models())
            return 0
        case ["devices"]:
            print(_devices())
            return 0
    print(f"error: there is no command {arguments[0]!r}; there are plan, models, devices", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:  # the reader of a pipe (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
