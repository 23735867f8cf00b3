"""Every named query answers on an empty store, with exactly the columns that `store.protocol` lists."""

from dataclasses import fields
from datetime import timedelta

import pyarrow as pa
import pytest

from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestResource, LoadtestRun, LoadtestStage
from tests.contract.conftest import Filled
from tests.support.rows import T0


def _words(text: str) -> list[str]:
    return text.split()


def _mean_min_max(*names: str) -> list[str]:
    return [name + end for name in names for end in ("", "_min", "_max")]


_ENDS = ("mean", "max")
# Written out from the list in store/protocol.py.
COLUMNS = {
    "overview": _words(
        "host engine_id kind label url found_by first_seen epoch_id epoch_started epoch_started_is_process_start "
        "version model_id model_path quantization max_context_tokens slots arguments facts state detail state_ts "
        "state_since generation_tokens_per_second generation_source prompt_tokens_per_second generation_tokens "
        "requests_running requests_waiting kv_used_fraction kv_capacity_tokens prefix_cache_hit_fraction "
        "mean_itl_seconds device_memory_bytes device_memory_method host_memory_bytes host_memory_method cpu_cores "
        "process_count"
    ),
    "latency": [
        *_words("engine_id quantity epochs count mean_seconds"),
        *(f"p{q}_{end}" for q in (50, 95, 99) for end in ("seconds", "low_seconds", "high_seconds")),
    ],
    "latency_buckets": _words("engine_id quantity le cumulative_count"),
    "engine_series": [
        *_words("ts engine_id label kind state"),
        *_mean_min_max(
            "generation_tokens_per_second",
            "prompt_tokens_per_second",
            "requests_running",
            "requests_waiting",
            "kv_used_fraction",
        ),
        *_words("generation_source samples"),
    ],
    "engine_memory_series": _words(
        "ts engine_id label method memory_bytes memory_bytes_min memory_bytes_max cpu_cores process_count"
    ),
    "device_series": [
        *_words("ts device_id index name memory_total_bytes power_limit_watts"),
        *_mean_min_max(
            "memory_used_bytes", "utilisation_fraction", "power_watts", "temperature_celsius", "sm_clock_hertz"
        ),
    ],
    "device_memory_series": _words("ts device_id part engine_id label method memory_bytes"),
    "host_series": [
        *_words("ts host cpu_count memory_total_bytes swap_total_bytes"),
        *_mean_min_max("cpu_fraction", "memory_used_bytes", "swap_used_bytes", "load_1m"),
    ],
    "host_memory_series": _words("ts host part engine_id label method memory_bytes"),
    "latency_series": [
        *_words("ts engine_id label quantity count mean_seconds"),
        *(f"p{q}_{end}" for q in (50, 95, 99) for end in ("seconds", "low_seconds", "high_seconds")),
    ],
    "extent": _words("oldest_ts newest_ts raw_oldest_ts minute_oldest_ts hour_oldest_ts"),
    "devices": _words(
        "device_id vendor index name memory_total_bytes driver_version ts host state detail memory_used_bytes "
        "memory_reserved_bytes utilisation_fraction memory_utilisation_fraction power_watts power_limit_watts "
        "temperature_celsius sm_clock_hertz memory_clock_hertz energy_joules_total"
    ),
    "sources": _words(
        "source_id kind state ts duration_seconds lateness_seconds interval_seconds detail found_by last_ok "
        "samples_10m errors_10m lateness_max_10m_seconds engine_id label"
    ),
    "quantities": _words("engine_id quantity offer source reason remedy ts"),
    "events": _words("ts host engine_id label device_id epoch_id kind text details"),
    "epochs": _words(
        "host engine_id epoch_id started started_is_process_start first_seen pid version model_id model_path "
        "quantization max_context_tokens slots arguments facts label kind"
    ),
    "latest_epochs": _words(
        "host engine_id epoch_id started started_is_process_start first_seen pid version model_id model_path "
        "quantization max_context_tokens slots arguments facts kind label url found_by engine_first_seen"
    ),
    "memory_scores": _words(
        "ts host engine_id label epoch_id engine engine_version model model_file part unit predicted_low "
        "predicted_high measured measured_method error_fraction reason"
    ),
    "memory_parts": _words("ts host engine_id label epoch_id part place memory_bytes derived source"),
    **{
        f"loadtest_{name}s": [field.name for field in fields(row)]  # the columns of the row types, says the protocol
        for name, row in {
            "run": LoadtestRun,
            "stage": LoadtestStage,
            "request": LoadtestRequest,
            "judgement": LoadtestJudgement,
            "resource": LoadtestResource,
        }.items()
    },
    "startups": _words(
        "ts host engine_id label epoch_id started ready_seconds first_token_seconds resolution_seconds note"
    ),
    "stage_resources": _words(
        "device_id memory_method memory_mean_bytes memory_peak_bytes cpu_cores_mean utilisation_mean_fraction "
        "power_mean_watts energy_joules energy_method others_memory_bytes samples"
    ),
    "stage_others": _words("engine_id label samples busy_samples requests_running_max generation_tokens shares"),
    "stage_host": _words("host cpu_count busy_cores engine_cores covered_seconds"),
    "reports": _words("ts host report_id name document"),
    "report": _words("ts host report_id name document"),
    "window_summary": [
        *_words("host engine_id label kind epochs epoch_ids samples ready_samples first_ts last_ts covered_seconds"),
        *_words("generation_tokens generation_tokens_per_second working_seconds working_generation_tokens_per_second"),
        *_words("generation_source prompt_tokens prompt_tokens_per_second prefix_cache_hit_fraction requests_finished"),
        *_words("requests_per_second preemptions mean_seconds_per_token"),
        *(f"{name}_{end}" for name in ("requests_running", "requests_waiting", "kv_used_fraction") for end in _ENDS),
        *_words("kv_capacity_tokens device_memory_mean_bytes device_memory_peak_bytes device_memory_method"),
        *_words("host_memory_mean_bytes host_memory_peak_bytes host_memory_method cpu_cores_mean cpu_cores_max"),
        *_words("device_ids sharing_engine_ids utilisation_fraction_mean power_watts_mean power_watts_max"),
        *_words("energy_joules energy_method joules_per_output_token"),
    ],
    "dictionary": _words("table_name column_name type comment"),
    "disk": _words(
        "folder file_bytes wal_bytes archive_on archive_bytes archive_files archive_oldest_day archive_problems "
        "free_bytes total_bytes growth_bytes_per_day growth_over_seconds days_until_full rows_per_second memory_rows "
        "memory_seconds state detail"
    ),
    "disk_tables": _words("table_name rows bytes_estimate"),
    "status": _words(
        "schema_version file_bytes wal_bytes newest_ts oldest_ts rows_engine rows_epoch rows_engine_sample "
        "rows_quantity_offer rows_latency_bucket rows_device rows_device_sample rows_host_sample "
        "rows_process_memory rows_disk_sample rows_source_health rows_event rows_memory_plan rows_memory_part "
        "rows_startup rows_loadtest_run rows_loadtest_stage rows_loadtest_request rows_loadtest_judgement "
        "rows_loadtest_resource rows_report"
    ),
}
RANGED = {"latency", "latency_buckets", "events", "stage_resources", "stage_others", "stage_host", "window_summary"} | {
    name for name in COLUMNS if name.endswith("_series")
}
OF_ONE = {
    **{f"loadtest_{name}": {"run_id": "r"} for name in ("stages", "requests", "judgements", "resources")},
    "report": {"report_id": "r"},
    "stage_resources": {"engine_id": "e"},
    "window_summary": {"engine_id": "e"},
    "stage_others": {"engine_id": "e"},
    "stage_host": {"engine_id": "e"},
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns(filled: Filled, name: str) -> None:
    span = {"start": T0, "end": T0 + timedelta(hours=1)} if name in RANGED else {}
    table = filled.store.query(name, {**span, **OF_ONE.get(name, {})})
    assert isinstance(table, pa.Table)
    assert table.column_names == COLUMNS[name]
    for field in table.schema:
        if pa.types.is_timestamp(field.type):
            assert field.type.tz == "UTC", field.name
    if name not in ("disk_tables", "dictionary"):  # they list the tables of an empty store too
        assert table.num_rows == (1 if name in ("status", "extent", "disk", "stage_resources", "window_summary") else 0)
