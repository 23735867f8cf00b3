"""Every recorded or generated input is used by a test, and its origin is written down."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAYLOADS = TESTS / "fixtures" / "payloads"


def test_every_payload_is_named_by_a_test() -> None:
    """By its full name, or by the part after `llamacpp_0.6.0_` where a test's helper puts that before it."""
    sources = [path for path in TESTS.rglob("*.py") if path != Path(__file__)]
    words = {word for path in sources for word in re.findall(r"[\"']([\w.-]+)[\"']", path.read_text())}
    helper = (TESTS / "unit" / "collectors" / "engines" / "test_llamacpp.py").read_text()
    metrics = {f"llamacpp_0.6.0_{name}.prom" for name in re.findall(r"serve\(\"(\w+)\"", helper)}
    slots = {f"llamacpp_0.6.0_slots_{name}.json" for name in re.findall(r"serve\([^)]*\"(\w+)\"[,)]", helper)}
    unused = sorted({path.name for path in PAYLOADS.iterdir()} - words - metrics - slots)
    assert unused == []


def test_every_payload_has_its_origin_in_the_readme() -> None:
    readme = (TESTS / "fixtures" / "README.md").read_text()
    patterns = [
        re.compile(
            re.sub(r"\\\{(.*?)\\\}", lambda m: "(" + m[1].replace(",", "|") + ")", re.escape(name)).replace(r"\*", ".*")
        )
        for name in re.findall(r"`([\w.*{},-]+)`", readme)
    ]
    assert [p.name for p in PAYLOADS.iterdir() if not any(pattern.fullmatch(p.name) for pattern in patterns)] == []
