"""
What a load test is to do: endpoints, levels, lengths, limits. Read from JSON, checked, and stored with the run.

No secret is in it: an endpoint names the environment variable that holds its API key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

MOST_CONCURRENCY = 4096
DEFAULT_LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
LEAST_REQUESTS, REQUESTS_PER_USER = 8, 5


class SpecError(ValueError):
    """The description of a load test is wrong; the message says what and what to do, one line a problem."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class EndpointSpec(_Part):
    """One OpenAI-compatible endpoint. `engine_id` is the collector's, where it knows the engine."""

    url: str = Field(description="base URL, without /v1")
    label: str = Field("", description="what charts call it; empty: host and port")
    model: str | None = Field(None, description="model name to ask for; null: the one that the server lists first")
    api: Literal["completions", "chat"] = "completions"
    api_key_env: str | None = Field(None, description="name of the environment variable that holds the API key")
    engine_id: str | None = None

    @field_validator("url")
    @classmethod
    def _base_url(cls, url: str) -> str:
        parts = urlsplit(url.strip())
        try:
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good:
            raise ValueError(f"{url!r} is not a base URL such as http://127.0.0.1:8000")
        if parts.username or parts.password:
            raise ValueError("the URL must not carry a user or password; name the key's variable in api_key_env")
        if parts.query or parts.fragment:
            raise ValueError(f"{url!r}: give the base URL only, without ? or #")
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"

    @property
    def name(self) -> str:
        """What it is called: the label, else host and port."""
        return self.label or urlsplit(self.url).netloc


class InputSpec(_Part):
    """
    The prompts. Lengths are tokens as the server counts them.

    `synthetic`: random common words; `text`: passages of the shipped book; `file`: the user's JSONL, one object a line
    with `prompt` or `messages` and optionally `output_tokens`. Unless `cached`, each prompt begins with words that no
    other prompt of any run begins with, so that no prefix cache can serve it; with it, nine tenths of each prompt are
    the same.
    """

    kind: Literal["synthetic", "text", "file"] = "synthetic"
    distribution: Literal["fixed", "uniform", "lognormal"] = "fixed"
    tokens: int = Field(1000, ge=1, le=1_000_000, description="fixed: the length; log-normal: the median")
    tokens_min: int | None = Field(None, ge=1, description="uniform and log-normal: least length")
    tokens_max: int | None = Field(None, ge=1, le=1_000_000, description="uniform and log-normal: greatest length")
    sigma: float = Field(0.5, gt=0, le=3, description="log-normal: standard deviation of the logarithm")
    path: str | None = Field(None, description="file: the JSONL file")
    cached: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> InputSpec:
        if self.kind == "file" and not self.path:
            raise ValueError("prompts from a file need its path")
        if self.kind != "file" and self.path:
            raise ValueError(f"a path was given, but the prompts are {self.kind!r}; set kind to 'file' or leave it out")
        if self.distribution == "uniform" and (self.tokens_min is None or self.tokens_max is None):
            raise ValueError("uniform lengths need tokens_min and tokens_max")
        if self.tokens_min is not None and self.tokens_max is not None and self.tokens_min > self.tokens_max:
            raise ValueError(f"tokens_min ({self.tokens_min}) is greater than tokens_max ({self.tokens_max})")
        return self


class OutputSpec(_Part):
    """How many tokens each request is to produce. With `ignore_eos` exactly as many, which the run verifies."""

    tokens: int = Field(200, ge=1, le=1_000_000)
    ignore_eos: bool = True


class WarmupSpec(_Part):
    """
    Batches of one request a user, with prompts of their own, before each stage; none of them is measured.

    The first time that an endpoint meets a level, batches go on until the output tokens per second of two successive
    ones differ by at most `stable_fraction` of the greater, at most `most_batches` and `most_seconds`. Later repeats
    get one batch. `most_batches` 0 leaves warm-up out.
    """

    stable_fraction: float = Field(0.1, gt=0, le=1)
    most_batches: int = Field(6, ge=0, le=100)
    most_seconds: float = Field(120.0, gt=0)
    output_tokens: int = Field(32, ge=1, description="of a warm-up request; at most those of a measured one")


class Limits(_Part):
    """What ends a run, whatever its plan says. What was measured until then stays valid."""

    seconds: float = Field(7200.0, gt=0, description="of the whole run")
    requests: int = Field(200_000, ge=1, description="of the whole run, warm-up left out")
    failed_fraction: float = Field(0.5, gt=0, le=1, description="share of failed requests that ends a stage early")
    stall_seconds: float = Field(120.0, gt=0, description="a request that receives nothing for so long has failed")
    answer_bytes: int = Field(64_000_000, ge=10_000, description="a longer answer is given up")


