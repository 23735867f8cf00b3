"""
Reading the header of a model with a vocabulary of 150 000 tokens, against `gguf.GGUFReader` on the same file.

Budget: under 200 ms.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import gguf

from calculator.gguf_header import read_header
from tests.support.gguf_files import write_gguf

VOCABULARY = 150_000
BLOCKS = 48
BUDGET_SECONDS = 0.2
ROUNDS = 5


def model(folder: Path) -> Path:
    """A sparse file with tokens, merges and token types, and the tensors of 48 blocks."""
    tokens = [f"token number {index}" for index in range(VOCABULARY)]
    metadata = {
        ".block_count": BLOCKS,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [f"{word} {word}" for word in tokens],
        "tokenizer.ggml.token_type": [1] * VOCABULARY,
    }
    tensors = [("token_embd.weight", (4096, VOCABULARY), "Q6_K")]
    for block in range(BLOCKS):
        tensors += [(f"blk.{block}.part{part}.weight", (4096, 4096), "Q4_K") for part in range(12)]
    return write_gguf(folder / "model.gguf", "llama", metadata, tensors)


def main() -> int:
    """Print both times and their ratio; 1 when over the budget."""
    with tempfile.TemporaryDirectory() as folder:
        path = model(Path(folder))
        ours = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            header = read_header(path)
            ours.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        reader = gguf.GGUFReader(path)
        theirs = time.perf_counter() - begun
        if len(reader.tensors) != len(header.tensors):
            raise SystemExit("the two readers disagree about the tensors")
    middle = statistics.median(ours)
    print(
        f"header walk {middle * 1e3:.0f} ms (budget {BUDGET_SECONDS * 1e3:.0f} ms), "
        f"gguf.GGUFReader {theirs * 1e3:.0f} ms: {theirs / middle:.0f} times as long"
    )
    return int(middle > BUDGET_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
