"""
Reads the header of a GGUF file: metadata and the tensor table, never the weights.

A walk over the bytes: arrays are skipped where they are long (a vocabulary of 150 k tokens), and nothing is
allocated by a number that the file states. Layout: docs/gguf.md of ggml, ggml/src/gguf.cpp of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from calculator.ggml_types import TYPE_BY_NUMBER
from calculator.model import MalformedModelError, Tensor

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]

# Bounds that no real file comes near; they keep a hostile one from taking time or memory.
MAX_HEADER_BYTES = 256 << 20
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_ARRAY_STRINGS = 1 << 22
MAX_NAME_BYTES = 65_535  # a key, by the specification
KEPT_STRING_BYTES = 4096  # longer ones (chat templates) are skipped
KEPT_ARRAY_LENGTH = 4096  # longer arrays are skipped, their length is kept
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
DEFAULT_ALIGNMENT_BYTES = 32

_CHUNK_BYTES = 1 << 18
_U32, _U64 = Struct("<I"), Struct("<Q")
_SCALARS = {
    0: Struct("<B"), 1: Struct("<b"), 2: Struct("<H"), 3: Struct("<h"), 4: Struct("<I"), 5: Struct("<i"),
    6: Struct("<f"), 7: Struct("<?"), 10: Struct("<Q"), 11: Struct("<q"), 12: Struct("<d"),
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the header of a model file says; for a split model of all its parts together."""

    path: Path
    version: int
    metadata: Mapping[str, Value]  # scalars, and arrays of up to KEPT_ARRAY_LENGTH elements
    array_lengths: Mapping[str, int]  # of every array, also of the skipped ones
    tensors: tuple[Tensor, ...]
    file_bytes: int
    parts: tuple[Path, ...]


