"""
What the store promises to those who write to it and to those who read from it.

Readers name a query and its parameters; they never send SQL. The same names answer over the
collector's socket (`store.client.StoreClient`) and in one process (`store.local.LocalStore`,
for tests). Every answer is an Arrow table with the columns listed here, in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from store.model import Row

READ_TURN_WAIT_SECONDS = 2.0  # how long a read waits for its turn before the store says that it is busy

NOTES_HEADER = "engine-room-notes"  # JSON list of `Export.notes`, in answers over HTTP

Parameter = str | int | float | bool | datetime | None | Sequence[str]
Command = Callable[[dict[str, Any]], dict[str, Any]]  # JSON object in, JSON object out; raises `StoreError`


class StoreError(Exception):
    """A store could not do what was asked; the message says what to do about it."""


class StoreUnavailableError(StoreError):
    """No collector answers: it is not running, or it is starting."""


class StoreBusyError(StoreError):
    """The collector answers, but this read did not get a turn or ran out of time."""


class NewerStoreError(StoreError):
    """The file was written by a newer Engine Room; it was left untouched."""


class StoreLockedError(StoreError):
    """Another process holds the file."""


class UnknownQueryError(StoreError):
    """No query, command or table of this name, or a parameter that it does not take."""


class RefusedError(StoreError):
    """A command that can't be done now, may not be done, or names something that is not there; nothing changed."""


