"""
Reading wanted series out of Prometheus text (0.0.4 or 1.0.0) or OpenMetrics text.

A scrape repeats the same series with other numbers, so each series text (name and labels) is parsed
once, by prometheus_client's parser, and remembered; later scrapes only read its number. Families
nobody asked for are passed over by name. That reads a real vLLM body tens of times faster than
prometheus_client's parser reads the whole of it (`python -m benchmarks.scrape`).

Nothing is guessed: a line that can't be read, or an answer that ends in the middle of a line, takes
its whole family with it, because the sum over half of an engine's shards is a wrong number.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

from collectors.redaction import redact_text

Labels = tuple[tuple[str, str], ...]

_SUFFIXES = ("_total", "_bucket", "_sum", "_count")
# One sample line: series, value, then a timestamp and an OpenMetrics exemplar, both ignored.
_SERIES = rb"[^\s{#]*(?:[ \t]*\{(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*\})?"
_NAME = re.compile(rb"[A-Za-z_:][A-Za-z0-9_:]*")
_WHOLE_SERIES = re.compile(_SERIES, re.DOTALL)
_SAMPLE = re.compile(
    rb"(" + _SERIES + rb")(?:(?<=\})|[ \t])[ \t]*([^\s#]+)(?:[ \t]+[-+.\deE]+)?(?:[ \t]+#[ \t].*)?", re.DOTALL
)


class MalformedExpositionError(ValueError):
    """The body is no metrics text at all. The message says what came instead."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A cumulative histogram: `(le, count)` rising in `le`, summed over the shards of the family."""

    buckets: tuple[tuple[float, float], ...]
    sum: float | None