class _Walk:
    """A forward walk over a file of known size, in chunks."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self.size = file.seek(0, 2)
        self._limit = min(self.size, MAX_HEADER_BYTES)
        self._buffer = b""
        self._start = 0  # where the buffer lies in the file
        self._at = 0  # within the buffer

    @property
    def offset(self) -> int:
        """Where the walk stands in the file."""
        return self._start + self._at

    def fail(self, what: str, field: str) -> MalformedModelError:
        """An error that names the field and the place."""
        return MalformedModelError(f"{self._path.name}: {what} ({field}, byte {self.offset})")

    def _need(self, count: int, field: str) -> None:
        """Have `count` more bytes in the buffer."""
        if self._at + count <= len(self._buffer):
            return
        if self.offset + count > self._limit:
            if self.size > MAX_HEADER_BYTES:
                raise self.fail(f"the header is longer than {MAX_HEADER_BYTES >> 20} MiB", field)
            raise self.fail(f"the file ends after {self.size} bytes, within its header: it is truncated", field)
        self._start, self._at = self.offset, 0
        self._file.seek(self._start)
        self._buffer = self._file.read(max(count, min(_CHUNK_BYTES, self._limit - self._start)))
        if len(self._buffer) < count:
            raise self.fail("the file became shorter while it was read", field)

    def skip(self, count: int, field: str) -> None:
        """Pass over `count` bytes."""
        if self.offset + count > self._limit:
            raise self.fail(f"{count} bytes are announced, but the file has {self.size}", field)
        self._at += count

    def take(self, count: int, field: str) -> bytes:
        """The next `count` bytes."""
        self._need(count, field)
        self._at += count
        return self._buffer[self._at - count : self._at]

    def number(self, kind: Struct, field: str) -> Scalar:
        """One number."""
        self._need(kind.size, field)
        (value,) = kind.unpack_from(self._buffer, self._at)
        self._at += kind.size
        return value  # type: ignore[no-any-return]

    def u32(self, field: str) -> int:
        """An unsigned 32-bit number."""
        return int(self.number(_U32, field))

    def u64(self, field: str) -> int:
        """An unsigned 64-bit number."""
        return int(self.number(_U64, field))

    def name(self, field: str) -> str:
        """A short text that must be there and readable."""
        length = self.u64(field)
        if length > MAX_NAME_BYTES:
            raise self.fail(f"a name of {length} bytes; the longest allowed is {MAX_NAME_BYTES}", field)
        try:
            return self.take(length, field).decode()
        except UnicodeDecodeError as error:
            raise self.fail("a name that is not UTF-8", field) from error

    def skip_strings(self, count: int, field: str) -> None:
        """Pass over `count` strings, each with its length before it."""
        unpack = _U64.unpack_from
        while count:
            self._need(8, field)
            buffer, at, last = self._buffer, self._at, len(self._buffer) - 8
            while count and at <= last:
                at += 8 + unpack(buffer, at)[0]
                count -= 1
            self._at = at
            if self.offset > self._limit:
                raise self.fail(f"a string reaches past the end of the file ({self.size} bytes)", field)


def _string(walk: _Walk, field: str) -> str | None:
    """A string value; None when it is too long to keep."""
    length = walk.u64(field)
    if length > KEPT_STRING_BYTES:
        walk.skip(length, field)
        return None
    return walk.take(length, field).decode(errors="replace")


def _array(walk: _Walk, field: str) -> tuple[int, tuple[Scalar, ...] | None]:
    """Length of an array, and its elements when they are few."""
    kind = walk.u32(field)
    length = walk.u64(field)
    if kind == _STRING:
        if length > MAX_ARRAY_STRINGS:
            raise walk.fail(f"an array of {length} strings; at most {MAX_ARRAY_STRINGS} are read", field)
        walk.skip_strings(length, field)
        return length, None
    form = _SCALARS.get(kind)
    if form is None:
        raise walk.fail(f"an array of type {kind}, which GGUF does not know (arrays of arrays are not used)", field)
    if length > KEPT_ARRAY_LENGTH:
        walk.skip(length * form.size, field)
        return length, None
    content = walk.take(length * form.size, field)
    return length, tuple(row[0] for row in form.iter_unpack(content))


def _metadata(walk: _Walk, count: int) -> tuple[dict[str, Value], dict[str, int]]:
    """The key-value pairs and the lengths of all arrays."""
    values: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    seen: set[str] = set()
    for index in range(count):
        key = walk.name(f"key {index}")
        if key in seen:
            raise walk.fail("the key stands there twice", key)
        seen.add(key)
        kind = walk.u32(key)
        if kind == _STRING:
            text = _string(walk, key)
            if text is not None:
                values[key] = text
        elif kind == _ARRAY:
            lengths[key], elements = _array(walk, key)
            if elements is not None:
                values[key] = elements
        elif kind in _SCALARS:
            values[key] = walk.number(_SCALARS[kind], key)
        else:
            raise walk.fail(f"value type {kind} is not known to GGUF", key)
    return values, lengths


def _tensors(walk: _Walk, count: int) -> list[tuple[int, Tensor]]:
    """The tensor table: offset within the data, and the tensor."""
    table: list[tuple[int, Tensor]] = []
    seen: set[str] = set()
    for index in range(count):
        name = walk.name(f"tensor {index}")
        field = f"tensor {name!r}"
        if name in seen:
            raise walk.fail("the tensor stands there twice", field)
        seen.add(name)
        dimensions = walk.u32(field)
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise walk.fail(f"{dimensions} dimensions; a tensor has 1 to {MAX_DIMENSIONS}", field)
        shape = tuple(walk.u64(field) for _ in range(dimensions))
        number = walk.u32(field)
        kind = TYPE_BY_NUMBER.get(number)
        if kind is None:
            raise walk.fail(
                f"tensor type {number} is not known: withdrawn, newer than this program, or a fork's", field
            )
        size = kind.block_bytes
        for extent in (shape[0] // kind.block_elements, *shape[1:]):
            size *= extent
        if size == 0:
            raise walk.fail(f"the shape {shape} holds nothing", field)
        if shape[0] % kind.block_elements:
            raise walk.fail(
                f"{shape[0]} numbers in a row are no multiple of {kind.name}'s {kind.block_elements}", field
            )
        offset = walk.u64(field)
        if offset + size > walk.size:
            raise walk.fail(f"it would end {offset + size} bytes into the data, the file has {walk.size}", field)
        table.append((offset, Tensor(name=name, shape=shape, type=kind.name, size_bytes=size)))
    return table


def _check_places(walk: _Walk, table: list[tuple[int, Tensor]], alignment: int) -> None:
    """Tensors lie within the file, aligned, and none over another."""
    data = -(-walk.offset // alignment) * alignment
    end = 0
    for offset, tensor in sorted(table, key=lambda row: row[0]):
        field = f"tensor {tensor.name!r}"
        if offset % alignment:
            raise walk.fail(f"offset {offset} is no multiple of the alignment {alignment}", field)
        if offset < end:
            raise walk.fail(f"it begins at {offset}, before the tensor ahead of it ends at {end}", field)
        end = offset + tensor.size_bytes
        if data + end > walk.size:
            raise walk.fail(
                f"the file has {walk.size} bytes, but this tensor ends at byte {data + end}: the file is truncated",
                field,
            )


def _alignment(walk: _Walk, values: Mapping[str, Value]) -> int:
    value = values.get("general.alignment", DEFAULT_ALIGNMENT_BYTES)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value > 1 << 20 or value & (value - 1):
        raise walk.fail(f"{value!r} is no power of two", "general.alignment")
    return value


def _read_file(path: Path) -> GgufHeader:
    """The header of one file, whatever its split keys say."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise MalformedModelError(f"{path}: can't be read: {error.strerror}") from error
    with file:
        walk = _Walk(file, path)
        magic = walk.take(4, "magic")
        if magic != b"GGUF":
            raise walk.fail(f"this is no GGUF file: it begins with {magic!r} instead of b'GGUF'", "magic")
        version = walk.u32("version")
        if version and version & 0xFFFF == 0:
            raise walk.fail("the file is big-endian; convert it to little-endian (gguf-convert-endian)", "version")
        if version not in (2, 3):
            raise walk.fail(f"GGUF version {version}; versions 2 and 3 are read", "version")
        tensor_count, key_count = walk.u64("tensor count"), walk.u64("key count")
        if tensor_count > MAX_TENSORS or key_count > MAX_KEYS:
            raise walk.fail(
                f"{tensor_count} tensors and {key_count} keys announced; at most {MAX_TENSORS} and {MAX_KEYS} are read",
                "tensor count",
            )
        values, lengths = _metadata(walk, key_count)
        table = _tensors(walk, tensor_count)
        _check_places(walk, table, _alignment(walk, values))
        return GgufHeader(
            path=path,
            version=version,
            metadata=values,
            array_lengths=lengths,
            tensors=tuple(tensor for _, tensor in table),
            file_bytes=walk.size,
            parts=(path,),
        )


