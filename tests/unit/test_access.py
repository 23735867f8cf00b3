"""
Who may operate. Loopback addresses: RFC 1122 3.2.1.3 (127.0.0.0/8), RFC 4291 2.5.3 (::1), RFC 6761 6.3 (localhost).
"""

from __future__ import annotations

import pytest

from access import may_operate, may_read


@pytest.mark.parametrize("address", [None, "127.0.0.1", "127.8.8.8", "::1"])
@pytest.mark.parametrize("host", ["localhost:8501", "127.0.0.1:8501", "[::1]:8501", "dash.localhost"])
def test_this_host_operates(address, host):
    assert may_operate(address, {"Host": host})


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("10.0.0.7", {"Host": "localhost:8501"}),
        ("2001:db8::1", {"Host": "localhost:8501"}),
        ("not an address", {"Host": "localhost:8501"}),
        ("127.0.0.1", {"Host": "rebound.example.org:8501"}),
        ("127.0.0.1", {"Host": "localhost", "X-Forwarded-For": "10.0.0.7"}),
        (None, {"Host": "localhost", "Forwarded": "for=10.0.0.7"}),
    ],
)
def test_everybody_else_only_reads(address, headers):
    assert not may_operate(address, headers)
    assert may_read(address, headers)
