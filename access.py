"""
Who may read and who may operate: the one place that decides, for pages and HTTP routes alike.

On the loopback address everybody is operator. From any other address the dashboard is read-only.
A request that a proxy forwarded counts as one from elsewhere, since its real origin is the proxy's word,
and so does one whose Host header is not a loopback name (a web page elsewhere can point its own name here).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


def may_read(address: str | None, headers: Mapping[str, str]) -> bool:
    """Whether a request from `address` may read: everybody who reaches the server may."""
    return True


def may_operate(address: str | None, headers: Mapping[str, str]) -> bool:
    """
    Whether a request may change something: start a load test, add a target, import, delete.

    `address` is the peer's IP address; None means loopback, as `st.context.ip_address` has it.
    """
    names = {name.lower(): value for name, value in headers.items()}
    if any(name in names for name in FORWARDED):
        return False
    return _is_loopback(address) and _is_loopback(_host(names.get("host")))


def page_may_operate(context: Any) -> bool:
    """`may_operate` for a page: `context` is `st.context`."""
    return may_operate(context.ip_address, dict(context.headers))


def _host(header: str | None) -> str | None:
    return urlsplit(f"//{header}").hostname if header else None


def _is_loopback(name: str | None) -> bool:
    if name is None or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
