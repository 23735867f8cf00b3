"""
Server-sent events out of bytes that arrive in pieces.

The rules are those of the HTML standard, section 9.2 (https://html.spec.whatwg.org/multipage/server-sent-events.html):
lines end in LF, CRLF or CR, a colon begins a comment, several data lines are one value, a blank line ends an event.
An event arrives with the piece that completes it.
"""

from __future__ import annotations

from collections.abc import Iterator


class EventReader:
    """Feed it the pieces of one answer in order; it gives the data of each event that they complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self.failed = False  # an event was named "error"
        self._names_error = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of each event that ends in `piece`."""
        # Nearly every piece of every engine is exactly one event of one line.
        if (
            not self._rest
            and not self._data
            and not self._names_error
            and piece[:6] == b"data: "
            and piece[-2:] == b"\n\n"
            and piece.find(b"\n") == len(piece) - 2
            and b"\r" not in piece
        ):
            yield piece[6:-2]
            return
        text = self._rest + piece
        held = b""
        if text.endswith(b"\r"):  # whether an LF belongs to it is known with the next piece
            text, held = text[:-1], b"\r"
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        for line in lines:
            if not line:
                yield from self._event()
            else:
                self._line(line)

    def finish(self) -> Iterator[bytes]:
        """The data of an event that the end of the answer cut off before its blank line."""
        for line in self._rest.rstrip(b"\r").split(b"\r"):
            if line:
                self._line(line)
        self._rest = b""
        yield from self._event()

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._names_error = value == b"error"

    def _event(self) -> Iterator[bytes]:
        self.failed = self.failed or (self._names_error and bool(self._data))
        self._names_error = False
        if self._data:
            data = b"\n".join(self._data)
            self._data = []
            yield data
