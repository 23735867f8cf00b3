"""
llama.cpp's own estimator, where it is installed: `llama-fit-params --fit-print on`.

It loads a model without its weights and prints what each device would hold, in MiB rounded down:
``<device> <model> <context> <compute>`` (common/fit.cpp of llama.cpp). It is run with every GPU hidden, because it
would open a context of its own on each and so take memory from the engine that is being measured; its figures are
therefore only comparable for engines that keep everything in host memory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20
TIMEOUT_SECONDS = 60.0
NAME = "llama-fit-params"
_ROW = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s*\Z")
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1", "GGML_VK_VISIBLE_DEVICES": ""}


class FitParamsError(Exception):
    """The estimator gave no figures; the message says why."""


@dataclass(frozen=True, slots=True)
class FitEstimate:
    """What llama.cpp itself plans for one device, in bytes (whole MiB, rounded down)."""

    device: str  # "Host", "CUDA0" ...
    model_bytes: int
    context_bytes: int  # KV cache and recurrent state
    compute_bytes: int


def find(configured: Path | None) -> Path | None:
    """The configured binary, or the one on the PATH; None where there is none."""
    if configured is not None:
        return configured if configured.is_file() else None
    found = shutil.which(NAME)
    return Path(found) if found else None


def estimate(
    binary: Path, model_file: Path, flags: Sequence[str], timeout_seconds: float = TIMEOUT_SECONDS
) -> list[FitEstimate]:
    """
    Ask `binary` for a model and llama.cpp's own flags.

    Raises `FitParamsError` when it ends with an error, takes longer than `timeout_seconds` or prints no table.
    """
    libraries = os.pathsep.join(filter(None, [str(binary.parent), os.environ.get("LD_LIBRARY_PATH")]))
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the binary is configured or on the PATH
            [str(binary), "-m", str(model_file), *flags, "--fit-print", "on"],
            env={**os.environ, **_NO_GPU, "LD_LIBRARY_PATH": libraries},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FitParamsError(f"{NAME} gave no answer within {timeout_seconds:g} s") from error
    except OSError as error:
        raise FitParamsError(f"{binary} could not be run: {error.strerror or error}") from error
    rows = [match for line in done.stdout.splitlines() if (match := _ROW.match(line.strip()))]
    if done.returncode != 0 or not rows:
        last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "it printed nothing")
        raise FitParamsError(f"{NAME} ended with {done.returncode}: {last[:300]}")
    return [FitEstimate(row[1], *(int(row[n]) * MIB for n in (2, 3, 4))) for row in rows]
