"""
Which endpoints are worth asking: configured targets, sockets of engine-like processes, usual ports.

Nothing is asked here. `collectors.probing.Prober` identifies what answers; a port never does.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from collectors.engines.base import Adapter, Child, Endpoint
from collectors.engines.commandline import options_of
from collectors.processes import ListeningSocket, Process, ProcessSnapshot
from collectors.redaction import redact_arguments
from settings import Settings, Target

CONFIGURED = "configuration"

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (recognised, not bound)
_ENVIRONMENT = re.compile(r"(LLAMA_ARG|VLLM|OLLAMA|SGLANG)_\w+|PORT|(CUDA|NVIDIA|HIP|ROCR|GPU)_\w*VISIBLE\w*")
_ENVIRONMENT_EXCEPT = re.compile(r"PROMPT|TEMPLATE")
# Children that serve HTTP for their root; other children's sockets are internal to the engine.
_SERVER_TITLES = ("::APIServer", "text-generation-router", "vllm-rs")
# Programs that listen for a process elsewhere: their memory is not the engine's.
_FORWARDERS = frozenset(
    ("docker-proxy", "rootlessport", "slirp4netns", "pasta", "passt", "gvproxy", "ssh", "sshd", "socat", "kubectl",
     "nginx", "haproxy", "caddy", "traefik", "envoy", "com.docker.backend")
)  # fmt: skip


def candidates(settings: Settings, adapters: Sequence[Adapter], snapshot: ProcessSnapshot) -> list[Endpoint]:
    """
    The endpoints of this moment, each once: configured ones first, then sockets of engines, then usual ports.

    `snapshot` must have been taken with its sockets. An endpoint's process is the root of the engine's tree:
    the topmost engine-like process above the one that listens. Sockets between the processes of one engine,
    and those of the children of a llama.cpp router or of Ollama, are not listed. An engine-like process
    that does not listen yet is listed at the address that its arguments name, or at its usual port.
    """
    view = _View(tuple(adapters), snapshot, sorted(snapshot.sockets or (), key=_preference))
    for target in settings.target:
        view.add_configured(target)
    if settings.collector.discover:
        for root in view.roots.values():
            view.add_engine(root)
        view.add_usual(frozenset(settings.collector.ports))
    return view.endpoints


@lru_cache(maxsize=8192)
def _adapter_of(adapters: tuple[Adapter, ...], arguments: tuple[str, ...], title: str) -> Adapter | None:
    return next((adapter for adapter in adapters if adapter.looks_like(arguments, title)), None)


@dataclass
class _View:
    adapters: tuple[Adapter, ...]
    snapshot: ProcessSnapshot
    sockets: list[ListeningSocket]
    endpoints: list[Endpoint] = field(default_factory=list)
    taken: set[tuple[int | str | None, int]] = field(default_factory=set)  # (process or address, port)

    def __post_init__(self) -> None:
        self.roots: dict[int, Process] = {}  # pid of each engine-like process -> its root
        for pid, process in self.snapshot.processes.items():
            if self.adapter(process):
                root = self.snapshot.root_of(pid, lambda candidate: self.adapter(candidate) is not None)
                if root is not None:
                    self.roots[pid] = root
        self.roots = {root.pid: root for root in self.roots.values()}
        self.declared = {
            pid: _declared(root, adapter)
            for pid, root in self.roots.items()
            if (adapter := self.adapter(root)) and "::" not in root.title  # else a worker that outlived its root
        }
        self.published = self.published_engines()

    def adapter(self, process: Process) -> Adapter | None:
        return _adapter_of(self.adapters, process.arguments, process.title)

    def root_of(self, pid: int | None) -> Process | None:
        """The engine that a process belongs to, or None."""
        roots = [p for p in self.snapshot.line(pid) if p.pid in self.roots] if pid is not None else []
        return roots[-1] if roots else None

    def published_engines(self) -> dict[int, Process]:
        """
        Engines whose own sockets can't be seen (containers, other users), by the port of this host that leads there.

        That is the port that docker-proxy forwards to the engine's port, or the same port where its listener can't
        be seen either. Where two such engines name the same port, nothing tells them apart, and neither is taken.
        """
        owners = {listener.pid for listener in self.sockets}
        hidden: dict[int, list[Process]] = {}
        for pid, declared in self.declared.items():
            tree = {process.pid for process in self.snapshot.tree(pid)}
            if declared.serves and not tree & owners and not _sockets_visible(self.roots[pid]):
                hidden.setdefault(declared.port, []).append(self.roots[pid])
        forwards = _docker_forwards(self.snapshot)
        return {
            listener.port: there[0]
            for listener in self.sockets
            if self.root_of(listener.pid) is None
            and self.listener(listener) is None
            and len(there := hidden.get(forwards.get(listener.port, listener.port), [])) == 1
        }

    def behind(self, listener: ListeningSocket) -> Process | None:
        """The process that answers at a socket: the root of its engine, or the one that listens."""
        return self.root_of(listener.pid) or self.listener(listener) or self.published.get(listener.port)

    def add(self, url: str, port: int, found_by: str, process: Process | None, target: Target | None = None) -> None:
        key = (process.pid if process else urlsplit(url).hostname, port)
        if target is None and key in self.taken:
            return
        self.taken.add(key)
        self.endpoints.append(
            Endpoint(
                url=url,
                found_by=found_by,
                name=target.name if target else None,
                pid=process.pid if process else None,
                process_start=process.start if process else None,
                arguments=redact_arguments(process.arguments) if process else (),
                process_environment=_environment(process) if process else {},
                api_key=target.api_key if target else None,
                children=self.children(process) if process else (),
            )
        )

    def add_configured(self, target: Target) -> None:
        """A target is listed whatever runs there; with the process behind it where that runs here and can be seen."""
        if any(endpoint.url == target.url for endpoint in self.endpoints):
            return
        parts = urlsplit(target.url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        listener = next((s for s in self.sockets if s.port == port and _reaches(host, s.address)), None)
        if listener is not None:
            process = self.behind(listener)
            self.taken.add((_host_of(listener.address), port))
        else:  # an engine that does not listen yet
            starting = [pid for pid, d in self.declared.items() if d.port == port and _reaches(host, d.host)]
            process = self.roots[starting[0]] if starting else None
        self.add(target.url, port, CONFIGURED, process, target)

    def add_engine(self, root: Process) -> None:
        """The HTTP sockets of one engine, or the address at which it is going to listen."""
        adapter, declared = self.adapter(root), self.declared.get(root.pid)
        if adapter is None or declared is None:
            return
        tree = {process.pid: process for process in self.snapshot.tree(root.pid)}
        own = [listener for listener in self.sockets if listener.pid in tree]
        serving = [listener for listener in own if listener.port == declared.port] or [
            listener for listener in own if any(t in tree[listener.pid or 0].title for t in _SERVER_TITLES)
        ]
        if not serving and not declared.explicit:  # the port may stand in a configuration file
            serving = [listener for listener in own if listener.pid == root.pid]
        published = [listener for listener in self.sockets if self.published.get(listener.port) is root]
        for listener in serving or published:
            if (host := _host_of(listener.address)) is not None:
                how = "listens on" if serving else "is reached through"
                found_by = f"process {root.pid} {how} {_join(listener.address, listener.port)}"
                self.add(declared.url(host, listener.port), listener.port, found_by, root)
        occupied = any(listener.port == declared.port for listener in self.sockets)
        if not serving and not occupied and declared.serves and _sockets_visible(root):
            found_by = f"process {root.pid} looks like {adapter.title}; nothing listens on port {declared.port} yet"
            self.add(declared.url(_WILDCARDS.get(declared.host, declared.host), declared.port), declared.port,
                     found_by, root)  # fmt: skip

    def children(self, root: Process) -> tuple[Child, ...]:
        """The llama-servers below a router or Ollama. They listen on loopback, each on the port it was given."""
        found = []
        for process in self.snapshot.tree(root.pid)[1:]:
            adapter = self.adapter(process)
            if adapter is None or adapter.kind != "llama.cpp" or process.arguments == root.arguments:
                continue
            port = options_of(process.arguments).integer("--port")
            listens = any(s.pid == process.pid and s.port == port for s in self.sockets)
            url = f"http://127.0.0.1:{port}" if listens else None
            found.append(Child(process.pid, process.start, redact_arguments(process.arguments), url))
        return tuple(found)

    def add_usual(self, further: frozenset[int]) -> None:
        """Whoever listens on a usual or configured port, and those ports unseen where sockets can't be listed."""
        usual = {port: f"usual for {a.title}" for a in reversed(self.adapters) for port in a.usual_ports}
        usual |= dict.fromkeys(further, "named in collector.ports")
        for listener in self.sockets:
            host = _host_of(listener.address)
            if listener.port not in usual or host is None or self.root_of(listener.pid) or self.is_ours(listener.pid):
                continue
            process = self.behind(listener)
            who = f"process {process.pid}" if process else "a process that can't be seen here"
            found_by = f"{who} listens on {_join(listener.address, listener.port)}, {usual[listener.port]}"
            self.add(f"http://{_join(host, listener.port)}", listener.port, found_by, process)
        if not self.snapshot.sockets_complete:
            seen = {listener.port for listener in self.sockets}
            for port in sorted(usual.keys() - seen):
                self.add(f"http://127.0.0.1:{port}", port, f"port {port}, {usual[port]}", None)

    def listener(self, listener: ListeningSocket) -> Process | None:
        """
        The process that listens, unless it only forwards to another one.

        A forked worker has the command line of the server that forked it: then it is that server.
        """
        line = list(self.snapshot.line(listener.pid)) if listener.pid is not None else []
        while len(line) > 1 and line[0].arguments and line[0].arguments == line[1].arguments:
            line.pop(0)
        return line[0] if line and line[0].title not in _FORWARDERS else None

    def is_ours(self, pid: int | None) -> bool:
        """Whether the process is this collector or the web server that started it."""
        if pid == os.getpid():
            return True
        process = self.snapshot.get(pid)
        return process is not None and process.pid == os.getppid() and any("streamlit" in a for a in process.arguments)


