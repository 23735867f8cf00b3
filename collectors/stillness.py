"""An engine that says it works while nothing moves: told beside its state, never corrected silently."""

from __future__ import annotations

from collectors.engines.base import EngineReading
from store.model import COUNTERS, EngineState

STILL_SECONDS = 30.0


class Stillness:
    """
    Watches one engine whose counters move while requests run.

    vLLM keeps its gauges when all requests were aborted, until its next step (vllm-project/vllm#29928), and
    llama.cpp's server can answer while its decode loop hangs (ggml-org/llama.cpp#27388). A long prefill looks the
    same from outside, so all three are named.
    """

    def __init__(self) -> None:
        self._counters: dict[str, float | None] = {}
        self._since: float | None = None

    def remark(self, reading: EngineReading, monotonic_seconds: float) -> str | None:
        """A sentence when requests are shown as running and no counter has moved for `STILL_SECONDS`, else None."""
        running = reading.readings.get("requests_running")
        if reading.state != EngineState.READY or running is None or not running.value:
            self._since = None
            return None
        counters = {name: reading.readings[name].value for name in COUNTERS if name in reading.readings}
        if self._since is None or counters != self._counters:
            self._counters, self._since = counters, monotonic_seconds
            return None
        still_seconds = monotonic_seconds - self._since
        if still_seconds < STILL_SECONDS:
            return None
        return (
            f"{running.value:g} request(s) are shown as running, but no counter has moved for {still_seconds:.0f} s: a "
            "long prefill, a stalled engine, or a gauge left over from aborted requests. CPU and GPU use tell which."
        )
