"""Settings of the HTTP API, read once at the edge from `ARCHMAX_*` variables."""

from __future__ import annotations

import ipaddress
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ApiSettings(BaseSettings):
    """The HTTP API."""

    model_config = SettingsConfigDict(env_prefix="ARCHMAX_", env_ignore_empty=True, extra="ignore")

    api_host: str = Field("127.0.0.1", description="address the API listens on")
    api_port: int = Field(8000, ge=0, le=65535, description="port the API listens on")
    api_keys: SecretStr | None = Field(
        None,
        description="fixed keys beside those of `archmax keys`: `key`, or `key=scope+scope@workflow+workflow`, "
        "separated by commas; a key has at least 24 characters",
    )
    auth_disabled: bool = Field(
        False, description="serve without keys; only on a loopback address, only for requests to it"
    )
    api_max_body_bytes: int = Field(
        2 << 20, gt=0, description="longest request body, of a key without a limit of its own"
    )
    api_rate_per_second: float = Field(
        100, gt=0, description="requests a second of one key without a limit of its own, in each API process"
    )
    api_rate_burst: int = Field(200, gt=0, description="requests such a key may make at once")
    api_max_wait_seconds: float = Field(60, ge=0, description="longest `?wait=`")
    api_max_streams: int = Field(
        500, gt=0, description="event streams and waiters one process serves at once"
    )
    api_heartbeat_seconds: float = Field(
        15, gt=0, description="how often a quiet event stream sends a comment"
    )
    cors_origins: str | None = Field(
        None, description="origins browsers may call from, separated by commas; unset allows none"
    )

    @model_validator(mode="after")
    def _open_only_on_loopback(self) -> Self:
        if self.auth_disabled and not is_loopback(self.api_host):
            raise ValueError(
                f"auth_disabled serves anyone who reaches {self.api_host}: "
                "bind to 127.0.0.1, or make a key with `archmax keys new`"
            )
        return self

    @property
    def origins(self) -> list[str]:
        return [origin.strip() for origin in (self.cors_origins or "").split(",") if origin.strip()]


def is_loopback(host: str) -> bool:
    """Whether an address or `localhost` names this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
