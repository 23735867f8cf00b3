"""
The only reader of configuration: command line over environment over `engine-room.toml` over defaults.

Environment variables begin with `ENGINE_ROOM_` and nest with two underscores
(`ENGINE_ROOM_COLLECTOR__ENGINE_INTERVAL_SECONDS=5`). The file is `engine-room.toml` in the working
directory, or what `ENGINE_ROOM_CONFIG` names. API keys are never in it: a target names the
environment variable that holds its key.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs
from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)


class Target(BaseModel):
    """An endpoint that a person configured (`[[target]]`), found whether or not its process can be seen."""

    url: str
    name: str | None = None
    api_key_env: str | None = Field(None, description="name of the environment variable that holds the API key")

    @field_validator("url")
    @classmethod
    def _base_url(cls, url: str) -> str:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a base URL such as http://127.0.0.1:8000")
        if parts.username or parts.password:
            raise ValueError("a target's url must not carry a user or password; use api_key_env")
        if parts.query or parts.fragment:
            raise ValueError(f"{url!r}: give the base URL only, without ? or #")
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"

    @property
    def api_key(self) -> str | None:
        """The key from the environment, or None when none is configured or the variable is unset."""
        return os.environ.get(self.api_key_env) if self.api_key_env else None


class CollectorSettings(BaseModel):
    """How often and how patiently to sample."""

    host_interval_seconds: float = Field(1.0, ge=0.2)
    device_interval_seconds: float = Field(1.0, ge=0.2)
    engine_interval_seconds: float = Field(2.0, ge=0.5)
    histogram_interval_seconds: float = Field(10.0, ge=1)
    identity_interval_seconds: float = Field(30.0, ge=1)
    discovery_interval_seconds: float = Field(5.0, ge=1)
    request_timeout_seconds: float = Field(10.0, gt=0, description="an engine that answers later is busy, not down")
    max_body_bytes: int = Field(10_000_000, ge=10_000)
    ports: tuple[int, ...] = Field((), description="further ports to probe besides the engines' usual ones")
    discover: bool = Field(True, description="False: sample only the configured targets")
    start_with_server: bool = Field(True, description="the web server starts a collector when none runs")


class StoreSettings(BaseModel):
    """How the DuckDB file is opened and read."""

    memory_limit: str = "512MB"
    threads: int = Field(default_factory=lambda: max(1, (os.cpu_count() or 2) // 2), ge=1)
    read_limit: int = Field(2, ge=1, description="reads that may run at once")
    read_timeout_seconds: float = Field(10.0, gt=0)
    archive: bool = Field(False, description="keep raw rows as daily Parquet files before retention deletes them")
    low_free_bytes: int = Field(2_000_000_000, ge=0, description="warn when the data folder's disk has less room")
    low_days: float = Field(7.0, ge=0, description="warn when the disk is full sooner, at the present growth")
    raw_days: int = Field(7, ge=2, description="days that samples are kept for; rollups by the minute follow")
    detail_days: int = Field(1, ge=1, description="days of histograms every 10 s and of how each sampling went")
    minute_days: int = Field(90, ge=2, description="days of rollups by the minute; those by the hour stay for ever")

    @model_validator(mode="after")
    def _coarser_is_kept_longer(self) -> StoreSettings:
        if not self.detail_days <= self.raw_days <= self.minute_days:
            raise ValueError(
                f"store.detail_days ({self.detail_days}), raw_days ({self.raw_days}) and minute_days "
                f"({self.minute_days}) must not fall: the finer rows are what the coarser ones are made of"
            )
        return self


class Settings(BaseSettings):
    """Everything that can be configured."""

    model_config = SettingsConfigDict(
        env_prefix="ENGINE_ROOM_", env_nested_delimiter="__", extra="forbid", validate_default=True
    )

    data: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("engine-room", appauthor=False)),
        description="folder of telemetry.duckdb",
    )
    host: str = Field(default_factory=socket.gethostname, description="name of this host in every row")
    target: tuple[Target, ...] = ()
    model_folders: tuple[Path, ...] = Field(
        (), description="folders from which the Memory page may read model files; running engines' own are added"
    )
    prompt_folders: tuple[Path, ...] = Field(
        (), description="folders from which a load test that a page starts may read prompts"
    )
    llama_fit_params: Path | None = Field(None, description="llama.cpp's own estimator, where it is not on the PATH")
    collector: CollectorSettings = CollectorSettings()
    store: StoreSettings = Field(default_factory=StoreSettings)

    @property
    def store_path(self) -> Path:
        """The DuckDB file."""
        return self.data / "telemetry.duckdb"

    @property
    def run_folder(self) -> Path:
        """Folder of the lock, the socket and the collector's state file (mode 0700)."""
        return self.data / "run"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line (init) over environment over file."""
        toml = TomlConfigSettingsSource(
            settings_cls, toml_file=Path(os.environ.get("ENGINE_ROOM_CONFIG", "engine-room.toml"))
        )
        return init_settings, env_settings, toml


@lru_cache(maxsize=1)
def load() -> Settings:
    """The settings of this process, read once."""
    return Settings()
