"""SGLang's own flags as settings: those of `sglang.launch_server` (0.5.23) that decide its memory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from calculator.model import CalculatorError
from calculator.sglang import SglangSettings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False, add_help=False)
    for names, kind in (
        ("--tp-size --tensor-parallel-size --tp", int),
        ("--pp-size --pipeline-parallel-size --pp", int),
        ("--mem-fraction-static", float),
        ("--chunked-prefill-size", int),
        ("--cuda-graph-max-bs", int),
        ("--context-length", int),
        ("--kv-cache-dtype", str),
        ("--page-size", int),
        ("--quantization", str),
    ):
        parser.add_argument(*names.split(), type=kind, default=argparse.SUPPRESS)
    return parser


def from_arguments(arguments: Sequence[str], version: str | None = None) -> SglangSettings:
    """
    The settings of a command line; flags that don't concern memory are passed over.

    Raises `CalculatorError` for a value that can't be read.
    """
    try:
        found, _ = _parser().parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise CalculatorError(f"sglang: {error}") from error
    values = vars(found)
    if version is not None:
        values["version"] = version
    return SglangSettings(**values)