@dataclass(frozen=True, slots=True)
class _Declared:
    """Where an engine's arguments and environment say that it listens."""

    host: str
    port: int
    explicit: bool  # the port was named, not assumed
    serves: bool  # False: it was told not to listen on TCP
    scheme: str
    prefix: str

    def url(self, host: str, port: int) -> str:
        return f"{self.scheme}://{_join(host, port)}{self.prefix}"


def _declared(process: Process, adapter: Adapter) -> _Declared:
    options = options_of(process.arguments)
    environment = _environment(process)
    host, port = options.text("--host"), options.text("--port")
    if adapter.kind == "llama.cpp":
        host, port = host or environment.get("LLAMA_ARG_HOST"), port or environment.get("LLAMA_ARG_PORT")
    elif adapter.kind == "tgi":
        port = port or options.text("-p") or environment.get("PORT")
    elif adapter.kind == "ollama" and (address := environment.get("OLLAMA_HOST")):
        host, _, port = address.rpartition("//")[2].rstrip("/").rpartition(":")
    host, port = (host or "127.0.0.1").strip("[]"), port or ""
    explicit = port.isdigit() and 0 < int(port) < 65536
    tls = options.has("--ssl-keyfile", "--ssl-key-file", "--ssl-certfile", "--ssl-cert-file")
    prefix = (options.text("--api-prefix") or "").rstrip("/")
    return _Declared(
        host=host,
        port=int(port) if explicit else adapter.usual_ports[0],
        explicit=explicit,
        serves=not options.has("--headless", "--uds") and not host.endswith(".sock"),
        scheme="https" if tls else "http",
        prefix=prefix if prefix.startswith("/") else "",
    )


