"""
The numbers of a chart, its CSV over HTTP and a person's own SQL on a snapshot agree to the last digit.

The chart is what the client answers to a page; the SQL is run by plain DuckDB, and written here anew. Rates and
counters are chosen so that sums are not exact in binary.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import api
from settings import Settings
from store import address, snapshot
from store.client import StoreClient
from store.maintenance import Maintenance
from store.server import serve
from store.writer import Writer
from tests.support import dashboard
from tests.support.rows import HOST, T0, at, device, device_sample, engine, epoch, histogram, sample

OTHER = "llama.cpp-8080"


@dataclass
class Sides:
    """One store, asked in three ways."""

    client: StoreClient
    http: TestClient
    plain: duckdb.DuckDBPyConnection

    def chart(self, name: str, start: datetime, end: datetime, points: int) -> list[dict[str, Any]]:
        return self.client.query(name, {"start": start, "end": end, "points": points}).to_pylist()

    def csv(self, name: str, start: datetime, end: datetime, points: int) -> list[dict[str, str]]:
        span = {"from": start.isoformat(), "to": end.isoformat(), "points": str(points)}
        answer = self.http.get(f"/export/{name}.csv", params=span)
        assert answer.status_code == 200, answer.text
        return list(csv.DictReader(io.StringIO(answer.text)))

    def sql(self, text: str, **parameters: object) -> list[tuple[Any, ...]]:
        return self.plain.execute(text, parameters).fetchall()


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("same")
    settings = Settings(data=folder / "data", host=HOST)
    with ExitStack() as stack:
        writer = Writer(settings.store_path, settings.store)
        stack.callback(writer.close)
        writer.put([engine(label="one"), engine(OTHER, "two"), epoch(), epoch("two@1", OTHER), device()])
        for second in range(0, 4 * 3600, 4):
            tokens = math.sqrt(2) * second + math.sin(second)
            running = second % 11
            writer.put(
                [
                    sample(
                        second, generation_tokens_total=tokens, requests_running=running, kv_used_fraction=running / 13
                    )
                ]
            )
            writer.put([sample(second + 0.3, "two@1", OTHER, generation_tokens_total=tokens / 3, requests_running=1)])
            writer.put(
                [device_sample(second, memory_used_bytes=2**40 + second, power_watts=300 + 100 * math.sin(second))]
            )
        for second in range(0, 4 * 3600, 20):
            counts = {0.1: math.floor(second / 3), 0.5: math.floor(second / 2), math.inf: second}
            writer.put(histogram(second, counts, sum_seconds=second / 7))
        writer.flush()
        Maintenance(writer, settings.store).once(T0 + timedelta(hours=5))
        server = serve(writer, settings, dict)
        stack.callback(server.stop)
        address.write(settings.run_folder, server.address(started=datetime.now(UTC), started_by="test"))
        stack.enter_context(dashboard.pointed_at(settings.data))
        client = StoreClient(settings)
        stack.callback(client.close)
        snapshot.write(client.snapshot(), folder / "copy.duckdb")
        plain = stack.enter_context(duckdb.connect(str(folder / "copy.duckdb"), read_only=True))
        http = stack.enter_context(TestClient(Starlette(routes=api.routes())))
        yield Sides(client, http, plain)


def _read(text: str, like: Any) -> Any:
    """A cell of a CSV as the type of the value that it stands for."""
    if like is None:
        return text or None
    if isinstance(like, datetime):
        return datetime.fromisoformat(text)
    return type(like)(text)


CHARTS = ("engine_series", "device_series", "device_memory_series", "host_series", "latency_series")
ZOOMS = {
    "samples": (at(600), at(1200), 400),
    "buckets of samples": (at(600), at(4200), 300),
    "minutes": (at(0), at(4 * 3600), 100),
}


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("zoom", ZOOMS)
def test_a_chart_and_its_csv_are_the_same(sides: Sides, name: str, zoom: str) -> None:
    chart, rows = sides.chart(name, *ZOOMS[zoom]), sides.csv(name, *ZOOMS[zoom])
    assert len(chart) == len(rows)
    for drawn, told in zip(chart, rows, strict=True):
        assert {key: _read(told[key], value) for key, value in drawn.items()} == drawn


def test_samples_of_a_chart_are_those_of_a_persons_sql(sides: Sides) -> None:
    start, end, points = ZOOMS["samples"]
    drawn = [
        (
            row["engine_id"],
            row["ts"],
            row["generation_tokens_per_second"],
            row["requests_running"],
            row["kv_used_fraction"],
        )
        for row in sides.chart("engine_series", start, end, points)
    ]
    assert drawn == sides.sql(
        "SELECT engine_id, ts, per_second, requests_running, kv_used_fraction "
        "FROM engine_rate JOIN engine_sample USING (engine_id, ts) "
        "WHERE quantity = 'generation_tokens' AND ts BETWEEN $start AND $end ORDER BY engine_id, ts",
        start=start,
        end=end,
    )


def test_minutes_of_a_chart_are_those_of_a_persons_sql(sides: Sides) -> None:
    start, end, points = ZOOMS["minutes"]
    # 240 minutes on at most 100 points: 2.4 minutes, and the next width that people count by is five.
    engines = [
        (row["engine_id"], row["ts"], row["generation_tokens_per_second"], row["generation_tokens_per_second_max"],
         row["requests_running"], row["kv_used_fraction_max"])
        for row in sides.chart("engine_series", start, end, points)
    ]  # fmt: skip
    assert len(engines) == 2 * 48
    assert engines == sides.sql(
        "SELECT engine_id, time_bucket(INTERVAL 5 MINUTE, ts) AS bucket, "
        "sum(generation_tokens_increase) / sum(generation_tokens_window_seconds), "
        "max(generation_tokens_per_second_max), sum(requests_running_sum) / sum(requests_running_count), "
        "max(kv_used_fraction_max) FROM engine_minute GROUP BY ALL ORDER BY ALL"
    )
    devices = [
        (row["ts"], row["memory_used_bytes"], row["power_watts"])
        for row in sides.chart("device_series", *ZOOMS["minutes"])
    ]
    assert devices == sides.sql(
        "SELECT time_bucket(INTERVAL 5 MINUTE, ts) AS bucket, "
        "sum(memory_used_bytes_sum) / sum(memory_used_bytes_count), sum(power_watts_sum) / sum(power_watts_count) "
        "FROM device_minute GROUP BY ALL ORDER BY ALL"
    )


@pytest.mark.parametrize(
    "table",
    [
        "engine_sample",
        "engine_minute",
        "device_hour",
        "latency_minute",
        "engine_hours",
        "latency_hours",
        "device_hours",
    ],
)
def test_a_csv_reads_back_as_the_table(sides: Sides, tmp_path: Path, table: str) -> None:
    (tmp_path / "told.csv").write_bytes(sides.http.get(f"/export/{table}.csv").content)
    typed = ", ".join(
        f'"{name}"::{kind} AS "{name}"' for name, kind, *_ in sides.plain.sql(f"DESCRIBE {table}").fetchall()
    )
    told = f"(SELECT {typed} FROM read_csv('{tmp_path / 'told.csv'}', all_varchar = true))"
    assert sides.plain.sql(f"SELECT count(*) > 0 FROM {told}").fetchall() == [(True,)]
    assert sides.plain.sql(f"FROM {told} EXCEPT ALL FROM {table}").fetchall() == []
    assert sides.plain.sql(f"FROM {table} EXCEPT ALL FROM {told}").fetchall() == []