def read_header(path: Path) -> GgufHeader:
    """
    Read the header of a GGUF file, little-endian, version 2 or 3.

    Any part of a split model (`NAME-00001-of-00005.gguf`) gives the header of the first part with the tensors of
    all. Raises `MalformedModelError`, naming the field and the byte, for a file that is truncated, corrupt or
    contradicts itself, and for parts that are missing.
    """
    match = _PART.search(path.name)
    stem, count = (path.name[: match.start()], int(match[2])) if match else ("", 1)
    first_path = path.with_name(f"{stem}-00001-of-{count:05d}.gguf") if match else path
    if match and not first_path.is_file():
        raise MalformedModelError(f"{path.name}: the first part of the model is missing: {first_path.name}")
    first = _read_file(first_path)
    announced = first.metadata.get("split.count", 1)
    if not isinstance(announced, int):
        raise MalformedModelError(f"{first_path.name}: {announced!r} is no number (split.count)")
    if announced <= 1:
        return first
    if announced != count:
        raise MalformedModelError(
            f"{first_path.name}: it is part of {announced} (split.count), but its name says {count}; "
            f"keep the names NAME-00001-of-{announced:05d}.gguf"
        )
    paths = [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise MalformedModelError(f"{first_path.name}: {len(missing)} of {count} parts are missing: {shown}")
    others = [_read_file(part) for part in paths[1:]]
    for number, part in enumerate(others, start=1):
        if part.metadata.get("split.no") != number:
            raise MalformedModelError(
                f"{part.path.name}: split.no is {part.metadata.get('split.no')!r}, expected {number}"
            )
    tensors = first.tensors + tuple(tensor for part in others for tensor in part.tensors)
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors):
        raise MalformedModelError(f"{first_path.name}: a tensor stands in two parts of the model")
    expected = first.metadata.get("split.tensors.count")
    if isinstance(expected, int) and expected != len(tensors):
        raise MalformedModelError(
            f"{first_path.name}: split.tensors.count is {expected}, the parts hold {len(tensors)} tensors"
        )
    return replace(
        first,
        tensors=tensors,
        file_bytes=first.file_bytes + sum(part.file_bytes for part in others),
        parts=tuple(paths),
    )
