"""
Rollups by the minute and by the hour: samples become the rows of `schema/0006_rollups.sql`.

Each step is one transaction that also moves `rollup_state` on, so that a crash leaves it done or not done. A
minute that gets samples after it was rolled up (the clock was set back, or the disk was full) is noted in
`rollup_late` in the transaction of those samples, and rolled up again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import duckdb

FAMILIES = ("engine", "latency", "device", "host", "process_memory")
SAMPLES = ("engine_sample", "latency_bucket", "device_sample", "host_sample", "process_memory")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SETTLE = timedelta(seconds=15)  # an engine may take 10 s to answer, and the writer a second to commit
# How far back the sample before a range is looked for: as far as a long busy stretch, or a clock that was set, reaches.
LOOKBACK = timedelta(hours=26)
DECIMALS = 9  # that rollups by the minute are rounded to; what samples have fewer of then compresses as such
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MERGE = {"_count": "sum", "_sum": "sum", "_increase": "sum", "_seconds": "sum", "_min": "min", "_max": "max"}
_KEYS = ("host", "engine_id", "epoch_id", "device_id", "quantity", "bounds")
_EXTREMES = {
    "first_ts": "min(first_ts)",
    "last_ts": "max(last_ts)",
    "samples": "sum(samples)",
    "ready_samples": "sum(ready_samples)",
    "generation_live": "bool_or(generation_live)",
    "process_lists_aligned": "bool_or(process_lists_aligned)",
}

# The sample that each counter or histogram in a range begins with: the last one before it by the monotonic clock.
# Where a live counter runs beside the settled one, it has to be an idle one (see generation_increase_between).
_COUNTERS = """
    SELECT engine_id, epoch_id, '' AS quantity, ts, monotonic_seconds,
        generation_live_tokens_total IS NULL OR generation_tokens_total IS NULL OR coalesce(requests_running = 0, false)
            AS begins
    FROM engine_sample
    WHERE ts >= $since AND coalesce(generation_tokens_total, generation_live_tokens_total, prompt_tokens_total,
        prompt_with_cached_tokens_total, requests_finished_total) IS NOT NULL"""
_HISTOGRAMS = """
    SELECT engine_id, epoch_id, quantity, ts, monotonic_seconds, true AS begins FROM latency_bucket
    WHERE ts >= $since AND isinf(le)"""
_BASE = """
WITH counted AS ({counted}
),
first AS (
    SELECT engine_id, epoch_id, quantity, min(monotonic_seconds) AS monotonic_seconds FROM counted
    WHERE ts >= $start AND ts < $end GROUP BY engine_id, epoch_id, quantity
),
base AS (
    SELECT f.engine_id, f.epoch_id,
        arg_max(c.ts, c.monotonic_seconds) FILTER (c.begins) AS ts, arg_max(c.ts, c.monotonic_seconds) AS before_ts
    FROM first AS f LEFT JOIN counted AS c ON c.engine_id = f.engine_id AND c.epoch_id = f.epoch_id
        AND c.quantity = f.quantity AND c.monotonic_seconds < f.monotonic_seconds
    GROUP BY f.engine_id, f.epoch_id, f.quantity
),
life AS (
    SELECT engine_id, epoch_id, min(first_seen) AS first_seen FROM epoch GROUP BY engine_id, epoch_id
)
SELECT min(coalesce(b.ts, CASE WHEN l.first_seen >= $since THEN l.first_seen - INTERVAL 2 MINUTE END, b.before_ts))
FROM base AS b LEFT JOIN life AS l USING (engine_id, epoch_id)
"""
# The same for the energy counter of devices, which is read in the order in which rows were written.
_BASE_OF_ENERGY = """
WITH counted AS (
    SELECT device_id, ts, place FROM device_energy($since, 'infinity'::TIMESTAMPTZ)
),
first AS (
    SELECT device_id, min(place) AS place FROM counted WHERE ts >= $start AND ts < $end GROUP BY device_id
)
SELECT min(ts) FROM (
    SELECT arg_max(c.ts, c.place) AS ts
    FROM first AS f JOIN counted AS c ON c.device_id = f.device_id AND c.place < f.place
    GROUP BY f.device_id
)
"""
_BASES = {
    "engine": _BASE.format(counted=_COUNTERS),
    "latency": _BASE.format(counted=_HISTOGRAMS),
    "device": _BASE_OF_ENERGY,
}

# Counts are added bound by bound; a mean needs the seconds of all that was counted.
_MERGE_LATENCY = """
INSERT INTO latency_hour BY NAME
WITH minute AS (
    SELECT bucket_start(ts, 3600) AS hour_ts, * FROM latency_minute WHERE ts >= $a AND ts < $b
),
counted AS (
    SELECT hour_ts, host, engine_id, epoch_id, quantity, bounds, place, sum(observations)::BIGINT AS observations
    FROM (
        SELECT *, unnest(observations_increase) AS observations,
            generate_subscripts(observations_increase, 1) AS place
        FROM minute
    )
    GROUP BY hour_ts, host, engine_id, epoch_id, quantity, bounds, place
),
listed AS (
    SELECT hour_ts, host, engine_id, epoch_id, quantity, bounds, list(observations ORDER BY place) AS observations
    FROM counted GROUP BY hour_ts, host, engine_id, epoch_id, quantity, bounds
)
SELECT hour_ts AS ts, m.host, m.engine_id, m.epoch_id, min(m.first_ts) AS first_ts, max(m.last_ts) AS last_ts,
    m.quantity, m.bounds, any_value(l.observations) AS observations_increase,
    CASE WHEN count(*) = count(m.seconds_increase) THEN sum(m.seconds_increase) END AS seconds_increase
