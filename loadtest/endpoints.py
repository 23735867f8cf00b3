"""
Which endpoints a load test may load, and which engine of the collector each of them is.

A page names engines that the collector knows, or addresses that are configured; where they answer and which variable
holds their key is the collector's knowledge. The command line may name any endpoint.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtest.spec import EndpointSpec, Spec, SpecError
from store.model import Engine, Epoch
from store.protocol import RefusedError, UnknownQueryError


@dataclass(frozen=True, slots=True)
class Known:
    """An endpoint that was discovered or configured. `engine` is None for one that no adapter knows."""

    url: str
    label: str
    engine: Engine | None
    epoch: Epoch | None
    api_key_env: str | None

    @property
    def key(self) -> str:
        """What only one load test may use at a time."""
        return self.engine.engine_id if self.engine else address(self.url)


def key_of(endpoint: EndpointSpec, known: Known | None) -> str:
    """What only one load test may use at a time: the engine, else its address."""
    return known.key if known else address(endpoint.url)


def from_page(given: object, known: Sequence[Known], prompt_folders: Sequence[Path]) -> Spec:
    """
    The load test that a page asks for, with URL and key of each endpoint from the collector's own knowledge.

    Raises `UnknownQueryError` for a description that is wrong, `RefusedError` for an endpoint that is neither
    discovered nor configured, and for a file of prompts outside `prompt_folders`.
    """
    if not isinstance(given, Mapping):
        raise UnknownQueryError("spec must be a JSON object")
    endpoints = given.get("endpoints")
    if not isinstance(endpoints, list) or not all(isinstance(endpoint, Mapping) for endpoint in endpoints):
        raise UnknownQueryError("spec.endpoints must be a list of endpoints")
    spec = checked({**given, "endpoints": [_resolved(endpoint, known) for endpoint in endpoints]})
    if spec.input.path is None:
        return spec
    path = _prompt_file(Path(spec.input.path), prompt_folders)
    return spec.model_copy(update={"input": spec.input.model_copy(update={"path": str(path)})})


def checked(given: object) -> Spec:
    """The load test that is described. Raises `UnknownQueryError` in the words of `SpecError`."""
    if not isinstance(given, Mapping):
        raise UnknownQueryError("spec must be a JSON object")
    try:
        return Spec.from_json(given)
    except SpecError as wrong:
        raise UnknownQueryError(str(wrong)) from wrong


def known_endpoints(
    engines: Iterable[tuple[Engine, Epoch | None]], targets: Iterable[tuple[str, str | None, str | None]]
) -> list[Known]:
    """
    What may be loaded: `engines` with their newest lives, and configured `targets` (URL, name, variable of the key).

    A target that is an engine gives it its key; one that no adapter knows is an endpoint of its own.
    """
    configured = {address(url): (url, name, api_key_env) for url, name, api_key_env in targets}
    found = [
        Known(engine.url, engine.label, engine, epoch, configured.get(address(engine.url), (None, None, None))[2])
        for engine, epoch in engines
    ]
    taken = {address(known.url) for known in found}
    others = [target for there, target in configured.items() if there not in taken]
    return found + [Known(url, name or urlsplit(url).netloc, None, None, key) for url, name, key in others]


def match(spec: Spec, known: Sequence[Known]) -> tuple[Known | None, ...]:
    """The collector's engine behind each endpoint; None where it knows none."""
    return tuple(_matching(endpoint.model_dump(), known) for endpoint in spec.endpoints)


def _resolved(endpoint: Mapping[str, Any], known: Sequence[Known]) -> dict[str, Any]:
    found = _matching(endpoint, known)
    if found is None:
        named = endpoint.get("engine_id") or endpoint.get("url") or "an endpoint without engine_id and url"
        raise RefusedError(
            f"{named} is neither discovered nor configured, so the dashboard does not load it. Add it as [[target]] to "
            "engine-room.toml, or use `python -m loadtest run --url`"
        )
    resolved = {**endpoint, "url": found.url, "api_key_env": found.api_key_env}
    if not endpoint.get("label"):
        resolved["label"] = found.label
    if found.engine is not None:
        resolved["engine_id"] = found.engine.engine_id
        if endpoint.get("model") is None and _is_one_of_several(found, known):
            resolved["model"] = found.epoch.model_id if found.epoch else None
    return resolved


def _is_one_of_several(one: Known, known: Sequence[Known]) -> bool:
    """Whether it is a model of a router: the first one that the router lists may be another."""
    served = [k for k in known if k.engine and one.engine and (k.engine.kind, k.url) == (one.engine.kind, one.url)]
    return len(served) > 1


def _newest_first(known: Known) -> float:
    """Of several engines that were seen at one address, the one whose process began last answers there."""
    return -known.epoch.first_seen.timestamp() if known.epoch else 0.0


def _matching(endpoint: Mapping[str, Any], known: Sequence[Known]) -> Known | None:
    engine_id, url, model = endpoint.get("engine_id"), endpoint.get("url"), endpoint.get("model")
    if engine_id is not None:
        return next((k for k in known if k.engine is not None and k.engine.engine_id == engine_id), None)
    if not isinstance(url, str):
        return None
    there = sorted((k for k in known if address(k.url) == address(url)), key=_newest_first)
    of_model = [k for k in there if k.epoch is not None and model is not None and k.epoch.model_id == model]
    return next(iter(of_model or there), None)


def address(url: str) -> str:
    """Host, port and path in one spelling; all loopback names are the same."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return url
    host = parts.hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{'loopback' if loopback else host}:{port or (443 if parts.scheme == 'https' else 80)}{path}"


def _prompt_file(path: Path, folders: Sequence[Path]) -> Path:
    """`path` with its links followed, in the same words whether or not it exists outside `folders`."""
    try:
        real = path.expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        real = None
    inside = real is not None and any(real.is_relative_to(folder.expanduser().resolve()) for folder in folders)
    if real is None or not inside:
        raise RefusedError(
            f"{path} is in none of the configured prompt folders: add its folder to prompt_folders in "
            "engine-room.toml, or use `python -m loadtest run --prompts`"
        )
    if not real.is_file():
        raise RefusedError(f"{path} is not a file that the collector can read")
    return real