@dataclass(frozen=True, slots=True)
class Exposition:
    """
    The wanted samples of one body. Names are looked up with `:` as `_`, with or without `_total`.

    A value is None where the engine answered NaN or infinity.
    """

    samples: Mapping[str, Mapping[Labels, float | None]]
    families: frozenset[str]  # every family seen, wanted or not, without _total, _bucket, _sum and _count
    problems: tuple[str, ...] = ()  # what could not be read, for a person
    partial: bool = False  # the body was cut off
    _empty: Mapping[Labels, float | None] = field(default_factory=dict, repr=False)

    def series(self, name: str) -> Mapping[Labels, float | None]:
        """All series of a sample name: sorted label pairs to value; empty when there are none."""
        name = normalise(name)
        found = self.samples.get(name)
        if found is None:
            found = self.samples.get(name.removesuffix("_total") if name.endswith("_total") else name + "_total")
        return self._empty if found is None else found

    def has(self, name: str, **labels: str) -> bool:
        """Whether there is a series of this name with (at least) these labels."""
        return any(True for _ in self._matching(name, labels))

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the only matching series. None: no such series, more than one, or not a finite number."""
        values = list(self._matching(name, labels))
        return values[0] if len(values) == 1 else None

    def sum(self, name: str, **labels: str) -> float | None:
        """Sum over all matching series. None: there are none, or one of them is not a finite number."""
        return _sum(self._matching(name, labels))

    def mean(self, name: str, **labels: str) -> float | None:
        """Mean over all matching series. None as for `sum`."""
        values = list(self._matching(name, labels))
        total = _sum(values)
        return None if total is None else total / len(values)

    def histogram(self, name: str) -> Buckets | None:
        """
        The histogram `name`, shards merged by adding their cumulative counts for each `le`.

        None when there is none, or when its shards have different bucket bounds (then nothing can
        be added without inventing counts), or when a count is not a number or falls as `le` rises.
        """
        shards: dict[Labels, dict[float, float]] = {}
        for labels, count in self.series(f"{normalise(name)}_bucket").items():
            rest = tuple(pair for pair in labels if pair[0] != "le")
            bound = _bound(dict(labels).get("le"))
            if bound is None or count is None:
                return None
            shards.setdefault(rest, {})[bound] = count
        if not shards:
            return None
        bounds = sorted(next(iter(shards.values())))
        if bounds[-1] != math.inf or any(sorted(shard) != bounds for shard in shards.values()):
            return None
        merged = tuple((bound, sum(shard[bound] for shard in shards.values())) for bound in bounds)
        if any(low[1] > high[1] for low, high in itertools.pairwise(merged)):
            return None
        return Buckets(merged, self.sum(f"{normalise(name)}_sum"))

    def _matching(self, name: str, labels: Mapping[str, str]) -> Iterable[float | None]:
        wanted = labels.items()
        for pairs, value in self.series(name).items():
            if not labels or wanted <= dict(pairs).items():
                yield value


def normalise(name: str) -> str:
    """A metric name as it is looked up: `vllm:x` and, as OpenMetrics escaping makes of it, `vllm_x` are one."""
    return name.replace(":", "_")


def parse(body: bytes, content_type: str, wanted: frozenset[str]) -> Exposition:
    """
    Read the samples of the `wanted` families (normalised names; `_total` may be left out).

    An empty body is an engine that has nothing to tell yet. Raises `MalformedExpositionError` when
    the body is something else than metrics, such as an HTML page.
    """
    body = _unwrap(body)
    lines = body.split(b"\n")
    tail = lines.pop()  # what follows the last line feed
    partial = _is_cut_off(body, tail, content_type)
    if tail.strip() and not partial:
        lines.append(tail)
    reader = _Reader(_sample_names(wanted))
    reader.read(lines)
    if not reader.any_readable and (reader.any_unreadable or (partial and body.lstrip()[:1] != b"#")):
        raise MalformedExpositionError(f"the answer is no metrics text; it begins with {_excerpt(body)}")
    if partial:
        reader.problems.append("the answer was cut off; what could not be read whole is left out")
        if reader.last is not None:
            reader.damaged.add(_family(reader.last))
    samples = {name: rows for name, rows in reader.samples.items() if _family(name) not in reader.damaged}
    families = frozenset(_family(_plain_name(head) or "") for head in reader.heads)
    return Exposition(samples, families, tuple(reader.problems[:10]), partial)


class _Reader:
    """The state of reading one body, line by line."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names  # wanted sample names
        self.samples: dict[str, dict[Labels, float | None]] = {}
        self.problems: list[str] = []
        self.heads: dict[bytes, str | None] = {}  # text before the labels -> name under which it is wanted
        self.damaged: set[str] = set()  # families of which something could not be read
        self.last: str | None = None  # the wanted sample read last: its family may go on in what was cut off
        self.any_readable = self.any_unreadable = False

    def read(self, lines: list[bytes]) -> None:
        """Take in whole lines."""
        heads = self.heads
        for line in lines:
            if line[:1] == b"#":
                continue
            key, _, number = line.rpartition(b" ")
            head = key.partition(b"{")[0]
            name = heads[head] if head in heads else self._new_head(line, head, number)
            self.last = name
            if name is None:
                continue
            series, value = _parse_series(key), _number(number)
            if series is None or value is None:
                series, value = _read_slowly(line)
            if series is None or value is None:
                self._bad(line, name)
                continue
            rows = self.samples.setdefault(name, {})
            if series[1] in rows:
                self.damaged.add(_family(name))
                self.problems.append(f"{name} has the same series twice")
            rows[series[1]] = value if math.isfinite(value) else None

    def _new_head(self, line: bytes, head: bytes, number: bytes) -> str | None:
        """The wanted name of a line whose beginning was not seen before; None when nobody wants it."""
        name = _plain_name(head)
        if name is not None and (_number(number) is not None or _read_slowly(line)[1] is not None):
            self.any_readable = True
            self.heads[head] = wanted = name if name in self.names else None
            return wanted
        text = line.strip()
        if text[:1] in (b"", b"#"):
            return None
        series, value = _read_slowly(line)
        if series is not None and value is not None:
            self.any_readable = True
            return series[0] if series[0] in self.names else None
        first = _plain_name(re.split(rb"[\s{]", text, maxsplit=1)[0])
        self._bad(line, first if first in self.names else None)
        return None

    def _bad(self, line: bytes, name: str | None) -> None:
        self.any_unreadable = True
        if name is not None:
            self.damaged.add(_family(name))
        if len(self.problems) < 10:
            self.problems.append(f"a line of {name or 'the answer'} could not be read: {_excerpt(line)}")


