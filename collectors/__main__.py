"""`python -m collectors run | once | probe URL | engines | status | stop`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, CliApp, CliPositionalArg, CliSubCommand, SettingsConfigDict

import settings as configuration
from collectors import lifecycle, logs
from collectors.daemon import Collector
from collectors.engines import ADAPTERS
from collectors.offers import offers_document, offers_markdown
from collectors.probe import Probed, probe, survey
from collectors.redaction import redact_url
from collectors.registry import Registry
from collectors.report import facts_text, table_text, text
from loadtest.commands import LoadtestCommands
from loadtest.endpoints import Known, known_endpoints
from loadtest.ingest import Run as LoadtestOfEngines
from loadtest.ingest import Stage
from loadtest.manager import Manager
from loadtest.resources import after_stage
from store.client import StoreClient
from store.local import LocalStore
from store.model import Row
from store.protocol import StoreError, StoreUnavailableError
from store.writer import Writer

EXIT_FAILED = 1
EXIT_NOT_IDENTIFIED = 3

JsonFlag = Field(False, alias="json", description="print one JSON document")


class Run(BaseModel):
    """Sample everything until stopped (SIGTERM, Ctrl-C or `stop`)."""

    started_by: Literal["person", "server"] = Field("person", description="who started it; a server's ends with it")

    def cli_cmd(self) -> None:
        """Run in the foreground."""
        logs.configure()
        settings = configuration.load()
        try:
            Collector(settings, self.started_by, _load_tests).run()
        except (lifecycle.AlreadyRunningError, StoreError) as refused:
            lifecycle.record_failure(settings, str(refused))
            sys.exit(f"collectors: {refused}")


def _load_tests(
    settings: configuration.Settings, writer: Writer, reads: LocalStore, registry: Registry
) -> LoadtestCommands:
    """What carries out load tests in a collector. Here, so that nothing else that collects knows of it."""
    targets = [(target.url, target.name, target.api_key_env) for target in settings.target]

    def known() -> list[Known]:
        return known_endpoints([(e, registry.epoch_of(e.engine_id)) for e in registry.engines()], targets)

    def after(run: LoadtestOfEngines, stage: Stage) -> Sequence[Row]:
        return after_stage(reads, registry.epoch_of, settings.host, run, stage)

    manager = Manager(settings, writer, registry.epoch_of, after)
    return LoadtestCommands(settings, writer, reads, manager, known)


class Once(BaseModel):
    """Discover, sample everything once, print it, store nothing."""

    as_json: bool = JsonFlag

    def cli_cmd(self) -> None:
        """Print engines, devices and the host."""
        found = survey(configuration.load())
        if self.as_json:
            _print_json(found.document())
            return
        if not found.engines:
            print("No engine found. Looked for: " + ", ".join(found.looked_for) + ".")
        for engine in found.engines:
            _print_probed(engine)
        print(facts_text("host", {k: v for k, v in asdict(found.host).items() if k not in ("ts", "host")}))
        print(facts_text("devices", {"state": found.devices.state, "detail": found.devices.detail}))
        for sample in found.devices.samples:
            print(facts_text(sample.device_id, {k: v for k, v in asdict(sample).items() if k not in ("ts", "host")}))


class Probe(BaseModel):
    """Identify and sample one endpoint. Exit 0 when it was identified, 3 when not."""

    url: CliPositionalArg[str] = Field(description="base URL, e.g. http://127.0.0.1:8000")
    api_key_env: str | None = Field(None, description="environment variable that holds the endpoint's API key")
    as_json: bool = JsonFlag

    def cli_cmd(self) -> None:
        """Print identity and quantities."""
        try:
            target = configuration.Target(url=self.url, api_key_env=self.api_key_env)
        except ValueError as wrong:
            sys.exit(f"collectors: {wrong}")
        found = probe(target, configuration.load())
        if isinstance(found, Probed):
            _print_json(found.document()) if self.as_json else _print_probed(found)
            return
        print(f"collectors: {redact_url(target.url)}: {found}", file=sys.stderr)
        if self.as_json:
            _print_json({"engine": None, "url": redact_url(target.url), "error": found})
        sys.exit(EXIT_NOT_IDENTIFIED)


class Engines(BaseModel):
    """List the engines that are known, and which quantities each of them offers."""

    markdown: bool = Field(False, description="print the tables of the README")
    as_json: bool = JsonFlag

    def cli_cmd(self) -> None:
        """Print what the adapters declare."""
        if self.markdown:
            print(offers_markdown(ADAPTERS), end="")
            return
        document = offers_document(ADAPTERS)
        if self.as_json:
            _print_json(document)
            return
        for engine in document:
            print(f"{engine['title']} (port {', '.join(map(str, engine['usual_ports']))}): {engine['start_hint']}")
            rows = [
                [name, entry.get("source", "not offered"), entry.get("condition") or entry.get("reason") or ""]
                for name, entry in engine["quantities"].items()
            ]
            print(table_text(["quantity", "read from", "when, or why not"], rows))


class Status(BaseModel):
    """Say whether a collector runs, since when and how the store is."""

    as_json: bool = JsonFlag

    def cli_cmd(self) -> None:
        """Exit 0 when one runs, 3 when none does."""
        settings = configuration.load()
        holder = lifecycle.lock_of(settings).holder()
        document: dict[str, Any] = {"running": holder is not None, "pid": holder, "data": str(settings.data)}
        try:
            client = StoreClient(settings)
            document |= client.health()
            document["store"] = client.query("status").to_pylist()[0]
        except StoreUnavailableError as none:
            document["message"] = str(none)
        if self.as_json:
            _print_json(document)
        else:
            kinds = [kind["title"] for kind in document.get("looked_for", ())]
            print(facts_text("collector", {**document, "looked_for": kinds}))
        sys.exit(0 if holder is not None else EXIT_NOT_IDENTIFIED)


class Stop(BaseModel):
    """End the running collector after it has stored what it holds."""

    def cli_cmd(self) -> None:
        """Exit 0 when it ended, 3 when none ran."""
        settings = configuration.load()
        try:
            stopped = lifecycle.stop(settings)
        except TimeoutError as slow:
            sys.exit(f"collectors: {slow}")
        except PermissionError:
            sys.exit("collectors: the collector belongs to another user; stop it as that user.")
        print("stopped" if stopped else f"no collector runs on {settings.data}")
        sys.exit(0 if stopped else EXIT_NOT_IDENTIFIED)


class Cli(BaseSettings):
    """Engine Room's collector: finds inference engines on this host and samples them into DuckDB."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m collectors",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        env_prefix="ENGINE_ROOM_CLI_",
    )

    run: CliSubCommand[Run]
    once: CliSubCommand[Once]
    probe: CliSubCommand[Probe]
    engines: CliSubCommand[Engines]
    status: CliSubCommand[Status]
    stop: CliSubCommand[Stop]

    def cli_cmd(self) -> None:
        """Hand over to the sub-command."""
        CliApp.run_subcommand(self)


def _print_probed(found: Probed) -> None:
    document = found.document()
    quantities, not_read = document.pop("quantities"), document.pop("not_read")
    print(facts_text(f"{document.pop('engine')} at {document.pop('url')}", document))
    print(
        table_text(
            ["quantity", "value", "unit", "source"],
            [[name, _short(entry["value"]), entry["unit"], entry["source"]] for name, entry in quantities.items()],
        )
    )
    print(
        table_text(
            ["not read", "why", "what to do"],
            [[name, absence["reason"], absence["remedy"] or ""] for name, absence in not_read.items()],
        )
    )


def _short(value: Any) -> Any:
    """A histogram in a word; anything else as it is."""
    if not isinstance(value, dict):
        return value
    return f"{text(value['count'])} observations, sum {text(value['sum_seconds'])}"


def _print_json(document: dict[str, Any] | list[dict[str, Any]]) -> None:
    def plain(value: Any) -> str:
        return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)

    json.dump(document, sys.stdout, indent=2, default=plain, allow_nan=False)
    print()


if __name__ == "__main__":
    try:
        CliApp.run(Cli)
    except BrokenPipeError:  # the reader of a pipe (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
