"""Waiting for conditions, and other small things that every kind of test needs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], timeout_seconds: float = 20.0, what: str = "the condition") -> T:
    """Ask `condition` again and again until its answer is true; returns the answer. Fails after the timeout."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {timeout_seconds:g} s for {what}; last answer: {answer!r}"
        time.sleep(0.02)


_given: set[int] = set()


def free_port() -> int:
    """A TCP port that was free a moment ago and that this process was not given before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port