def _unwrap(body: bytes) -> bytes:
    """The metrics text within what was sent: carriage returns and JSON quoting taken off."""
    start = body[:64].lstrip()
    if start[:1] == b"<":
        raise MalformedExpositionError("an HTML page came instead of metrics")
    if start[:1] == b'"':
        # llama.cpp b7010 to #17386 sent its metrics as one JSON string.
        try:
            text = json.loads(body)
        except ValueError as error:
            raise MalformedExpositionError("a JSON string came instead of metrics, and it is cut off") from error
        body = str(text).encode()
    elif start[:2] in (b'{"', b"{\n", b"[{", b"[]", b"{}") and _is_json(body):
        raise MalformedExpositionError("a JSON document came instead of metrics")
    return body.replace(b"\r\n", b"\n") if b"\r" in body else body


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _is_cut_off(body: bytes, tail: bytes, content_type: str) -> bool:
    """Whether the end is missing: OpenMetrics ends with `# EOF`, the text format with a line feed."""
    if tail.strip() == b"# EOF" or body.rstrip().endswith(b"\n# EOF"):
        return False
    if "openmetrics" in content_type.lower():
        return bool(body)
    return bool(tail.strip())


@lru_cache(maxsize=64)
def _sample_names(wanted: frozenset[str]) -> frozenset[str]:
    """All sample names of the wanted families. Names in `_created` are times of creation, never values."""
    names = set()
    for name in map(normalise, wanted):
        base = name.removesuffix("_total")
        names |= {name, base, base + "_total"} | {name + suffix for suffix in _SUFFIXES}
    return frozenset(name for name in names if not name.endswith("_created"))


def _family(name: str) -> str:
    """The family of a sample name, by its suffix."""
    for suffix in ("_bucket", "_sum", "_count", "_created"):
        name = name.removesuffix(suffix)
    return name.removesuffix("_total")


@lru_cache(maxsize=4_096)
def _plain_name(head: bytes) -> str | None:
    """The normalised name when the text before the labels is a bare name, which means the same in every line."""
    return normalise(head.decode("ascii")) if _NAME.fullmatch(head) else None


def _read_slowly(line: bytes) -> tuple[tuple[str, Labels] | None, float | None]:
    """Name, labels and value of a line with tabs, a timestamp, an exemplar or a quoted name."""
    match = _SAMPLE.fullmatch(line.strip())
    if match is None:
        return None, None
    return _parse_series(match[1]), _number(match[2])


@lru_cache(maxsize=16_384)
def _parse_series(key: bytes) -> tuple[str, Labels] | None:
    """Normalised name and sorted labels of a series text; None when it is anything else."""
    if not _WHOLE_SERIES.fullmatch(key):
        return None
    try:
        family = next(iter(text_string_to_metric_families(key.decode("utf-8", "backslashreplace") + " 0\n")))
    except (ValueError, StopIteration, IndexError):
        return None
    sample = family.samples[0]
    return normalise(sample.name), tuple(sorted(sample.labels.items()))


def _number(text: bytes) -> float | None:
    """A sample value; NaN and infinities as such. None when it is no number."""
    if b"_" in text:  # Python's digit separator, which no metrics format has
        return None
    try:
        return float(text)
    except ValueError:
        return None


@lru_cache(maxsize=1_024)
def _bound(text: str | None) -> float | None:
    try:
        bound = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _sum(values: Iterable[float | None]) -> float | None:
    total, count = 0.0, 0
    for value in values:
        if value is None:
            return None
        total += value
        count += 1
    return total if count else None


def _excerpt(text: bytes) -> str:
    return repr(redact_text(text[:60].decode("utf-8", "replace")))
