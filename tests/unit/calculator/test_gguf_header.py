"""
The header walk over real, split, damaged and hostile GGUF files.

Expected values come from the `gguf` package, which writes and reads the files independently of our code, and from the
format's description (docs/gguf.md of ggml).
"""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calculator.gguf_header import KEPT_ARRAY_LENGTH, read_header
from calculator.gguf_model import model_from_header
from calculator.model import MalformedModelError, UnknownArchitectureError
from tests.support.gguf_files import write_gguf, write_spec

SPEC = {"arch": "qwen3", "n_layer": 3, "n_embd": 256, "n_head": 4, "n_head_kv": 2, "head_dim": 64, "n_ff": 512,
        "n_vocab": 1000, "n_ctx": 4096, "quant": "Q4_K", "tied": True}  # fmt: skip
U32, U64 = struct.Struct("<I"), struct.Struct("<Q")


def text(value: str) -> bytes:
    return U64.pack(len(value)) + value.encode()


def head(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + U32.pack(version) + U64.pack(tensors) + U64.pack(keys)


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + U32.pack(kind) + value


def tensor(name: str = "t", shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    dimensions = U32.pack(len(shape)) + b"".join(U64.pack(extent) for extent in shape)
    return text(name) + dimensions + U32.pack(kind) + U64.pack(offset)


def write(tmp_path: Path, content: bytes, size: int | None = None) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    if size is not None:
        with path.open("r+b") as file:
            file.truncate(size)
    return path


def test_header_says_what_the_reference_reader_says(tmp_path: Path) -> None:
    path = write_spec(tmp_path / "model.gguf", SPEC)
    header, reader = read_header(path), gguf.GGUFReader(path)
    assert header.version == 3
    expected = {(t.name, tuple(int(n) for n in t.shape), t.tensor_type.name, int(t.n_bytes)) for t in reader.tensors}
    assert {(t.name, t.shape, t.type, t.size_bytes) for t in header.tensors} == expected
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            assert header.metadata[name] == pytest.approx(field.contents()), name


def test_long_arrays_are_skipped_and_their_length_is_kept(tmp_path: Path) -> None:
    words = [f"token{index}" for index in range(9000)]
    metadata = {
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": list(range(KEPT_ARRAY_LENGTH + 1)),
        ".attention.head_count_kv": [1, 2, 3],
        "tokenizer.chat_template": "x" * 100_000,
        "general.name": "after all of them",
    }
    header = read_header(write_gguf(tmp_path / "m.gguf", "llama", metadata, [("a", (32,), "F32")]))
    assert header.array_lengths == {
        "tokenizer.ggml.tokens": 9000,
        "tokenizer.ggml.token_type": KEPT_ARRAY_LENGTH + 1,
        "llama.attention.head_count_kv": 3,
    }
    assert header.metadata["llama.attention.head_count_kv"] == (1, 2, 3)
    assert header.metadata["general.name"] == "after all of them"
    assert "tokenizer.ggml.tokens" not in header.metadata
    assert "tokenizer.chat_template" not in header.metadata


def test_version_2_is_read(tmp_path: Path) -> None:
    content = head(keys=1, version=2) + key("general.architecture", 8, text("llama"))
    assert read_header(write(tmp_path, content)).metadata == {"general.architecture": "llama"}


def split_model(tmp_path: Path, count: int = 3) -> list[Path]:
    paths = []
    for number in range(count):
        path = tmp_path / f"big-{number + 1:05d}-of-{count:05d}.gguf"
        # split.no and split.count are 16-bit numbers, split.tensors.count a 32-bit one (gguf-split.cpp)
        keys = key("split.no", 2, struct.pack("<H", number)) + key("split.count", 2, struct.pack("<H", count))
        keys += key("split.tensors.count", 5, struct.pack("<i", count))
        keys += key("general.architecture", 8, text("llama"))
        path.write_bytes(head(1, 4) + keys + tensor(f"t{number}", (32,)) + bytes(32 + 32 * 4))
        paths.append(path)
    return paths


@pytest.mark.parametrize("given_part", [0, 2])
def test_any_part_of_a_split_model_gives_all_tensors(tmp_path: Path, given_part: int) -> None:
    paths = split_model(tmp_path)
    header = read_header(paths[given_part])
    assert [t.name for t in header.tensors] == ["t0", "t1", "t2"]
    assert header.parts == tuple(paths)
    assert header.file_bytes == sum(path.stat().st_size for path in paths)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    paths = split_model(tmp_path)
    paths[1].unlink()
    with pytest.raises(MalformedModelError, match=r"1 of 3 parts are missing: big-00002-of-00003.gguf"):
        read_header(paths[2])


def test_a_part_that_stands_for_another_is_refused(tmp_path: Path) -> None:
    paths = split_model(tmp_path)
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(MalformedModelError, match=r"big-00002-of-00003.gguf: split.no is 2, expected 1"):
        read_header(paths[0])


HUGE = 1 << 60
HOSTILE = {
    "no GGUF file": (b"\x7fELF" + bytes(100), "begins with"),
    "empty": (b"", "truncated"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(64), "big-endian"),
    "version 1": (head(version=1) + bytes(8), "GGUF version 1"),
    "version 4": (head(version=4), "GGUF version 4"),
    "2^60 tensors": (head(tensors=HUGE), "1152921504606846976 tensors"),
    "2^60 keys": (head(keys=HUGE), "1152921504606846976 keys"),
    "endless key": (head(keys=1) + U64.pack(HUGE) + b"x" * 64, "a name of 1152921504606846976 bytes"),
    "endless string": (head(keys=1) + key("general.name", 8, U64.pack(HUGE)), "1152921504606846976 bytes are"),
    "endless array": (head(keys=1) + key("a", 9, U32.pack(4) + U64.pack(HUGE)), "bytes are announced"),
    "2^60 strings": (head(keys=1) + key("a", 9, U32.pack(8) + U64.pack(HUGE)), "an array of 1152921504606846976"),
    "string in an array past the end": (
        head(keys=1) + key("a", 9, U32.pack(8) + U64.pack(1) + U64.pack(1 << 40)),
        "past the end",
    ),
    "array of arrays": (head(keys=1) + key("a", 9, U32.pack(9) + U64.pack(1)), "an array of type 9"),
    "unknown value type": (head(keys=1) + key("a", 77, bytes(8)), "value type 77"),
    "key twice": (head(keys=2) + key("a", 4, U32.pack(1)) * 2, "stands there twice"),
    "key that is no text": (head(keys=1) + U64.pack(2) + b"\xff\xfe" + U32.pack(4) + U32.pack(1), "not UTF-8"),
    "cut off in a value": (head(keys=1) + key("a", 10, b"\0\0"), "truncated"),
    "alignment 3": (head(keys=1) + key("general.alignment", 4, U32.pack(3)), "no power of two"),
    "alignment as text": (head(keys=1) + key("general.alignment", 8, text("8")), "no power of two"),
    "five dimensions": (head(tensors=1) + tensor(shape=(1,) * 5) + bytes(99), "5 dimensions"),
    "no dimensions": (head(tensors=1) + tensor(shape=()) + bytes(99), "0 dimensions"),
    "nothing in a tensor": (head(tensors=1) + tensor(shape=(32, 0)) + bytes(99), "holds nothing"),
    "2^60 rows": (head(tensors=1) + tensor(shape=(32, HUGE)) + bytes(99), "it would end"),
    "withdrawn type": (head(tensors=1) + tensor(kind=4) + bytes(999), "tensor type 4 is not known"),
    "half a block": (head(tensors=1) + tensor(shape=(33,), kind=8) + bytes(999), "no multiple of Q8_0's 32"),
    "tensor twice": (head(tensors=2) + tensor() + tensor(offset=128) + bytes(999), "stands there twice"),
    "offset past the file": (head(tensors=1) + tensor(offset=HUGE) + bytes(999), "it would end"),
    "crooked offset": (head(tensors=1) + tensor(offset=4) + bytes(999), "no multiple of the alignment"),
    "overlap": (head(tensors=2) + tensor("a") + tensor("b", offset=64) + bytes(999), "before the tensor ahead"),
    "data cut off": (head(tensors=1) + tensor() + bytes(100), "the file is truncated"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_the_field(name: str, tmp_path: Path) -> None:
    content, message = HOSTILE[name]
    with pytest.raises(MalformedModelError, match=message) as error:
        read_header(write(tmp_path, content))
    assert str(error.value).startswith("m.gguf: ")


def test_a_huge_sparse_file_of_zeros_costs_no_memory(tmp_path: Path) -> None:
    """A terabyte that is announced to hold 2^22 empty strings, and nothing behind them."""
    content = head(keys=1) + key("a", 9, U32.pack(8) + U64.pack(1 << 22))
    path = write(tmp_path, content, size=1 << 40)
    tracemalloc.start()
    header = read_header(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert header.array_lengths == {"a": 1 << 22}
    assert peak < 4 << 20


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(MalformedModelError, match="can't be read: No such file"):
        read_header(tmp_path / "none.gguf")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_headers_end_in_a_named_error(data: st.DataObject, tmp_path: Path) -> None:
    """Bytes changed, cut off or repeated: nothing but our own errors, and memory stays small."""
    source = tmp_path / "source.gguf"
    if not source.exists():
        write_spec(source, SPEC)
    with source.open("rb") as file:
        content = bytearray(file.read(3000))
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        wild = data.draw(st.sampled_from([b"\xff" * 8, bytes(8), U64.pack(HUGE), U64.pack(1 << 31), U32.pack(9)]))
        content[at : at + len(wild)] = data.draw(st.sampled_from([wild, wild[:1], b""]))
    content = content[: data.draw(st.integers(1, len(content)))]
    path = write(tmp_path, bytes(content), size=data.draw(st.sampled_from([None, source.stat().st_size])))
    message = "m.gguf"
    tracemalloc.start()
    try:
        model_from_header(read_header(path))
    except (MalformedModelError, UnknownArchitectureError) as error:
        message = str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert "m.gguf" in message
    assert peak < 8 << 20
