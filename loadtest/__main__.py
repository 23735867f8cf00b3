"""`python -m loadtest run | import`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator
from pydantic_settings import BaseSettings, CliApp, CliPositionalArg, CliSubCommand, SettingsConfigDict

import settings as configuration
from loadtest import command_line, display, importing, results
from loadtest.importers import ImportFailedError
from loadtest.spec import DEFAULT_LEVELS, Spec, SpecError
from store.protocol import StoreError

EXIT_FAILED, EXIT_WRONG_QUESTION, EXIT_NOT_TRUSTED = 1, 2, 4


class Run(BaseModel):
    """
    Sweep one or more OpenAI-compatible endpoints and print what came out.

    Exit status: 0 measured, 1 failed, 2 the question is wrong, 4 measured but judged not to be trusted.
    """

    url: list[str] = Field(min_length=1, description="base URL of an endpoint; repeat it to compare several")
    label: list[str] = Field([], description="what to call them, in the order of the URLs")
    model: list[str] = Field([], description="model names to ask for, one for all or one a URL")
    api: Literal["completions", "chat"] = "completions"
    api_key_env: list[str] = Field([], description="environment variables with API keys, one for all or one a URL")
    concurrency: list[int] = Field([], description="users of a closed loop, such as 1,4,8")
    rate: list[float] = Field([], description="requests per second of an open loop, instead of concurrency")
    poisson: bool = Field(False, description="with a rate: arrivals that know nothing of each other")
    max_in_flight: int = Field(512, description="with a rate: requests in flight at most")
    input_tokens: int = Field(1000, description="prompt length")
    input_min: int | None = Field(None, description="least prompt length; with input-max: uniform lengths")
    input_max: int | None = Field(None, description="greatest prompt length")
    input_sigma: float | None = Field(None, description="log-normal lengths about input-tokens with this sigma")
    output_tokens: int = Field(200, description="answer length")
    until_eos: bool = Field(False, description="let answers end by themselves, at most at output-tokens")
    text: bool = Field(False, description="prompts from the shipped book instead of random words")
    prompts: str | None = Field(None, description="JSONL of your own prompts: prompt or messages, output_tokens")
    cached: bool = Field(False, description="prompts that share nine tenths, to hit a prefix cache")
    requests: int | None = Field(None, description="requests per stage; default five a user, at least eight")
    duration: float | None = Field(None, description="seconds per stage")
    repeats: int = 3
    interleave: bool = Field(True, description="endpoints take turns (A B B A) instead of one after the other")
    warmup: bool = Field(True, description="warm up before each stage")
    seed: int | None = Field(None, description="repeat the work of another run; prompts begin differently all the same")
    slo_ttft: float | None = Field(None, description="seconds; a good request has no greater TTFT")
    slo_tpot: float | None = Field(None, description="seconds; a good request has no greater TPOT")
    slo_e2e: float | None = Field(None, description="seconds; a good request takes no longer")
    max_seconds: float = Field(7200.0, description="ends the whole run")
    stall_seconds: float = Field(120.0, description="a request that receives nothing for so long has failed")
    name: str = Field("", description="what to call the run")
    as_json: bool = Field(False, alias="json", description="print one JSON document")

    @field_validator("url", "label", "model", "api_key_env", "concurrency", "rate", mode="before")
    @classmethod
    def _lists(cls, given: Any) -> Any:
        """Options may be repeated or hold several values with commas between them."""
        parts = given if isinstance(given, list) else [given]
        return [part for entry in parts for part in (entry.split(",") if isinstance(entry, str) else [entry]) if part]

    def cli_cmd(self) -> None:
        """Run it."""
        settings = configuration.load()
        try:
            spec = self.spec()
            outcome = command_line.run(spec, self.name or _name(spec), settings)
        except SpecError as wrong:
            print(f"loadtest: {wrong}", file=sys.stderr)
            sys.exit(EXIT_WRONG_QUESTION)
        except (StoreError, OSError) as refused:
            sys.exit(f"loadtest: {refused}")
        if self.as_json:
            told = (outcome.run_id, outcome.stages, outcome.judgements, outcome.ended, outcome.not_judged)
            print(results.json_document(*told))
        else:
            print(display.stages_table(outcome.stages), end="\n\n")
            print("\n".join(display.judgement_lines(outcome.judgements, outcome.stages)))
            print(f"what else was at work is not known: {outcome.not_judged}\n" if outcome.not_judged else "")
            print(f"stored as {outcome.run_id}" if outcome.stored else "not stored: no collector followed the run")
            for _, _, found in results.crossovers(outcome.stages, outcome.judgements):
                print(found.sentence)
        if outcome.failed is not None:
            sys.exit(f"loadtest: {outcome.failed}")
        sys.exit(0 if outcome.trusted else EXIT_NOT_TRUSTED)

    def spec(self) -> Spec:
        """What was asked for. Raises `SpecError`."""
        if self.concurrency and self.rate:
            raise SpecError("give concurrency or rate, not both")
        if self.poisson and not self.rate:
            raise SpecError("poisson needs a rate")
        uniform = self.input_min is not None and self.input_max is not None and self.input_sigma is None
        return Spec.from_json(
            {
                "endpoints": [
                    {
                        "url": url,
                        "label": _of(self.label, index, "label", len(self.url), required=True) or "",
                        "model": _of(self.model, index, "model", len(self.url)),
                        "api_key_env": _of(self.api_key_env, index, "api-key-env", len(self.url)),
                        "api": self.api,
                    }
                    for index, url in enumerate(self.url)
                ],
                "mode": ("poisson" if self.poisson else "constant") if self.rate else "closed",
                "levels": self.rate or self.concurrency or DEFAULT_LEVELS,
                "repeats": self.repeats,
                "interleave": self.interleave,
                "input": {
                    "kind": "file" if self.prompts else "text" if self.text else "synthetic",
                    "distribution": "lognormal" if self.input_sigma else "uniform" if uniform else "fixed",
                    "tokens": self.input_tokens,
                    "tokens_min": self.input_min,
                    "tokens_max": self.input_max,
                    "path": self.prompts,
                    "cached": self.cached,
                }
                | ({"sigma": self.input_sigma} if self.input_sigma else {}),
                "output": {"tokens": self.output_tokens, "ignore_eos": not self.until_eos},
                "requests": self.requests,
                "duration_seconds": self.duration,
                "warmup": {} if self.warmup else {"most_batches": 0},
                "limits": {"seconds": self.max_seconds, "stall_seconds": self.stall_seconds},
                "slo": {"ttft_seconds": self.slo_ttft, "tpot_seconds": self.slo_tpot, "e2e_seconds": self.slo_e2e},
                "seed": self.seed,
                "max_in_flight": self.max_in_flight,
            }
        )


class Import(BaseModel):
    """
    Keep result files of other tools beside our own runs; without a collector they are only shown.

    Known are vllm bench serve, guidellm, AIPerf, llama-bench and llama-benchy. All of the files are taken, or none.
    """

    files: CliPositionalArg[list[Path]] = Field(description="result files")
    name: str = Field("", description="what to call the runs")
    as_json: bool = Field(False, alias="json", description="print one JSON document")

    def cli_cmd(self) -> None:
        """Import them."""
        try:
            found = importing.import_files(self.files, self.name, configuration.load())
        except OSError as error:
            sys.exit(f"loadtest: {error.filename}: {error.strerror}")
        except (ImportFailedError, StoreError) as refused:
            sys.exit(f"loadtest: {refused}")
        if self.as_json:
            print(found.json_document())
            return
        for run in found.runs:
            print(display.stages_table(run.stages))
        print("\n".join(found.notes))
        print(f"stored as {', '.join(found.stored_as)}" if found.stored_as else "not stored: no collector answers")


class Cli(BaseSettings):
    """Engine Room's load test: what engines do under so many users, measured so that it can be defended."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m loadtest",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        env_prefix="ENGINE_ROOM_CLI_",
    )

    run: CliSubCommand[Run]
    import_: CliSubCommand[Import] = Field(alias="import")

    def cli_cmd(self) -> None:
        """Hand over to the sub-command."""
        CliApp.run_subcommand(self)


def _of(given: list[str], index: int, name: str, urls: int, *, required: bool = False) -> str | None:
    """The value for a URL: one for all, or one each. Raises `SpecError` for another number."""
    if not given:
        return None
    if len(given) == 1 and not (required and urls > 1):
        return given[0]
    if len(given) != urls:
        raise SpecError(f"{name}: {len(given)} were given for {urls} URLs")
    return given[index]


def _name(spec: Spec) -> str:
    """What a run is called that was given no name."""
    return " and ".join(endpoint.name for endpoint in spec.endpoints)


if __name__ == "__main__":
    try:
        CliApp.run(Cli)
    except BrokenPipeError:  # the reader of a pipe (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
