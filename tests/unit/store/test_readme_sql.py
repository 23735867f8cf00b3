"""
The SQL of the README, run as it stands there with plain DuckDB on a snapshot of a filled store.

Expected values are worked out by hand from the rows below: counters that rise steadily, two histograms, one GPU.
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from settings import Settings
from store import rollup, snapshot
from store.writer import Writer
from tests.support.rows import HOST, at, device, device_sample, engine, epoch, histogram, sample

README = Path(__file__).resolve().parents[3] / "README.md"
OTHER = "vllm-8001"
HOUR, DAY = 3600, 86_400


@pytest.fixture(params=["samples only", "rolled up in part", "rolled up"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """
    T0 is noon of 30 November. From then to 02:00, every minute: engine one makes 4 tokens a second and computes 12
    prompt tokens a second, engine two makes 1; both are busy until 18:00 and idle afterwards. The GPU draws 300 W.
    """
    settings = Settings(data=tmp_path / "data", host=HOST)
    writer = Writer(settings.store_path, settings.store)
    writer.put([engine(label="one"), engine(OTHER, "two"), epoch(), epoch("two@1", OTHER), device()])
    for second in range(0, 14 * HOUR + 1, 60):
        busy = min(second, 6 * HOUR)
        running = 1 if second <= 6 * HOUR else 0
        writer.put(
            [
                sample(
                    second, generation_tokens_total=4 * busy, prompt_tokens_total=12 * busy, requests_running=running
                ),
                sample(second, "two@1", OTHER, generation_tokens_total=busy, requests_running=running),
                device_sample(second, energy_joules_total=300.0 * second, power_watts=300.0),
            ]
        )
    # 12:00 to 13:00: one 90 requests within 0.1 s and 10 within 0.5 s; two 20 within 0.5 s, 5 above. 13:00 to 14:00:
    # one 100 more within 0.1 s.
    for second, one, two in (
        (0, (0, 0, 0), (0, 0, 0)),
        (1800, (90, 100, 100), (0, 20, 25)),
        (5400, (190, 200, 200), (0, 20, 25)),
    ):
        bounds = (0.1, 0.5, math.inf)
        writer.put(histogram(second, dict(zip(bounds, one, strict=True)), sum_seconds=one[2] / 10))
        writer.put(
            histogram(second, dict(zip(bounds, two, strict=True)), two[2] / 5, epoch_id="two@1", engine_id=OTHER)
        )
    writer.flush()
    until = {"samples only": None, "rolled up in part": at(7.5 * HOUR), "rolled up": at(15 * HOUR)}[request.param]
    if until is not None:
        cursor = writer.cursor()
        while rollup.roll_minutes(cursor, until):
            pass
        while rollup.roll_hours(cursor):
            pass
        cursor.close()
    snapshot.write(snapshot.live(writer), tmp_path / "copy.duckdb")
    writer.close()
    with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as plain:
        plain.execute("SET TimeZone = 'America/New_York'")  # a person's own; days are UTC days all the same
        yield plain


def _answer(copy: duckdb.DuckDBPyConnection, number: int) -> list[tuple[Any, ...]]:
    found = re.findall(r"```sql\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == 3
    return copy.execute(found[number]).fetchall()


def test_tokens_by_day_and_engine(copy: duckdb.DuckDBPyConnection) -> None:
    # Six busy hours on the first day: 21,600 s at 4 and at 1 token a second. The pair that ends at 18:01 spans 60 idle
    # seconds after a busy sample, so 21,660 s count as working. The second day has two idle hours.
    first = date(2026, 11, 30)
    assert _answer(copy, 0) == [
        (first, "one", 86_400.0, 259_200.0, pytest.approx(86_400 / 21_660)),
        (first, "two", 21_600.0, None, pytest.approx(21_600 / 21_660)),
        (date(2026, 12, 1), "one", 0.0, 0.0, None),
        (date(2026, 12, 1), "two", 0.0, None, None),
    ]


def test_p95_of_ttft_by_hour(copy: duckdb.DuckDBPyConnection) -> None:
    # Noon: 125 requests, 90 within 0.1 s and 120 within 0.5 s; 95 % are 118.75, reached at 0.5 s. At one o'clock all
    # 100 lie within 0.1 s.
    noon = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert _answer(copy, 1) == [(noon, 125, 0.1, 0.5), (noon + timedelta(hours=1), 100, None, 0.1)]


def test_energy_by_output_token_and_day(copy: duckdb.DuckDBPyConnection) -> None:
    # 300 W over the 12 hours to midnight and the 2 after it; a pair belongs to the day of its later sample.
    first, second = _answer(copy, 2)
    before_midnight = 300.0 * (12 * HOUR - 60)
    assert first == (date(2026, 11, 30), before_midnight, 108_000.0, pytest.approx(before_midnight / 108_000))
    assert second == (date(2026, 12, 1), 300.0 * 14 * HOUR - before_midnight, 0.0, None)


def test_every_view_and_column_says_what_it_holds(copy: duckdb.DuckDBPyConnection) -> None:
    silent = copy.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL "
        "AND table_name IN ('engine_hours', 'latency_hours', 'device_hours')"
    ).fetchall()
    assert silent == []
    views = copy.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall()
    assert {name for name, comment in views if comment} == {name for name, _ in views}
