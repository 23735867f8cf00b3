"""
The tensor table of safetensors files: their headers only, never their data.

Format: 8 bytes little-endian length, then that many bytes of JSON, then the data
(https://github.com/huggingface/safetensors, README "Format"). The length is capped as in the reference
implementation (100 MB, ``safetensors/src/tensor.rs`` MAX_HEADER_SIZE).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from calculator.model import MalformedModelError, Tensor

LARGEST_HEADER_BYTES = 100_000_000
DTYPE_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}


def read_safetensors(path: Path) -> tuple[Tensor, ...]:
    """
    Read one file's tensor table.

    :raises MalformedModelError: not such a file, truncated, or its table contradicts itself
    :raises OSError: the file can't be read
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(LARGEST_HEADER_BYTES, size - 8):
            raise MalformedModelError(
                f"{path.name}: its header claims {length} bytes, but the file has {max(size - 8, 0)} and "
                f"{LARGEST_HEADER_BYTES} are the most allowed; the file is truncated or not safetensors"
            )
        raw = file.read(length)
    return _parse(path.name, raw, size - 8 - length)


def _parse(name: str, raw: bytes, data_bytes: int) -> tuple[Tensor, ...]:
    try:
        table = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MalformedModelError(f"{name}: its header is not JSON ({type(error).__name__})") from None
    if not isinstance(table, dict):
        raise MalformedModelError(f"{name}: its header is not a JSON object")
    spans: list[tuple[int, int, Tensor]] = []
    for key, entry in table.items():
        if key != "__metadata__":
            spans.append(_tensor(name, key, entry))
    spans.sort(key=lambda span: span[:2])
    end = 0
    for start, stop, tensor in spans:
        if start != end:
            word = "overlap" if start < end else "leave a hole"
            raise MalformedModelError(f"{name}: data_offsets of {tensor.name!r} {word} at byte {start}")
        end = stop
    if end != data_bytes:
        raise MalformedModelError(
            f"{name}: its tensors take {end} bytes, the file holds {data_bytes}; it is truncated or corrupt"
        )
    return tuple(tensor for _, _, tensor in spans)


def _tensor(name: str, key: str, entry: object) -> tuple[int, int, Tensor]:
    if not isinstance(entry, dict):
        raise MalformedModelError(f"{name}: the entry of {key!r} is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if dtype not in DTYPE_BITS:
        raise MalformedModelError(f"{name}: dtype {dtype!r} of {key!r} is unknown")
    if not isinstance(shape, list) or not all(_count(part) for part in shape) or len(shape) > 16:
        raise MalformedModelError(f"{name}: shape of {key!r} is not a short list of whole numbers")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_count(part) for part in offsets):
        raise MalformedModelError(f"{name}: data_offsets of {key!r} are not two whole numbers")
    start, stop = offsets
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    if (stop - start) * 8 != bits:
        raise MalformedModelError(
            f"{name}: {key!r} of shape {shape} in {dtype} needs {bits // 8} bytes, data_offsets give {stop - start}"
        )
    return start, stop, Tensor(key, tuple(shape), dtype, stop - start)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60


def read_folder(folder: Path) -> tuple[Tensor, ...]:
    """
    Read the tables of a folder's ``model.safetensors`` or of all files its index names; empty where there are none.

    :raises MalformedModelError: a file is corrupt, missing, or named outside the folder
    """
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        files: Iterable[str] = sorted(
            path.name for path in folder.glob("*.safetensors") if "consolidated" not in path.name
        )
    else:
        if index.stat().st_size > LARGEST_HEADER_BYTES:
            raise MalformedModelError(f"{index.name}: larger than {LARGEST_HEADER_BYTES} bytes")
        try:
            content = json.loads(index.read_bytes())
        except (ValueError, RecursionError):
            raise MalformedModelError(f"{index.name}: not JSON") from None
        weights = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(weights, dict) or not all(isinstance(value, str) for value in weights.values()):
            raise MalformedModelError(f"{index.name}: weight_map is missing or not a map of names to files")
        files = sorted(set(weights.values()))
    out: list[Tensor] = []
    for name in files:
        path = folder / name
        if Path(name).name != name:
            raise MalformedModelError(f"{index.name}: names {name!r}, which is outside the folder")
        if not path.is_file():
            raise MalformedModelError(f"{index.name}: {name} is missing; the download is incomplete")
        out += read_safetensors(path)
    return tuple(out)
