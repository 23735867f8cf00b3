"""
ggml's graph allocator, imitated: where each tensor of a graph would lie, and how large the buffer becomes.

A node takes the place of a parent that nobody else needs where its operation allows that, else the best-fitting hole,
else the end; a parent's place is free after its last use. Source: ggml/src/ggml-alloc.c of llama.cpp b11434
(`ggml_gallocr_alloc_graph_impl`, `ggml_dyn_tallocr_alloc`). One chunk; alignment 64 bytes.
"""

from __future__ import annotations

ALIGNMENT_BYTES = 64


class Graph:
    """
    Nodes in the order of their computation. A tensor is the number that `leaf` or `node` returned.

    Views are not nodes: name the tensor that they look into.
    """

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._parents: list[tuple[int, ...]] = []
        self._inplace: list[bool] = []
        self._kept: set[int] = set()
        self._leaves = 0

    def leaf(self, size_bytes: int) -> int:
        """An input; all inputs are placed before the first node."""
        if self._leaves != len(self._sizes):
            raise ValueError("inputs come before nodes")
        self._leaves += 1
        return self._add(size_bytes, (), inplace=False)

    def node(self, size_bytes: int, *parents: int, inplace: bool = False) -> int:
        """A computed tensor. `inplace`: the operation may write over a parent of the same size."""
        return self._add(size_bytes, parents, inplace=inplace)

    def use(self, *parents: int) -> None:
        """A node that writes elsewhere (into a cache) and only reads these."""
        self._add(0, parents, inplace=False)

    def keep(self, tensor: int) -> None:
        """Never free this tensor, nor write over it: an output, or one that a view still looks into."""
        self._kept.add(tensor)

    def _add(self, size_bytes: int, parents: tuple[int, ...], *, inplace: bool) -> int:
        self._sizes.append(-(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        self._parents.append(parents)
        self._inplace.append(inplace)
        return len(self._sizes) - 1

    def buffer_bytes(self) -> int:
        """The size of the buffer that holds the graph."""
        sizes, kept = self._sizes, self._kept
        children = [0] * len(sizes)
        for parents in self._parents:
            for parent in parents:
                children[parent] += 1
        place = [-1] * len(sizes)
        holes: list[tuple[int, int]] = []  # offset and size, by offset; what follows the last tensor is not a hole
        end = top = 0
        for tensor, parents in enumerate(self._parents):
            size = sizes[tensor]
            if self._inplace[tensor]:
                for parent in parents:
                    if children[parent] == 1 and sizes[parent] == size and parent not in kept and place[parent] >= 0:
                        place[tensor], place[parent] = place[parent], -1
                        break
            if place[tensor] < 0 and size:
                best = -1
                for index, (_, room) in enumerate(holes):
                    if room >= size and (best < 0 or room <= holes[best][1]):
                        best = index
                if best >= 0:
                    offset, room = holes[best]
                    place[tensor] = offset
                    if room == size:
                        del holes[best]
                    else:
                        holes[best] = offset + size, room - size
                else:
                    place[tensor] = end
                    end += size
                    top = max(top, end)
            for parent in parents:
                children[parent] -= 1
                if not children[parent] and place[parent] >= 0 and parent not in kept:
                    end = _free(holes, place[parent], sizes[parent], end)
                    place[parent] = -1
        return top


def _free(holes: list[tuple[int, int]], offset: int, size: int, end: int) -> int:
    """Give a place back, joined with the holes beside it; returns where the last tensor ends."""
    index = 0
    while index < len(holes) and holes[index][0] < offset:
        index += 1
    if index < len(holes) and holes[index][0] == offset + size:
        size += holes.pop(index)[1]
    if index and sum(holes[index - 1]) == offset:
        index -= 1
        before = holes.pop(index)
        offset, size = before[0], before[1] + size
    if offset + size == end:
        return offset
    holes.insert(index, (offset, size))
    return end
