"""Settings of the command and of a fleet on this machine, read from the environment once, at the edge.

What the processes of a fleet must agree on, and the model's endpoint, are `worker.settings`; the API's are its own.
`archmax.docs.configuration` writes the manual's list from all of them.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.errors import ArchmaxError

S = TypeVar("S", bound=BaseSettings)


class SettingsError(ArchmaxError):
    """Environment variables that cannot be used. Says which and why, never their values."""

    code: ClassVar[str] = "settings"


class CommandSettings(BaseSettings):
    """The `archmax` command."""

    model_config = SettingsConfigDict(env_prefix="ARCHMAX_", env_ignore_empty=True, extra="ignore")

    # These two are for the manual: what draws reads them by itself, before any settings are.
    cli_no_banner: str | None = Field(None, description="any value: no banner")
    no_color: str | None = Field(
        None, validation_alias=AliasChoices("NO_COLOR"), description="any value: no colour; icons stay"
    )
    url: str = Field(
        "http://127.0.0.1:8000", description="base URL of the fleet's API, for `submit` and `turns`"
    )
    key: SecretStr | None = Field(None, description="API key that `submit` and `turns` present")


class LocalSettings(BaseSettings):
    """A fleet on this machine

    `archmax up` starts a Redis of its own when `ARCHMAX_REDIS_URL` is unset.
    """

    model_config = SettingsConfigDict(env_prefix="ARCHMAX_", env_ignore_empty=True, extra="ignore")

    flower_port: int = Field(5555, ge=1, le=65535, description="port of Flower under `archmax up`")
    flower_prefix: str = Field("", description="path Flower is served under there; empty and `/` mean none")
    flower_auth: SecretStr | None = Field(
        None, description="`user:password` Flower asks for there, several separated by commas"
    )


def read_settings(settings: type[S], **given: Any) -> S:
    """An instance from the environment; what is `given` beats it. Raises: `SettingsError` naming each one that is wrong."""
    try:
        return settings(**given)
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "")
        problems = []
        for problem in error.errors(include_input=False, include_context=False, include_url=False):
            at = problem["loc"]
            name = f"{prefix}{at[0]}".upper() if at else settings.__name__
            problems.append(f"{name}: {problem['msg']}")
        raise SettingsError("; ".join(problems)) from None
