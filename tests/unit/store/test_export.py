"""CSV exports: every value reads back as itself, whoever exports and whether or not a collector runs."""

import csv
import io
import math
import random
import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from settings import Settings
from store import address
from store.export import EXPORTABLE
from store.local import LocalStore
from store.model import ROW_TYPES, EngineSample, Event, LatencyBucket
from store.protocol import UnknownQueryError
from store.server import serve
from store.writer import Writer
from tests.support.rows import ENGINE, HOST, at, device_sample, engine, epoch, histogram, host_sample, sample

ROOT = Path(__file__).resolve().parents[3]


def _export(writer: Writer, settings: Settings, table: str, **given: object) -> str:
    parameters: dict[str, object] = {"start": None, "end": None, "engine": None} | given
    return b"".join(LocalStore(writer, settings.store).export_csv(table, **parameters)).decode()  # type: ignore[arg-type]


def _command(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "store", "export", *arguments],
        cwd=ROOT,
        env={"ENGINE_ROOM_DATA": str(settings.data), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_row_type_can_be_exported_with_its_fields_as_header(writer: Writer, settings: Settings) -> None:
    for row in ROW_TYPES:
        header = _export(writer, settings, row.table)
        assert header == ",".join(field.name for field in fields(row)) + "\n"
    assert {row.table for row in ROW_TYPES} | {"engine_rate"} <= set(EXPORTABLE)


def test_numbers_read_back_to_the_last_digit(writer: Writer, settings: Settings) -> None:
    chance = random.Random(20261130)
    values = [0.1 + 0.2, 1 / 3, 5e-324, 1.7976931348623157e308, 123456789.12345679, 1e16, 2.0**53 + 2, 0.0, 1e-7]
    values += [chance.uniform(0, 10.0 ** chance.randint(-12, 15)) for _ in range(2000)]
    times = [at(0) + timedelta(microseconds=chance.randrange(10**9)) for _ in values]
    writer.put(
        [
            EngineSample(ts, value, HOST, ENGINE, "e", "ready", None, generation_tokens_total=value)
            for ts, value in zip(times, values, strict=True)
        ]
    )
    writer.flush()
    rows = list(csv.DictReader(io.StringIO(_export(writer, settings, "engine_sample"))))
    assert [float(row["generation_tokens_total"]) for row in rows] == values
    assert [float(row["monotonic_seconds"]) for row in rows] == values
    assert [datetime.fromisoformat(row["ts"]) for row in rows] == times
    assert {row["prompt_tokens_total"] for row in rows} == {""}


def test_whole_bytes_infinity_and_text_read_back(writer: Writer, settings: Settings) -> None:
    texts = ['=HYPERLINK("http://x")', "+1", "-1", "@a", 'a "quoted", comma', "two\nlines", "Ünïcödé 模型", ""]
    writer.put([Event(at(i), HOST, None, None, None, "kind", text, None) for i, text in enumerate(texts)])
    writer.put(histogram(0, {0.5: 1, math.inf: 2}))
    writer.put([device_sample(0, memory_used_bytes=2**53 + 1)])
    writer.flush()
    events = list(csv.DictReader(io.StringIO(_export(writer, settings, "event"))))
    assert [row["text"] for row in events] == texts
    assert [row["ts"] for row in events][:2] == ["2026-11-30T12:00:00.000000Z", "2026-11-30T12:00:01.000000Z"]
    # NULL is an empty cell without quotes, empty text is one with quotes.
    assert _export(writer, settings, "event").splitlines()[-1].endswith(',,,,"kind","",')
    buckets = list(csv.DictReader(io.StringIO(_export(writer, settings, LatencyBucket.table))))
    assert [float(row["le"]) for row in buckets] == [0.5, math.inf]
    devices = list(csv.DictReader(io.StringIO(_export(writer, settings, "device_sample"))))
    assert int(devices[0]["memory_used_bytes"]) == 2**53 + 1


def test_filters_by_time_and_engine(writer: Writer, settings: Settings) -> None:
    writer.put([engine(label="my model"), engine("llama.cpp-8080"), epoch()])
    writer.put([sample(second, generation_tokens_total=second) for second in range(10)])
    writer.put([sample(5.5, "l", "llama.cpp-8080")])
    writer.flush()

    def seconds(**given: object) -> list[str]:
        lines = _export(writer, settings, "engine_sample", **given).splitlines()[1:]
        return [line.split(",")[0][18:-5] for line in lines]

    assert seconds(start=at(3), end=at(6), engine=ENGINE) == ["03.000", "04.000", "05.000", "06.000"]
    assert seconds(start=at(3), end=at(6), engine="my model") == seconds(start=at(3), end=at(6), engine=ENGINE)
    assert seconds(engine="llama.cpp-8080") == ["05.500"]
    assert seconds(start=at(6), end=at(3)) == []
    rates = list(csv.DictReader(io.StringIO(_export(writer, settings, "engine_rate", start=at(8), engine=ENGINE))))
    assert {row["per_second"] for row in rates} == {"1"}


@pytest.mark.parametrize(
    ("table", "engine_name", "told"),
    [
        ("schema_version", None, "schema_version"),
        ("event; DROP TABLE event", None, "DROP"),
        ("engine_sample", "nobody", "nobody"),
        ("host_sample", ENGINE, "not about engines"),
    ],
)
def test_what_cannot_be_exported_is_named_at_once(
    writer: Writer, settings: Settings, table: str, engine_name: str | None, told: str
) -> None:
    with pytest.raises(UnknownQueryError, match=told):
        LocalStore(writer, settings.store).export_csv(table, None, None, engine_name)


def test_the_command_gives_the_same_bytes_with_and_without_a_collector(settings: Settings, tmp_path: Path) -> None:
    writer = Writer(settings.store_path, settings.store)
    writer.put([engine(), epoch(), *(host_sample(second, cpu_fraction=second / 7) for second in range(50))])
    writer.flush()
    expected = _export(writer, settings, "host_sample")
    server = serve(writer, settings, dict)
    address.write(settings.run_folder, server.address(started=datetime.now(UTC), started_by="test"))
    span = ("--from", "2026-11-30T12:00:10Z", "--to", "2026-11-30T12:00:19Z")
    running = _command(settings, "host_sample"), _command(settings, "host_sample", *span)
    server.stop()
    writer.close()
    stopped = _command(settings, "host_sample"), _command(settings, "host_sample", *span)
    assert [done.returncode for done in (*running, *stopped)] == [0, 0, 0, 0], running[0].stderr
    assert running[0].stdout == stopped[0].stdout == expected
    assert (
        running[1].stdout
        == stopped[1].stdout
        == "".join(line + "\n" for line in [expected.splitlines()[0], *expected.splitlines()[11:21]])
    )
    target = tmp_path / "out.csv"
    done = _command(settings, "host_sample", "-o", str(target))
    assert (done.returncode, done.stdout) == (0, "")
    assert target.read_text() == expected


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("no_such_table",), "no_such_table"),
        (("event", "--from", "yesterday"), "yesterday"),
        (("event", "--from", "2026-11-30T12:00:00"), "time zone"),
        (("event", "--engine", "nobody"), "nobody"),
        (("event", "-o", "/dev/null/out.csv"), "out.csv"),
    ],
)
def test_the_command_says_what_was_wrong(settings: Settings, arguments: tuple[str, ...], told: str) -> None:
    Writer(settings.store_path, settings.store).close()
    done = _command(settings, *arguments)
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_command_without_a_store_says_what_to_start(settings: Settings) -> None:
    done = _command(settings, "event")
    assert done.returncode == 1
    assert "start a collector" in done.stderr


def test_an_export_reads_a_large_table_in_batches(writer: Writer, settings: Settings) -> None:
    cursor = writer.cursor()
    cursor.execute(
        "INSERT INTO host_sample SELECT TIMESTAMPTZ '2026-01-01 00:00:00Z' + to_seconds(i), 'h', i / 7, 8, 0, 1, 1, 1, "
        "0, 0 FROM range(150_000) AS r(i)"
    ).fetchall()
    cursor.close()
    chunks = list(LocalStore(writer, settings.store).export_csv("host_sample", None, None, None))
    assert max(len(chunk) for chunk in chunks) < 3_000_000
    assert b"".join(chunks).count(b"\n") == 150_001