FROM minute AS m JOIN listed AS l USING (hour_ts, host, engine_id, epoch_id, quantity, bounds)
GROUP BY hour_ts, m.host, m.engine_id, m.epoch_id, m.quantity, m.bounds
ORDER BY ts, m.engine_id, m.epoch_id, m.quantity
"""


@dataclass(frozen=True, slots=True)
class State:
    """How far rollups and retention are, see `rollup_state`. None: nothing was rolled up, nothing deleted."""

    minute_until: datetime | None
    hour_until: datetime | None
    raw_from: datetime | None
    histogram_from: datetime | None
    minute_from: datetime | None


def state(connection: duckdb.DuckDBPyConnection) -> State:
    """The state as it is committed."""
    row = connection.execute(
        "SELECT nullif(minute_until, '-infinity'), nullif(hour_until, '-infinity'), "
        "raw_from, histogram_from, minute_from FROM rollup_state"
    ).fetchall()[0]
    return State(*(value.astimezone(UTC) if value is not None else None for value in row))


def floor(moment: datetime, width: timedelta) -> datetime:
    """The beginning of the bucket that a time lies in, aligned to the clock."""
    return moment - (moment - BEGINNING) % width


def roll_minutes(connection: duckdb.DuckDBPyConnection, until: datetime, longest: timedelta = HOUR) -> bool:
    """
    Roll up the next minutes before `until`, at most `longest` at once. False when there are none left.

    The caller has begun a transaction. Where nothing was sampled for a while, the step reaches over it.
    """
    until = floor(until, MINUTE)
    reached = state(connection).minute_until
    if reached is not None and reached >= until:
        return False
    begin = _oldest_sample(connection, reached or BEGINNING, until)
    if begin is not None:
        begin = max(floor(begin, MINUTE), reached or BEGINNING)
        until = min(until, floor(begin, longest) + longest)
        _roll(connection, begin, until)
    connection.execute("UPDATE rollup_state SET minute_until = $until", {"until": until})
    return True


def roll_hours(connection: duckdb.DuckDBPyConnection) -> bool:
    """Make hours from the minutes that are complete. The caller has begun a transaction."""
    known = state(connection)
    if known.minute_until is None:
        return False
    until = floor(known.minute_until, HOUR)
    begin = known.hour_until or BEGINNING
    if begin >= until:
        return False
    for family in FAMILIES:
        _merge(connection, family, begin, until)
    connection.execute("UPDATE rollup_state SET hour_until = $until", {"until": until})
    return True


def roll_late(connection: duckdb.DuckDBPyConnection) -> int:
    """
    Roll up again what got samples late; returns how many minutes were noted. The caller has begun a transaction.

    Where the samples of the time have been deleted already, the late ones are added to what there is, and deleted.
    """
    late = [row[0].astimezone(UTC) for row in connection.execute("SELECT DISTINCT ts FROM rollup_late").fetchall()]
    if not late:
        return 0
    connection.execute("DELETE FROM rollup_late")
    known = state(connection)
    hours = set()
    for family, table in zip(FAMILIES, SAMPLES, strict=True):
        gone = (known.histogram_from if family == "latency" else known.raw_from) or BEGINNING
        for begin, end in _ranges(late):
            span = {"a": begin, "b": end}
            if begin < gone:
                _roll(connection, begin, end, (family,))
                # S608: the tables are the constants above, in this and all statements of this module.
                connection.execute(f"DELETE FROM {table} WHERE ts >= $a AND ts < $b", span)  # noqa: S608
            elif known.minute_until is not None and begin < known.minute_until:  # else its turn is still to come
                connection.execute(f"DELETE FROM {family}_minute WHERE ts >= $a AND ts < $b", span)  # noqa: S608
                _roll(connection, begin, end, (family,))
            hours |= _hours(begin, end)
    _again(connection, sorted(hour for hour in hours if known.hour_until and hour < known.hour_until), known)
    return len(late)


def note_late(
    connection: duckdb.DuckDBPyConnection, times: Sequence[datetime], of_devices: Sequence[tuple[datetime, str]] = ()
) -> None:
    """
    Note that samples come for times that were rolled up already, in the transaction that holds them.

    `of_devices` are those of them that are rows of `device_sample`, whose order matters, see `store.compaction`.
    """
    for minute in sorted({floor(moment, MINUTE) for moment in times}):
        connection.execute("INSERT INTO rollup_late VALUES ($ts)", {"ts": minute})
    for moment, device_id in of_devices:
        connection.execute("INSERT INTO device_sample_late VALUES ($ts, $id)", {"ts": moment, "id": device_id})


def _again(connection: duckdb.DuckDBPyConnection, hours: Sequence[datetime], known: State) -> None:
    """Make hours anew from their minutes; where those were deleted, add the new ones, which are then deleted."""
    gone = known.minute_from or BEGINNING
    for hour in hours:
        for family in FAMILIES:
            span = {"a": hour, "b": hour + HOUR}
            if hour >= gone:
                connection.execute(f"DELETE FROM {family}_hour WHERE ts >= $a AND ts < $b", span)  # noqa: S608
            _merge(connection, family, hour, hour + HOUR)
            if hour < gone:
                connection.execute(f"DELETE FROM {family}_minute WHERE ts >= $a AND ts < $b", span)  # noqa: S608


def _oldest_sample(connection: duckdb.DuckDBPyConnection, start: datetime, end: datetime) -> datetime | None:
    parts = " UNION ALL ".join(f"SELECT min(ts) AS ts FROM {table} WHERE ts >= $a AND ts < $b" for table in SAMPLES)  # noqa: S608
    oldest = connection.execute(f"SELECT min(ts) FROM ({parts})", {"a": start, "b": end}).fetchall()[0][0]  # noqa: S608
    return oldest.astimezone(UTC) if isinstance(oldest, datetime) else None


def _since(connection: duckdb.DuckDBPyConnection, family: str, start: datetime, end: datetime) -> datetime:
    """From when samples have to be read so that every first pair of the range is complete."""
    base = _BASES.get(family)
    if base is None:
        return start
    found = connection.execute(base, {"since": start - LOOKBACK, "start": start, "end": end}).fetchall()[0][0]
    return min(start, found.astimezone(UTC)) if isinstance(found, datetime) else start


def _roll(
    connection: duckdb.DuckDBPyConnection, begin: datetime, end: datetime, families: Sequence[str] = FAMILIES
) -> None:
    for family in families:
        # Sums and quotients of binary fractions have more digits than what they are made of, which fill the disk.
        rounded = ", ".join(
            f"round({name}, {DECIMALS}) AS {name}" for name in _columns(connection, family, of_type="DOUBLE")
        )
        connection.execute(
            f"INSERT INTO {family}_minute BY NAME SELECT * REPLACE ({rounded}) "  # noqa: S608
            f"FROM {family}_rollup($begin, $end, 60, $since, 'infinity'::TIMESTAMPTZ) ORDER BY ts, "
            f"{', '.join(name for name in _columns(connection, family) if name in _KEYS)}",
            {"begin": begin, "end": end, "since": _since(connection, family, begin, end)},
        )


def _columns(connection: duckdb.DuckDBPyConnection, family: str, of_type: str | None = None) -> tuple[str, ...]:
    found = connection.execute(
        "SELECT column_name FROM duckdb_columns() WHERE table_name = $table AND schema_name = 'main' "
        "AND ($type IS NULL OR data_type = $type) ORDER BY column_index",
        {"table": f"{family}_minute", "type": of_type},
    )
    return tuple(name for (name,) in found.fetchall())


def _merge(connection: duckdb.DuckDBPyConnection, family: str, begin: datetime, end: datetime) -> None:
    """Hours from minutes: columns are merged as their names say."""
    if family == "latency":
        connection.execute(_MERGE_LATENCY, {"a": begin, "b": end})
        return
    columns = _columns(connection, family)
    keys = [name for name in columns if name in _KEYS]
    merged = []
    for name in columns[1:]:
        how = _EXTREMES.get(name)
        if how is None and name not in keys:
            ending = next((end for end in _MERGE if name.endswith(end)), None)
            how = f"{_MERGE[ending]}({name})" if ending else f"arg_max({name}, last_ts)"
        merged.append(f"{how} AS {name}" if how else name)
    listed = ", ".join(keys)
    connection.execute(
        f"INSERT INTO {family}_hour BY NAME SELECT bucket_start(ts, 3600) AS ts, {', '.join(merged)} "  # noqa: S608
        f"FROM {family}_minute WHERE ts >= $a AND ts < $b "
        f"GROUP BY bucket_start(ts, 3600), {listed} ORDER BY ts, {listed}",
        {"a": begin, "b": end},
    )


def _ranges(minutes: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """Minutes as ranges of at most an hour, joined where they touch."""
    ranges: list[tuple[datetime, datetime]] = []
    for minute in sorted(minutes):
        if ranges and minute == ranges[-1][1] and floor(minute, HOUR) != minute:
            ranges[-1] = (ranges[-1][0], minute + MINUTE)
        else:
            ranges.append((minute, minute + MINUTE))
    return ranges


def _hours(begin: datetime, end: datetime) -> set[datetime]:
    hour, found = floor(begin, HOUR), set()
    while hour < end:
        found.add(hour)
        hour += HOUR
    return found