def _environment(process: Process) -> Mapping[str, str]:
    return _read_environment(process.pid, process.start, process.arguments)


@lru_cache(maxsize=512)
def _read_environment(pid: int, start: float, arguments: tuple[str, ...]) -> Mapping[str, str]:
    """Allow-listed variables without those that look secret; empty where it may not be read. One read a life."""
    try:
        everything = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return {}
    return {
        name: value
        for name, value in sorted(everything.items())
        if _ENVIRONMENT.fullmatch(name)
        and not _ENVIRONMENT_EXCEPT.search(name)
        and redact_arguments((f"{name}={value}",)) == (f"{name}={value}",)
    }


def _sockets_visible(process: Process) -> bool:
    """
    Whether a socket of the process would be in the snapshot.

    It would not be when the process is another user's or lives in another network namespace (a
    container): then nothing may be concluded from its absence.
    """
    try:
        if psutil.LINUX:
            return Path(f"/proc/{process.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
        psutil.Process(process.pid).net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return False
    return True


def _docker_forwards(snapshot: ProcessSnapshot) -> dict[int, int]:
    """Port of this host -> port in the container, from the arguments of Docker's docker-proxy processes."""
    forwards = {}
    for process in snapshot.processes.values():
        if process.title == "docker-proxy":
            options = dict(zip(process.arguments, process.arguments[1:], strict=False))
            here, there = options.get("-host-port", ""), options.get("-container-port", "")
            if here.isdigit() and there.isdigit():
                forwards[int(here)] = int(there)
    return forwards


def _host_of(address: str) -> str | None:
    """The host to connect to for a listener's address; None when there is none (link-local without a zone)."""
    plain = address.removeprefix("::ffff:")
    return None if plain.startswith("fe80") else _WILDCARDS.get(plain, plain)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _preference(listener: ListeningSocket) -> tuple[int, int, str]:
    host = _host_of(listener.address) or "~"
    return listener.port, ("127.0.0.1", "::1").index(host) if host in ("127.0.0.1", "::1") else 2, host


def _reaches(host: str, address: str) -> bool:
    """Whether a URL's host leads to a listener of this host at `address`. Asks no name server."""
    local = host == "localhost" or host == socket.gethostname() or host in _WILDCARDS
    listens_at = _host_of(address)
    if listens_at in ("127.0.0.1", "::1") and (local or host in ("127.0.0.1", "::1")):
        return True
    wildcard = address.removeprefix("::ffff:") in _WILDCARDS
    return host == listens_at or (wildcard and host in _own_addresses())


@lru_cache(maxsize=1)
def _own_addresses() -> frozenset[str]:
    return frozenset(a.address for addresses in psutil.net_if_addrs().values() for a in addresses)
