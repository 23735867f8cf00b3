"""
Reading expositions. The reference for what a text means is prometheus_client, which writes and parses
the same formats; the payloads are described in tests/fixtures/README.md.
"""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from collectors.exposition import MalformedExpositionError, parse
from tests.support.engine_server import PAYLOADS

TEXT = CONTENT_TYPE_PLAIN_0_0_4
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def read(text: str | bytes, *wanted: str, content_type: str = TEXT):
    return parse(text.encode() if isinstance(text, str) else text, content_type, frozenset(wanted))


@pytest.mark.parametrize("path", sorted(PAYLOADS.glob("*.prom")), ids=lambda path: path.name)
def test_every_series_of_a_payload_reads_as_prometheus_client_reads_it(path) -> None:
    text = path.read_text()
    expected: dict[str, dict] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                labels = tuple(sorted(sample.labels.items()))
                expected.setdefault(sample.name, {})[labels] = sample.value if math.isfinite(sample.value) else None
    exposition = read(text, *expected)
    assert exposition.problems == ()
    for name, series in expected.items():
        assert dict(exposition.series(name)) == series, name


def test_total_may_be_there_or_not_and_colons_are_underscores() -> None:
    text = "vllm:a_total 3\nvllm_b 4\n"
    for name in ("vllm:a", "vllm_a", "vllm:a_total", "vllm_a_total"):
        assert read(text, "vllm_a").value(name) == 3
    for name in ("vllm:b", "vllm_b_total"):
        assert read(text, "vllm_b_total").value(name) == 4


def test_iteration_tokens_total_is_a_histogram_and_no_counter() -> None:
    # vLLM has a histogram whose base name ends in _total (vllm/v1/metrics/loggers.py).
    exposition = read((PAYLOADS / "vllm_0.32.0_cpu_real.prom").read_bytes(), "vllm_iteration_tokens_total")
    assert exposition.value("vllm:iteration_tokens_total_sum") == 4953
    assert exposition.histogram("vllm:iteration_tokens_total").buckets[-1] == (math.inf, 326)


def test_only_what_is_wanted_is_kept_and_all_families_are_named() -> None:
    exposition = read('a 1\nb{x="1"} 2\nc_total 3\nd_bucket{le="+Inf"} 1\nd_sum 1\nd_count 1\nb_created 5\n', "b")
    assert list(exposition.samples) == ["b"]
    assert exposition.families == {"a", "b", "c", "d"}


def test_created_is_never_read() -> None:
    assert read("a_created 1.7e9\na_total 2\n", "a", "a_created").samples.keys() == {"a_total"}


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        (r'm{a="x} 9"} 1', {"a": "x} 9"}),
        (r'm{a="x{y=\"z\"} 9 "} 1', {"a": 'x{y="z"} 9 '}),
        (r'm{a="back\\"} 1', {"a": "back\\"}),
        (r'm{a="# {b=\"c\"} 2"} 1', {"a": '# {b="c"} 2'}),
        (r'm{a="new\nline",} 1', {"a": "new\nline"}),
        ('m{a="x"} 1 1700000000000', {"a": "x"}),
        ('m{a="x"} 1 1700000000000 # {trace="}"} 0.5 1700000000', {"a": "x"}),
        ('m{a="x"} 1 # {trace="abc"} 0.5', {"a": "x"}),
        ("m 1 # {} 7", {}),
        ('m {a="x"} 1', {"a": "x"}),
        ("m 1 1700000000000", {}),
        ('m\t{a="x"}\t1', {"a": "x"}),
        ("m\t1", {}),
        ('  m{ a = "x" , b = "y" }   1  ', {"a": "x", "b": "y"}),
        ('{"m",a="x"} 1', {"a": "x"}),
        ("m{} 1", {}),
        ('m{a="é ü"} 1e0', {"a": "é ü"}),
    ],
)
def test_forms_of_a_sample_line(line: str, labels: dict[str, str]) -> None:
    for _ in range(2):  # the second time from memory
        assert dict(read(line + "\n", "m").series("m")) == {tuple(sorted(labels.items())): 1.0}


def test_remembered_series_get_their_new_numbers() -> None:
    for number in ("1", "2.5", "1.00301e+06", "3"):
        assert read(f'm{{a="x y"}} {number}\n', "m").value("m", a="x y") == float(number)


@pytest.mark.parametrize("number", ["NaN", "nan", "-nan", "+Inf", "-Inf", "Inf"])
def test_numbers_that_are_none(number: str) -> None:
    exposition = read(f'm{{e="0"}} {number}\nm{{e="1"}} 4\n', "m")
    assert exposition.value("m", e="0") is None
    assert exposition.has("m", e="0")
    assert exposition.sum("m") is None  # half of a sum is no sum
    assert exposition.mean("m") is None
    assert exposition.problems == ()


