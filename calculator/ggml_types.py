"""
GGML tensor types: how many bytes a row of each takes.

Sources: `enum ggml_type` (ggml/include/ggml.h) and the block structures with their static_asserts
(ggml/src/ggml-common.h) of llama.cpp b11434.
"""

from __future__ import annotations

from dataclasses import dataclass

from calculator.model import CalculatorError


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One storage type: `block_bytes` bytes hold `block_elements` numbers."""

    name: str
    block_elements: int
    block_bytes: int


# The position is the number that a GGUF file holds; None: a number that was withdrawn.
_ROWS: tuple[tuple[str, int, int] | None, ...] = (
    ("F32", 1, 4), ("F16", 1, 2), ("Q4_0", 32, 18), ("Q4_1", 32, 20), None, None, ("Q5_0", 32, 22), ("Q5_1", 32, 24),
    ("Q8_0", 32, 34), ("Q8_1", 32, 36), ("Q2_K", 256, 84), ("Q3_K", 256, 110), ("Q4_K", 256, 144), ("Q5_K", 256, 176),
    ("Q6_K", 256, 210), ("Q8_K", 256, 292), ("IQ2_XXS", 256, 66), ("IQ2_XS", 256, 74), ("IQ3_XXS", 256, 98),
    ("IQ1_S", 256, 50), ("IQ4_NL", 32, 18), ("IQ3_S", 256, 110), ("IQ2_S", 256, 82), ("IQ4_XS", 256, 136),
    ("I8", 1, 1), ("I16", 1, 2), ("I32", 1, 4), ("I64", 1, 8), ("F64", 1, 8), ("IQ1_M", 256, 56), ("BF16", 1, 2),
    None, None, None, ("TQ1_0", 256, 54), ("TQ2_0", 256, 66), None, None, None, ("MXFP4", 32, 17), ("NVFP4", 64, 36),
    ("Q1_0", 128, 18), ("Q2_0", 64, 18),
)  # fmt: skip

TYPE_BY_NUMBER: dict[int, GgmlType] = {number: GgmlType(*row) for number, row in enumerate(_ROWS) if row}
TYPE_BY_NAME: dict[str, GgmlType] = {kind.name: kind for kind in TYPE_BY_NUMBER.values()}


def row_bytes(type_name: str, elements: int) -> int:
    """
    Bytes of one row of `elements` numbers (ggml_row_size). The name's case does not matter.

    Raises `CalculatorError` for a type that is not known or a length that is no multiple of its block.
    """
    kind = TYPE_BY_NAME.get(type_name.upper())
    if kind is None:
        raise CalculatorError(f"{type_name!r} is not a GGML type; known are {', '.join(sorted(TYPE_BY_NAME))}")
    blocks, rest = divmod(elements, kind.block_elements)
    if rest:
        raise CalculatorError(
            f"a row of {elements} numbers can't be stored as {kind.name}: its blocks hold {kind.block_elements}"
        )
    return blocks * kind.block_bytes


def tensor_bytes(type_name: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor whose fastest dimension comes first (ggml_nbytes of a contiguous tensor)."""
    size = row_bytes(type_name, shape[0])
    for extent in shape[1:]:
        size *= extent
    return size
