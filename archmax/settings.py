"""Settings of the command and of a fleet on this machine, read from the environment once, at the edge.

The worker's and the API's settings are their own (`worker.settings`, `api.settings`); models read theirs as 05 §15
says. `archmax.docs.configuration` writes the manual's list from all of them.
"""

from __future__ import annotations

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class CommandSettings(BaseSettings):
    """The `archmax` command."""

    model_config = SettingsConfigDict(env_prefix="ARCHMAX_", env_ignore_empty=True, extra="ignore")

    host: str | None = Field(
        None,
        description="`package.module:function` that configures the agents of this process; importable as it stands",
    )
    cli_no_banner: str | None = Field(None, description="any value: no banner")
    no_color: str | None = Field(
        None, validation_alias=AliasChoices("NO_COLOR"), description="any value: no colour; icons stay"
    )
    url: str = Field(
        "http://127.0.0.1:8000", description="base URL of the fleet's API, for `submit` and `turns`"
    )
    key: SecretStr | None = Field(None, description="API key that `submit` and `turns` present")


class LocalSettings(BaseSettings):
    """`archmax up`."""

    model_config = SettingsConfigDict(env_prefix="ARCHMAX_", env_ignore_empty=True, extra="ignore")

    redis_url: SecretStr | None = Field(
        None, description="Redis of the fleet; when it is unset, `archmax up` starts one of its own"
    )
    flower_port: int = Field(5555, ge=1, le=65535, description="port of Flower under `archmax up`")