def test_sums_and_means_over_shards() -> None:
    exposition = read('m{e="0",r="a"} 1\nm{e="1",r="a"} 2\nm{e="1",r="b"} 6\n', "m")
    assert (exposition.sum("m"), exposition.sum("m", e="1"), exposition.mean("m", r="a")) == (9, 8, 1.5)
    assert exposition.value("m") is None  # more than one series
    assert exposition.sum("n") is None


def test_shards_of_a_histogram_are_added_for_each_bound() -> None:
    # Read by hand: vllm_0.33_dp2_multiproc.prom, time_to_first_token_seconds of engines 0 and 1.
    exposition = read((PAYLOADS / "vllm_0.33_dp2_multiproc.prom").read_bytes(), "vllm_time_to_first_token_seconds")
    buckets = dict(exposition.histogram("vllm:time_to_first_token_seconds").buckets)
    assert buckets[math.inf] == 220 + 180
    assert len(buckets) == 23
    assert list(buckets) == sorted(buckets)


def test_shards_with_different_bounds_are_not_added() -> None:
    text = (
        'h_bucket{e="0",le="1"} 1\nh_bucket{e="0",le="+Inf"} 2\nh_bucket{e="1",le="2"} 1\nh_bucket{e="1",le="+Inf"} 2\n'
    )
    assert read(text, "h").histogram("h") is None


def test_histogram_that_falls_or_has_no_infinity_is_none() -> None:
    assert read('h_bucket{le="1"} 3\nh_bucket{le="+Inf"} 2\n', "h").histogram("h") is None
    assert read('h_bucket{le="1"} 3\n', "h").histogram("h") is None


def test_json_quoted_body() -> None:
    # llama.cpp b7010 until pull request 17386
    exposition = read((PAYLOADS / "llamacpp_2025-11_json_quoted.txt").read_bytes(), "llamacpp_tokens_predicted_total")
    assert exposition.value("llamacpp:tokens_predicted_total") == 412688


def test_carriage_returns() -> None:
    assert read('# TYPE a counter\r\na{x="1"} 5\r\nb 2\r\n', "a", "b").value("b") == 2


def test_names_escaped_by_negotiation() -> None:
    # GET /metrics/ of vLLM 0.32.0 with an OpenMetrics Accept: colons in TYPE lines, underscores in samples.
    body = (PAYLOADS / "vllm_0.32.0_slash_openmetrics_broken_excerpt.txt").read_bytes()
    exposition = read(body, "vllm_generation_tokens", content_type=OPENMETRICS)
    assert (exposition.value("vllm:generation_tokens_total"), exposition.problems) == (1024, ())


def test_body_cut_off_within_a_line_drops_its_family() -> None:
    text = 'a 1\nm{e="0"} 10\nm{e="1"} 2'
    exposition = read(text, "a", "m")
    assert exposition.partial
    assert exposition.value("a") == 1
    assert exposition.sum("m") is None  # 10 would look as if the counter had fallen
    assert "cut off" in exposition.problems[0]


def test_openmetrics_without_its_end_is_partial() -> None:
    whole = "# TYPE a counter\na_total 1\n# TYPE b counter\nb_total 2\n# EOF"
    assert not read(whole, "a", "b", content_type=OPENMETRICS).partial
    assert not read(whole + "\n", "a", "b", content_type=OPENMETRICS).partial
    cut = read(whole.removesuffix("# EOF"), "a", "b", content_type=OPENMETRICS)
    assert (cut.partial, cut.value("a"), cut.value("b")) == (True, 1, None)


def test_unreadable_line_takes_its_family_and_nothing_else() -> None:
    exposition = read('a 1\nm{e="0"} 10\nm{e="1} 2\nm{e="2"} 1_0\nz 3\n', "a", "m", "z")
    assert (exposition.value("a"), exposition.sum("m"), exposition.value("z")) == (1, None, 3)
    assert any("line" in problem for problem in exposition.problems)


@pytest.mark.parametrize("bad", ['m{e="0} 1', 'm{e="0"} one', "m", "m 1 2 3 4", 'm{e="0"} 1 x # y', "m{"])
def test_unreadable_first_line_takes_its_family_too(bad: str) -> None:
    exposition = read(f'  # comment\n\na 1\n{bad}\nm{{e="1"}} 2\n', "a", "m")
    assert (exposition.value("a"), exposition.sum("m"), len(exposition.problems)) == (1, None, 1)


def test_unreadable_line_of_something_else_is_no_harm() -> None:
    exposition = read('b{e="0"} one\nm{e="1"} 2\n', "m")
    assert (exposition.sum("m"), len(exposition.problems)) == (2, 1)


