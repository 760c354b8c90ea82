"""The fleet's settings, read once at the edge from `ARCHMAX_*` variables and passed down.

Shared by worker, API and beat, because they must agree. Secrets are `SecretStr`: they show in no log and no `repr`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage.objects import ObjectStore
from storage.open import open_store

if TYPE_CHECKING:
    from engine.models.factory import ModelSettings
    from engine.models.usage import Rates


def _switch(value: object) -> object:
    """The words the contract has for on and off, and no others (05 §15)."""
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("write 1, true, yes or on, or 0, false, no or off")


#: a boolean variable
Switch: TypeAlias = Annotated[bool, BeforeValidator(_switch)]


class ModelEnvironment(BaseSettings):
    """The model's endpoint and sampling (05 §15)."""

    model_config = SettingsConfigDict(
        env_prefix="ARCHMAX_", env_ignore_empty=True, extra="ignore", allow_inf_nan=False
    )

    api_base_url: str | None = Field(
        None, description="OpenAI-compatible endpoint that serves every model id"
    )
    api_key: SecretStr | None = Field(None, description="key of that endpoint")
    model: str | None = Field(
        None, description="default model id: `provider:model`, the endpoint's own id, or `scripted:<file>`"
    )
    temperature: float | None = Field(None, ge=0, description="sampling temperature")
    max_tokens: int | None = Field(None, gt=0, description="cap on a model's answer, in tokens")
    streaming: Switch = Field(True, description="stream answers; off gives one delta per answer")
    prompt_cache: Switch | None = Field(
        None, description="prompt caching; unset leaves it to the workflow (on)"
    )
    prompt_cache_ttl: Literal["5m", "1h"] | None = Field(
        None, description="how long a provider keeps the cached prefix"
    )
    price_input: float | None = Field(None, ge=0, description="USD per million input tokens, any model")
    price_output: float | None = Field(None, ge=0, description="USD per million output tokens, any model")
    price_cache_read: float | None = Field(None, ge=0, description="USD per million cached input tokens read")
    price_cache_write: float | None = Field(
        None, ge=0, description="USD per million input tokens written to a cache"
    )

    def model_settings(self) -> ModelSettings:
        # the API and beat read these settings too, and need none of what a model needs
        from engine.models.factory import ModelSettings

        return ModelSettings(
            base_url=self.api_base_url,
            api_key=self.api_key,
            model=self.model,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )

    def pricing(self) -> dict[str, Rates] | None:
        from engine.models.usage import Rates

        rates = Rates(
            input=self.price_input,
            output=self.price_output,
            cache_read=self.price_cache_read,
            cache_write=self.price_cache_write,
        )
        return {"default": rates} if rates.priced else None


class FleetSettings(BaseSettings):
    """What every process of one fleet must agree on."""

    model_config = SettingsConfigDict(
        env_prefix="ARCHMAX_", env_ignore_empty=True, extra="ignore", allow_inf_nan=False
    )

    root: Path = Field(Path(), description="the workspace: `workflows/`, `skills/`, `AGENTS.md`")
    store: str | None = Field(
        None, description="`file:///dir`, `s3://bucket/prefix`; default: `sessions/` in the workspace"
    )
    store_fsync: Switch = Field(
        True, description="force a directory store's writes to disk before they count"
    )
    s3_endpoint_url: str | None = Field(None, description="endpoint of an S3-compatible store")
    s3_region: str | None = Field(None, description="region of the bucket")
    s3_access_key_id: str | None = Field(None, description="access key; unset uses the environment's role")
    s3_secret_access_key: SecretStr | None = Field(None, description="secret key")
    s3_sse: str | None = Field(None, description="server-side encryption: `AES256` or `aws:kms`")
    s3_kms_key_id: str | None = Field(None, description="KMS key for `aws:kms`")
    s3_threads: int = Field(16, gt=0, description="concurrent S3 requests of one process")
    redis_url: SecretStr = Field(SecretStr("redis://127.0.0.1:6379/0"), description="broker, leases, events")
    redis_timeout_seconds: float = Field(1.0, gt=0, description="bound on one Redis operation")
    host: str | None = Field(
        None, description="`package.module:function` that wires tools, models and mounts in"
    )
    lease_ttl_seconds: float = Field(
        2.0, gt=0, description="how long a session's lease lasts without renewal"
    )
    heartbeat_seconds: float = Field(0.5, gt=0, description="how often leases are renewed")
    max_attempts: int = Field(3, gt=0, description="deaths at one step before a turn ends `worker-lost`")
    turn_deadline_seconds: float = Field(3600, gt=0, description="active time of one turn")
    call_timeout_seconds: float = Field(120, gt=0, description="one model or host tool call")
    queue_expiry_seconds: float | None = Field(
        None, gt=0, description="a turn that waited longer is not begun"
    )
    retention_days: float | None = Field(
        None, gt=0, description="finished sessions are deleted after this; unset keeps them"
    )
    event_stream_seconds: float = Field(86_400, gt=0, description="how long live event streams stay in Redis")
    concurrency: int = Field(200, gt=0, description="turns one worker process runs at once")
    max_concurrent_children: int = Field(4, gt=0, description="children of one session at once")
    max_delegation_depth: int = Field(3, gt=0, description="sub-workflow calls below a root session")
    recursion_limit: int = Field(400, gt=0, description="steps of one turn")
    webhook_secret: SecretStr | None = Field(
        None, description="signs webhooks; unset refuses turns that ask for one"
    )
    webhook_allow_private: Switch = Field(
        False, description="let webhooks reach loopback, private and link-local addresses"
    )
    log_format: Literal["text", "json"] = Field("text", description="how log lines are written")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level logged")
    workflows: str | None = Field(
        None,
        description="workflows whose queues a worker takes, globs separated by commas, `!` excludes; unset takes all",
    )
    metrics_port: int = Field(
        0, ge=0, le=65535, description="port of a worker's metrics, or the next free one above; 0 serves none"
    )
    metrics_host: str = Field("127.0.0.1", description="address of a worker's metrics")
    heartbeat_file: Path | None = Field(
        None, description="file that worker and beat touch while they work, for probes"
    )
    otlp_endpoint: str | None = Field(
        None, description="OTLP/HTTP collector that gets a trace of every turn; needs the extra `otel`"
    )
    otlp_sample_ratio: float = Field(1.0, ge=0, le=1, description="share of turns that are traced")

    @field_validator("root")
    @classmethod
    def _absolute(cls, root: Path) -> Path:
        return root.resolve()

    @model_validator(mode="after")
    def _heartbeat_fits_in_lease(self) -> Self:
        if self.heartbeat_seconds * 2 > self.lease_ttl_seconds:
            raise ValueError("heartbeat_seconds must be at most half of lease_ttl_seconds")
        return self

    @property
    def store_url(self) -> str:
        return self.store or (self.root / "sessions").as_uri()

    def open_store(self) -> ObjectStore:
        """Raises: `StoreConfigurationError`."""
        secret = self.s3_secret_access_key
        return open_store(
            self.store_url,
            fsync=self.store_fsync,
            endpoint_url=self.s3_endpoint_url,
            region=self.s3_region,
            access_key_id=self.s3_access_key_id,
            secret_access_key=secret.get_secret_value() if secret is not None else None,
            sse=self.s3_sse,
            kms_key_id=self.s3_kms_key_id,
            threads=self.s3_threads,
        )
