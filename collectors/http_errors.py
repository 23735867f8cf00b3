"""How a GET fails. Apart from the client so that adapters know the failures and not the transport."""

from __future__ import annotations


class HttpError(Exception):
    """A GET brought no usable answer. The message says what happened and is fit for a person."""


class ConnectFailedError(HttpError):
    """No connection. `refused`: the host answered and nothing listens on the port."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class TimedOutError(HttpError):
    """Connected, but the whole answer did not arrive before the deadline."""


class TooLargeError(HttpError):
    """The answer is larger than the cap; reading was given up."""


class RedirectedError(HttpError):
    """The answer points elsewhere. Redirects are never followed: only configured or discovered endpoints are read."""


class ProtocolError(HttpError):
    """What answered does not speak HTTP properly, or it closed the connection within the answer."""
