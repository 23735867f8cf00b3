"""
What the Live page costs: `python -m benchmarks.live_page [--scenario NAME] [--viewers N] [--seconds S]`.

1. Server time of the charts per refresh: the kept specification against the same one authored with Altair
   each time (without Altair's own conversion of data, so the ratio is a lower bound).
2. A real server on a demo host (`mixed`: 8 engines, `usual`: 4; 2 GPUs) with viewers that refresh every 2 s as
   browsers do: bytes on the wire per refresh and viewer, counted by a relay, and CPU of the server.

Budget (design): under 60 kB sent per refresh and viewer; 20 viewers on one core.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import psutil
import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.typing import Origin, Subprotocol

import settings
from tests.support.wait import free_port, until
from views import charts, data, live, picture
from views.urlstate import live_window

ROOT = Path(__file__).parents[1]
BUDGET_BYTES = 60_000
ROUNDS = 15
SMALL_BYTES, CHART_BYTES = 500, 20_000
WARM_UP_SECONDS = 10.0


def chart_seconds() -> tuple[float, float]:
    """Median seconds to shape and send one refresh: with the kept specification, and with it authored anew."""
    logging.disable(logging.WARNING)  # drawing outside a session says so once an element
    warnings.simplefilter("ignore")
    found, every = data.load_live(live_window(5, 2, datetime.now(UTC))), picture.known_engines()
    kept = charts.live_spec
    medians = []
    for build in (kept, kept.__wrapped__):
        charts.live_spec = build  # type: ignore[assignment]
        live.draw_charts(picture.compose(found, every, []))
        times = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            live.draw_charts(picture.compose(found, every, []))
            times.append(time.perf_counter() - begun)
        medians.append(statistics.median(times))
    charts.live_spec = kept
    return medians[0], medians[1]


@contextmanager
def demo(folder: Path, scenario: str) -> Iterator[None]:
    """The demo host in a process of its own, as a collector is, until it can be read."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.demo_server", "--data", folder, "--scenario", scenario],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "serving" in line)
        yield
        process.send_signal(signal.SIGINT)


@dataclass
class Relay:
    """Passes bytes between viewers and the server and counts those that the server sends."""

    to_port: int
    sent_bytes: int = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a viewer."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.to_port)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, counted: bool) -> None:
            while chunk := await source.read(65536):
                self.sent_bytes += len(chunk) if counted else 0
                target.write(chunk)
                await target.drain()
            target.close()

        with suppress(OSError):
            await asyncio.gather(pump(reader, to_server, counted=False), pump(from_server, writer, counted=True))


def _is_chart(message: ForwardMsg) -> bool:
    return str(message.delta.new_element.WhichOneof("type")).endswith("vega_lite_chart")


@dataclass
class Viewer:
    """A browser's part of the protocol: ask for the page, then for its fragment every 2 s."""

    port: int
    charts: int = 0

    async def watch(self, until_time: float) -> None:
        """Look at the page until a moment of the monotonic clock."""
        address = f"ws://127.0.0.1:{self.port}/_stcore/stream"
        async with websockets.connect(
            address,
            subprotocols=[Subprotocol("streamlit")],
            origin=Origin(f"http://127.0.0.1:{self.port}"),
            max_size=None,
        ) as socket:
            ask = BackMsg()
            ask.rerun_script.query_string = ""
            await socket.send(ask.SerializeToString())
            fragment, interval, due = "", 2.0, float("inf")
            while (now := time.monotonic()) < until_time:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.01, min(due, until_time) - now)):
                        received = await socket.recv(decode=False)
                    # Only these are looked into: the charts are among the largest, all cards together too.
                    self.charts += len(received) > CHART_BYTES and _is_chart(ForwardMsg.FromString(received))
                    if len(received) < SMALL_BYTES:
                        message = ForwardMsg.FromString(received)
                        if message.WhichOneof("type") == "auto_rerun":
                            fragment, interval = message.auto_rerun.fragment_id, message.auto_rerun.interval
                            due = time.monotonic() + interval
                if time.monotonic() >= due:
                    again = BackMsg()
                    again.rerun_script.fragment_id = fragment
                    again.rerun_script.is_auto_rerun = True
                    await socket.send(again.SerializeToString())
                    due += interval


async def watched(port: int, viewers: int, seconds: float, server: psutil.Process) -> tuple[float, float, int]:
    """Bytes per refresh and viewer, CPU share of one core of the server, and how many refreshes arrived."""
    relay = Relay(port)
    front = await asyncio.start_server(relay.handle, "127.0.0.1", 0)
    front_port = front.sockets[0].getsockname()[1]
    people = [Viewer(front_port) for _ in range(viewers)]
    end = time.monotonic() + WARM_UP_SECONDS + seconds
    watching = asyncio.gather(*(person.watch(end) for person in people))
    await asyncio.sleep(WARM_UP_SECONDS)
    before = relay.sent_bytes, sum(server.cpu_times()[:2]), sum(person.charts for person in people), time.monotonic()
    await asyncio.sleep(seconds - 0.5)
    after = relay.sent_bytes, sum(server.cpu_times()[:2]), sum(person.charts for person in people), time.monotonic()
    await watching
    front.close()
    refreshes = after[2] - before[2]
    return (after[0] - before[0]) / max(1, refreshes), (after[1] - before[1]) / (after[3] - before[3]), refreshes


def main() -> int:
    """Measure and print; 1 when a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--scenario", default="mixed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "ENGINE_ROOM_DATA": f"{folder}/data",
            "ENGINE_ROOM_COLLECTOR__START_WITH_SERVER": "false",
        }
        settings.load.cache_clear()
        with demo(Path(folder) / "data", options.scenario):
            kept, rebuilt = chart_seconds()
            count = len(charts.panels_of(tuple(picture.known_engines().values()), (("d0", ""), ("d1", ""))))
            print(f"charts per refresh: {count}")
            print(f"kept specification: {kept * 1000:.1f} ms a refresh, {kept * 1000 / count:.2f} ms a chart")
            print(f"authored each time: {rebuilt * 1000:.1f} ms a refresh, {rebuilt * 1000 / count:.2f} ms a chart")
            print(f"ratio: {rebuilt / kept:.1f}")
            exceeded = False
            for viewers in sorted({1, options.viewers}):
                port = free_port()
                server = subprocess.Popen(
                    [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)],
                    cwd=ROOT,
                    stdout=subprocess.DEVNULL,
                )
                try:
                    until(partial(_up, port), 60, "the server")
                    process = psutil.Process(server.pid)
                    size, cpu, refreshes = asyncio.run(watched(port, viewers, options.seconds, process))
                    resident = process.memory_info().rss
                finally:
                    server.terminate()
                    server.wait(20)
                expected = viewers * options.seconds / 2
                print(
                    f"{viewers} viewers: {size / 1000:.1f} kB on the wire a refresh and viewer, {cpu:.0%} of a core, "
                    f"{resident / 1e6:.0f} MB resident, "
                    f"{refreshes} of about {expected:.0f} refreshes arrived"
                )
                exceeded = exceeded or size > BUDGET_BYTES
    return int(exceeded)


def _up(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as answer:
        return bool(answer.status == 200)
    return False


if __name__ == "__main__":
    sys.exit(main())