class Slo(_Part):
    """What counts as good service. A request is good when it meets every stated one."""

    ttft_seconds: float | None = Field(None, gt=0)
    tpot_seconds: float | None = Field(None, gt=0)
    e2e_seconds: float | None = Field(None, gt=0)

    @property
    def stated(self) -> bool:
        """Whether there is any."""
        return any(value is not None for value in (self.ttft_seconds, self.tpot_seconds, self.e2e_seconds))


class Spec(_Part):
    """
    A load test. `levels` are concurrent users (`closed`) or requests per second (`constant`, `poisson`).

    Each stage sends `requests` requests, or new ones for `duration_seconds`, whichever ends first; with neither,
    five a user and at least eight (open loop: thirty seconds of them). The sweep of a closed loop always has level 1.
    """

    endpoints: tuple[EndpointSpec, ...] = Field(min_length=1, max_length=16)
    mode: Literal["closed", "constant", "poisson"] = "closed"
    levels: tuple[float, ...] = Field(DEFAULT_LEVELS, min_length=1, max_length=64)
    repeats: int = Field(3, ge=1, le=100)
    interleave: bool = True
    input: InputSpec = Field(default_factory=InputSpec)
    output: OutputSpec = Field(default_factory=OutputSpec)
    requests: int | None = Field(None, ge=1, le=1_000_000, description="per stage")
    duration_seconds: float | None = Field(None, gt=0, description="per stage")
    warmup: WarmupSpec = Field(default_factory=WarmupSpec)
    limits: Limits = Field(default_factory=Limits)
    slo: Slo = Field(default_factory=Slo)
    seed: int | None = Field(None, ge=0, lt=2**63, description="null: a new one for every run")
    max_in_flight: int = Field(512, ge=1, le=MOST_CONCURRENCY, description="open loop: requests in flight at most")

    @field_validator("levels")
    @classmethod
    def _positive(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        if any(level <= 0 for level in levels):
            raise ValueError("levels must be greater than 0")
        return tuple(dict.fromkeys(levels))

    @model_validator(mode="after")
    def _agrees(self) -> Spec:
        if self.mode == "closed":
            wrong = [level for level in self.levels if level != int(level) or level > MOST_CONCURRENCY]
            if wrong:
                raise ValueError(f"concurrency must be a whole number from 1 to {MOST_CONCURRENCY}, not {wrong[0]:g}")
            if self.requests is not None and self.requests < self.swept_levels[-1]:
                raise ValueError(
                    f"{self.requests} requests keep no {self.swept_levels[-1]:g} users busy; "
                    "a stage needs at least one a user, better five"
                )
        names = [endpoint.name for endpoint in self.endpoints]
        if len(set(names)) < len(names):
            raise ValueError("two endpoints have the same name; give each a label of its own")
        return self

    @property
    def swept_levels(self) -> tuple[float, ...]:
        """The levels that are run, rising; a closed loop has level 1 among them, whether asked for or not."""
        return tuple(sorted({*self.levels, 1.0} if self.mode == "closed" else self.levels))

    @property
    def most_in_flight(self) -> int:
        """Most requests that one endpoint is ever asked at once."""
        return int(self.swept_levels[-1]) if self.mode == "closed" else self.max_in_flight

    def stage_requests(self, level: float) -> int | None:
        """How many requests a stage at `level` sends at most; None: as many as its duration allows."""
        if self.requests is not None:
            return self.requests
        if self.duration_seconds is not None:
            return None
        if self.mode == "closed":
            return max(LEAST_REQUESTS, REQUESTS_PER_USER * int(level))
        return max(LEAST_REQUESTS, math.ceil(30 * level))

    @classmethod
    def from_json(cls, given: str | bytes | Mapping[str, Any]) -> Spec:
        """Read and check a description. Raises `SpecError`."""
        try:
            return cls.model_validate(given) if isinstance(given, Mapping) else cls.model_validate_json(given)
        except ValidationError as wrong:
            raise SpecError("\n".join(_sentences(wrong))) from wrong

    def to_json(self) -> str:
        """One JSON object; `from_json` reads it."""
        return json.dumps(self.model_dump(mode="json"), allow_nan=False)


def _sentences(wrong: ValidationError) -> list[str]:
    """Each problem that pydantic found, for a person; not that a list is short of the entries that were wrong."""
    problems = wrong.errors()
    inner = {problem["loc"][0] for problem in problems if len(problem["loc"]) > 1}
    sentences = []
    for problem in problems:
        if problem["type"] == "too_short" and problem["loc"][0] in inner:
            continue
        where = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        sentences.append(f"{where}: {message}" if where else message)
    return sentences
