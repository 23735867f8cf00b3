"""
llama-server command lines: what they set, what is refused, and that a written line means the same again.

Flags, aliases and defaults are those of `llama-server --help` of b11434 and of the builds named in each test.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from calculator.llamacpp_settings import (
    ALL_LAYERS,
    LlamaCppSettings,
    SettingError,
    command,
    from_arguments,
    parse_build,
)


def test_defaults_are_the_servers() -> None:
    settings = from_arguments([])
    assert (settings.batch, settings.ubatch, settings.context, settings.gpu_layers) == (2048, 512, None, None)
    assert (settings.cache_type_k, settings.cache_type_v, settings.uses_flash_attention) == ("f16", "f16", True)
    assert (settings.slots, settings.unified) == (4, True)  # n_parallel auto: 4 slots, one cache (server.cpp)


@pytest.mark.parametrize(
    ("version", "slots", "unified", "flash"),
    [("b11434", 4, True, True), ("b6500", 1, False, True), ("b5000", 1, False, False)],
)
def test_defaults_follow_the_build(version: str, slots: int, unified: bool, flash: bool) -> None:
    settings = from_arguments([], version=version)
    assert (settings.slots, settings.unified, settings.uses_flash_attention) == (slots, unified, flash)


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("llama-server -m /m/x.gguf --port 8080", {"model_path": "/m/x.gguf"}),
        ("-c 8192 --parallel 2", {"context": 8192, "parallel": 2}),
        ("--ctx-size=8192 -np -1", {"context": 8192, "parallel": None}),
        ("-np 3 -kvu", {"parallel": 3, "kv_unified": True}),
        ("--no-kv-unified", {"kv_unified": False}),
        ("-ngl all", {"gpu_layers": ALL_LAYERS}),
        ("-ngl auto", {"gpu_layers": None}),
        ("--n-gpu-layers 33", {"gpu_layers": 33}),
        ("-fa", {"flash_attention": "on"}),  # a switch before b6325
        ("-fa -c 512", {"flash_attention": "on", "context": 512}),
        ("-fa off", {"flash_attention": "off"}),
        ("--flash-attn 1", {"flash_attention": "on"}),
        ("-ctk Q8_0 --cache-type-v q4_0", {"cache_type_k": "q8_0", "cache_type_v": "q4_0"}),
        ("-ts 3,1 -sm row -mg 1", {"tensor_split": (3.0, 1.0), "split_mode": "row", "main_gpu": 1}),
        (
            "-ot exps=CPU -ot blk\\.1\\.=CUDA1,output=CUDA0",
            {"override_tensor": (("exps", "CPU"), (r"blk\.1\.", "CUDA1"), ("output", "CUDA0"))},
        ),
        ("-ncmoe 12 --swa-full", {"n_cpu_moe": 12, "swa_full": True}),
        ("-cmoe --no-mmap -nr -nkvo", {"cpu_moe": True, "mmap": False, "repack": False, "kv_offload": False}),
        ("-lm none", {"mmap": False}),
        (
            "-md d.gguf -ngld 9 -ctkd q8_0",
            {"draft_path": "d.gguf", "draft_gpu_layers": 9, "draft_cache_type_k": "q8_0"},
        ),
        ("--spec-type draft-mtp --draft-max 3", {"mtp": True, "rollback_rows": 3}),
        ("--draft-max 3", {}),  # an ordinary draft model takes nothing back
        ("-cram 0 --embedding -b 512 -ub 256", {"cache_ram_mib": 0, "embeddings": True, "batch": 512, "ubatch": 256}),
    ],
)
def test_flags_and_aliases(line: str, changes: dict[str, object]) -> None:
    assert from_arguments(shlex.split(line, posix=False)) == replace(LlamaCppSettings(), **changes)  # type: ignore[arg-type]


def test_what_has_no_part_in_memory_is_kept_apart() -> None:
    settings = from_arguments(["--host", "0.0.0.0", "--metrics", "-c", "4096"])
    assert settings.ignored == ("--host", "0.0.0.0", "--metrics")
    assert settings.context == 4096


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-c many", "-c many: a number was expected"),
        ("-c -5", "-c -5: at least 0"),
        ("-c 9999999999", "below 2\\^31"),
        ("-np 0", "-np 0: at least 1"),
        ("-c", "-c: its value is missing"),
        ("-ctk q3_K", "-ctk q3_k: the cache can be kept as f32"),
        ("-sm slices", "-sm slices: choose one of none, layer, row, tensor"),
        ("-fa maybe", "-fa maybe: choose on, off or auto"),
        ("-ot exps", "-ot exps: PATTERN=BUFFER was expected"),
        ("-ot ((=CPU", "the pattern is no regular expression"),
        ("-ts a,b", "-ts a,b: a number was expected"),
        ("-ts 0,0", "nor all 0"),
        ("-ctv q8_0 -fa off", "needs flash attention"),
    ],
)
def test_refusals_name_the_flag(line: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        from_arguments(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "-c 8192 -np 2 -ctk q8_0 -ctv q8_0 -ngl 20 -ts 3,1 --n-cpu-moe 4 --no-mmap --swa-full",
        "-kvu -np 2 -ot exps=CPU,out=CUDA0 -ub 128 -b 256 --no-repack --no-kv-offload --embedding -fa on",
        "--no-kv-unified -ngl all -sm row -mg 1 -md d.gguf -ngld 3 --cache-ram 0 --no-op-offload",
    ],
)
def test_a_written_command_means_the_same(line: str) -> None:
    settings = from_arguments(line.split())
    written = command(settings, "/models/with space.gguf")
    parts = shlex.split(written)
    assert parts[:3] == ["llama-server", "-m", "/models/with space.gguf"]
    again = from_arguments(parts[1:])
    assert replace(again, model_path=None) == settings


@pytest.mark.parametrize(
    ("text", "build"),
    [("b11434", 11434), ("0.6.0-dev (b11434)", 11434), ("version: 4905 (abcdef)", 4905), ("11434", 11434),
     ("b11434-1a2b3c", 11434), ("0.6.0-dev", None), (None, None)],
)  # fmt: skip
def test_builds_are_found_in_versions(text: str | None, build: int | None) -> None:
    assert parse_build(text) == build