class Sink(Protocol):
    """Where collectors put rows. `put` never blocks for long and never raises for a full disk."""

    def put(self, rows: Sequence[Row]) -> None:
        """Queue rows for the next transaction."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """
    Which rows to write as CSV: those whose `ts` (`first_seen` in tables of facts) lies in [start, end].

    `engine` is an engine_id or a label, `run` the run_id of a load test; `points` is for series of charts, which
    are the rows of the named query. What is None is not narrowed down.
    """

    table: str
    start: datetime | None = None
    end: datetime | None = None
    engine: str | None = None
    run: str | None = None
    points: int | None = None


class Export(Iterator[bytes]):
    """
    A CSV that has begun: UTF-8, header with units in the names, ISO 8601 UTC, full precision.

    `notes` says, one sentence each, which archived rows are missing from it.
    """

    def __init__(self, notes: tuple[str, ...], chunks: Iterator[bytes]) -> None:
        self.notes = notes
        self._chunks = chunks

    def __next__(self) -> bytes:
        return next(self._chunks)


class Store(Protocol):
    """Named reads."""

    def query(self, name: str, parameters: Mapping[str, Parameter] | None = None) -> pa.Table:
        """Answer one named query. Raises `StoreError` in one of its kinds."""

    def export_csv(
        self,
        table: str,
        start: datetime | None = None,
        end: datetime | None = None,
        engine: str | None = None,
        *,
        run: str | None = None,
        points: int | None = None,
    ) -> Export:
        """Stream a table, view or series as CSV, see `ExportRequest` and `store.export`."""


# ---------------------------------------------------------------------------------------------
# The named queries. `start`/`end` are aware datetimes; `points` is the most rows per series.
# Series queries return raw samples where there are few enough, else buckets (mean, _min, _max),
# ordered by series and ts, with one row of NULLs where sampling had a gap, so that charts break
# their lines there. `label` is unique among engines. Series tell in the metadata of their schema how fine
# they are: `bucket_seconds` (0: raw samples) and `gap_seconds`. A bucket's ts is its beginning. `level` says what they
# were made of: 'raw' samples, or rollups by the 'minute' or 'hour', which count whole where the range begins or ends
# inside one. Long ranges come from rollups, and so does what is older than samples are kept for.
# With the archive, what is older is drawn from its samples again; where a file of it cannot be read, rollups stand in
# and `notes` in the metadata says which.
# Rates and their rules: store/schema/0002_rates.sql. A person's own SQL finds them in the view `engine_rate`.
#
# overview(at=None, window_seconds=60, rate_window_seconds=10)   one row an engine; one that stopped more than ten
#   minutes ago without ever having told what it is (a start that failed) is left to the events
#   host engine_id kind label url found_by first_seen  epoch_id epoch_started epoch_started_is_process_start
#   version model_id model_path quantization max_context_tokens slots arguments facts
#   state detail state_ts state_since(ts at which this state began)
#   generation_tokens_per_second generation_source prompt_tokens_per_second   (over rate_window; NULL: not known)
#   generation_tokens (settled tokens in window_seconds)  requests_running requests_waiting
#   kv_used_fraction kv_capacity_tokens  prefix_cache_hit_fraction(in window)  mean_itl_seconds(in window)
#   device_memory_bytes device_memory_method  host_memory_bytes host_memory_method cpu_cores process_count
# latency(start, end)      engine_id quantity epochs count mean_seconds and for p50 p95 p99:
#                          pNN_seconds pNN_low_seconds pNN_high_seconds (the bucket it lies in; high NULL = infinite)
# latency_buckets(start, end)   the merged histograms behind `latency`: engine_id quantity le cumulative_count
# engine_series(start, end, points=400)
#   ts engine_id label kind state, and mean, _min, _max of: generation_tokens_per_second
#   prompt_tokens_per_second requests_running requests_waiting kv_used_fraction;
#   generation_source (e.g. 'settled' | 'live'), samples
# engine_memory_series(start, end, points=400)   host memory by engine
#   ts engine_id label method memory_bytes memory_bytes_min memory_bytes_max cpu_cores process_count
# device_series(start, end, points=400)
#   ts device_id index name memory_total_bytes power_limit_watts, and mean, _min, _max of:
#   memory_used_bytes utilisation_fraction power_watts temperature_celsius sm_clock_hertz
# device_memory_series(start, end, points=400)   who holds a device's memory; the parts sum to what is used
#   ts device_id part('engine' | 'other processes' | 'driver and unattributed') engine_id label method memory_bytes
#   method of 'driver and unattributed': 'remainder', or 'none' where no process could be seen; where processes hold
#   more than is used (they share memory), a part 'counted twice' below 0 makes up for it
# host_memory_series(start, end, points=400)   who holds the host's memory; the parts sum to what is installed
#   ts host part('engine' | 'other used' | 'available' | 'counted twice', below 0) engine_id label method memory_bytes
#   an engine's part is its resident set (method 'rss'): an upper bound, shared and droppable pages are in it in full
# host_series(start, end, points=400)
#   ts host cpu_count memory_total_bytes swap_total_bytes, and mean, _min, _max of:
#   cpu_fraction memory_used_bytes swap_used_bytes load_1m
# latency_series(start, end, points=400, engine_id=None, quantity=None)   the columns of latency over time; a bucket
#   that was sampled without any observation has count 0 and no quantiles. Observations are merged, never averaged
#   ts engine_id label quantity count mean_seconds, pNN_seconds pNN_low_seconds pNN_high_seconds for p50 p95 p99
# extent()     oldest_ts newest_ts, and from when on each level has rows: raw_oldest_ts minute_oldest_ts hour_oldest_ts
# devices()    device_id vendor index name memory_total_bytes driver_version and the newest device_sample's columns
# sources()    source_id kind state ts duration_seconds lateness_seconds interval_seconds detail found_by
#              last_ok (ts; NULL: not in the last day) samples_10m errors_10m lateness_max_10m_seconds engine_id label
# quantities(engine_id=None)   engine_id quantity offer source reason remedy ts   (newest epoch, newest offer)
# events(start, end, engine_id=None, limit=1000)    ts host engine_id label device_id epoch_id kind text details
# epochs(engine_id=None)       every epoch with engine_id label kind and its columns, newest first
# latest_epochs()              the newest epoch of each engine, and of the engine kind label url found_by
#                              engine_first_seen; `label` as it was written, `first_seen` of the epoch
# memory_scores(engine_id=None, limit=1000)   the newest comparison of each epoch, one row a part, newest first
#   ts host engine_id label epoch_id engine engine_version model model_file part unit predicted_low predicted_high
#   measured measured_method error_fraction reason
# memory_parts(at=None)        what the memory of each engine is made of in its newest life, as far as it is known
#   ts host engine_id label epoch_id part place('device' | 'host' | NULL: not known where) memory_bytes derived source
#   part: 'weights' 'kv_reserved' 'graphs' 'models' as in memory_part; 'held', what the engine's processes hold there;
#   'rest', held less all parts; 'kv_in_use', the share of 'kv_reserved' that running requests hold. memory_bytes NULL:
#   not known, source says why
# startups(engine_id=None)     how long each life took to start, the newest first; NULL: not known, note says why
#   ts host engine_id label epoch_id started ready_seconds first_token_seconds (from the start of the process)
#   resolution_seconds (by which both may be too high) note
# loadtest_runs(limit=200)     the columns of `LoadtestRun` (the row written last of each run), newest run first
# loadtest_stages(run_id) loadtest_requests(run_id, stage_id=None) loadtest_judgements(run_id)
# loadtest_resources(run_id)   the columns of their row types, in the order of the stages
# stage_resources(start, end, engine_id)   what an engine and its devices used, from raw samples: a row with device_id
#   NULL for host memory and CPU, and one a device
#   device_id memory_method memory_mean_bytes memory_peak_bytes cpu_cores_mean utilisation_mean_fraction
#   power_mean_watts energy_joules energy_method('counter' | 'power_integral') others_memory_bytes samples
# stage_others(start, end, engine_id)      what other engines did meanwhile
#   engine_id label samples busy_samples requests_running_max generation_tokens
#   shares('device' | 'host' | 'cpu' | 'unknown')
# stage_host(start, end, engine_id)        how busy the cores of its host were meanwhile, means over time; no row where
#   its processes can't be seen: host cpu_count busy_cores engine_cores(of them) covered_seconds
# reports()    the columns of `Report` (the row written last of each), the one written last first
# report(report_id)            one of them, or none
# window_summary(start, end, engine_id)   one engine in [start, end), in one row; NULL: not known, or not sampled
#   host engine_id label kind epochs epoch_ids samples ready_samples first_ts last_ts covered_seconds generation_tokens
#   generation_tokens_per_second working_seconds working_generation_tokens_per_second (with a request running)
#   generation_source prompt_tokens prompt_tokens_per_second prefix_cache_hit_fraction requests_finished
#   requests_per_second preemptions mean_seconds_per_token (where the engine tells its generation time), mean and max of
#   requests_running requests_waiting kv_used_fraction; kv_capacity_tokens (newest), device_memory_mean_bytes
#   _peak_bytes _method and the same of host_memory, cpu_cores_mean cpu_cores_max, device_ids (that it held memory on)
#   sharing_engine_ids (others on them that were not idle); of these whole devices: utilisation_fraction_mean
#   power_watts_mean power_watts_max energy_joules energy_method('counter' | 'power_integral') joules_per_output_token
# dictionary() what every table, view and series and each of its columns holds: table_name column_name(NULL: the row is
#   about the table itself) type('table' | 'view' | 'series' there) comment, in the order of the columns
# disk()       how much room there is, one row: folder file_bytes wal_bytes archive_on archive_bytes archive_files
#   archive_oldest_day archive_problems(list of sentences, one a file) free_bytes total_bytes growth_bytes_per_day
#   growth_over_seconds(what it was read from; both NULL: not known yet) days_until_full(NULL: not growing, not known)
#   rows_per_second memory_rows(rows that memory holds when the disk is full) memory_seconds(at that rate)
#   state('ok' | 'low' | 'full' | 'unknown') detail
# disk_tables()   table_name rows bytes_estimate(by the blocks it lies in), the largest first
# status()     schema_version file_bytes wal_bytes newest_ts oldest_ts and rows of each table as rows_<table>
# ---------------------------------------------------------------------------------------------
# The commands: what changes something. JSON objects, only over the socket (`StoreClient.command`).
# Whoever offers them to a person asks `access` first.
#
# report_save {report_id?, name, document}   -> {report_id}; an id that is there already is written anew
# report_delete {report_id}                  -> {deleted}; false: it was gone already
# loadtest_delete {run_id}                   -> {deleted}, with all rows of the run; refused while it runs or waits
# loadtest_start {spec, name?}               -> {run_id, state, waits_for(run_id), detail}; endpoints by engine_id or
#   url, which must be discovered or configured. One run at a time an engine: a later one waits
# loadtest_begin {spec, name?, run_id}       -> the same, for a run that the command line carries out; refused where
#   an engine is in use
# loadtest_records {run_id, lines}           -> {..., stop}: NDJSON of `loadtest.records`; `stop`: somebody wants it to
# loadtest_stop {run_id}                     -> the same as loadtest_start; what was measured until then stays valid
# loadtest_import {files: [{name, text}], name?} -> {run_ids, notes}; all of the files, or none
# loadtest_status {run_id?}                  -> {runs: [...]} waiting, running and recently ended ones, in the order in
#   which they were asked for: run_id name state detail waits_for began ended labels mode stage stages label level
#   repeat planned phase done failed in_flight rate_tokens_per_second seconds_left; null: not known yet
# ---------------------------------------------------------------------------------------------