def test_same_series_twice_is_a_problem() -> None:
    exposition = read('m{a="1",b="2"} 1\nm{b="2",a="1"} 3\n', "m")
    assert exposition.sum("m") is None
    assert "twice" in exposition.problems[0]


def test_invalid_utf8_keeps_series_apart() -> None:
    exposition = read(b'm{a="\xff"} 1\nm{a="\xfe"} 2\n', "m")
    assert exposition.sum("m") == 3


def test_empty_body_is_valid_and_empty() -> None:
    exposition = read(b"", "m")
    assert (exposition.samples, exposition.families, exposition.partial) == ({}, frozenset(), False)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<!DOCTYPE html><html><body>login</body></html>", "HTML"),
        (b"  \n<html></html>", "HTML"),
        (b'{"error": {"message": "Not Found"}}', "JSON document"),
        (b'{"detail":"Not Found"}\n', "JSON document"),
        (b'"cut off', "JSON string"),
        (b'[{"a":' * 100_000 + b"\n", "begins with"),
        (b"Not Found", "Not Found"),
        (b"404 page not found\n", "404 page"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "PNG"),
    ],
)
def test_something_else_is_refused_with_what_it_is(body: bytes, says: str) -> None:
    with pytest.raises(MalformedExpositionError, match=says):
        read(body, "m")


label_values = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
label_sets = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), label_values, max_size=3).filter(
    lambda labels: "le" not in labels
)
numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=0)
rows = st.lists(
    st.tuples(label_sets, numbers), min_size=1, max_size=4, unique_by=lambda row: tuple(sorted(row[0].items()))
)


class Families(Collector):
    def __init__(self, *families) -> None:
        self.families = families

    def collect(self):
        return self.families


@given(gauge=rows, counter=rows)
def test_what_prometheus_client_writes_is_read_back(gauge, counter) -> None:
    keys = sorted({key for labels, _ in gauge + counter for key in labels})
    expected: dict[str, dict] = {"x_g": {}, "x_c_total": {}}
    first, second = GaugeMetricFamily("x_g", "help", labels=keys), CounterMetricFamily("x_c", "help", labels=keys)
    for family, name, given_rows in ((first, "x_g", gauge), (second, "x_c_total", counter)):
        for labels, value in given_rows:
            values = [labels.get(key, "") for key in keys]
            pairs = tuple(sorted(zip(keys, values, strict=True)))
            if pairs not in expected[name]:
                family.add_metric(values, value)
                expected[name][pairs] = value
    registry = CollectorRegistry()
    registry.register(Families(first, second))
    for body, content_type in ((generate_latest(registry), TEXT), (generate_openmetrics(registry), OPENMETRICS)):
        exposition = parse(body, content_type, frozenset(("x_g", "x_c")))
        assert exposition.problems == ()
        assert {name: dict(series) for name, series in exposition.samples.items()} == expected


@given(counts=st.lists(st.lists(st.integers(0, 1000), min_size=4, max_size=4), min_size=1, max_size=3))
def test_merged_histogram_is_the_sum_of_its_shards(counts) -> None:
    bounds = ["0.1", "1.0", "10.0", "+Inf"]
    family = HistogramMetricFamily("x_h", "help", labels=["engine"])
    for shard, steps in enumerate(counts):
        cumulative = [sum(steps[: i + 1]) for i in range(4)]
        family.add_metric([str(shard)], list(zip(bounds, cumulative, strict=True)), sum_value=shard + 0.5)
    registry = CollectorRegistry()
    registry.register(Families(family))
    merged = parse(generate_latest(registry), TEXT, frozenset(("x_h",))).histogram("x_h")
    expected = [sum(sum(steps[: i + 1]) for steps in counts) for i in range(4)]
    assert [count for _, count in merged.buckets] == expected
    assert merged.sum == sum(shard + 0.5 for shard in range(len(counts)))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(MalformedExpositionError):
        exposition = parse(body, TEXT, frozenset(("a", "m")))
        assert all(value is None or math.isfinite(value) for s in exposition.samples.values() for value in s.values())


@given(st.integers(0, 51_873))
def test_a_body_cut_anywhere_never_gives_a_wrong_number(cut: int) -> None:
    whole = (PAYLOADS / "vllm_0.33_dp2_multiproc.prom").read_bytes()
    wanted = frozenset(("vllm_generation_tokens", "vllm_num_requests_running", "vllm_prompt_tokens_by_source"))
    full, part = parse(whole, TEXT, wanted), parse(whole[:cut], TEXT, wanted)
    if part.partial:
        for name in part.samples:
            assert part.sum(name) == full.sum(name)


def test_json_document_of_numbers_is_no_exposition() -> None:
    with pytest.raises(MalformedExpositionError):
        read(json.dumps([{"a": 1}]), "a")
