"""What a model call used and what it cost (03 §21).

`inputTokens` is the total; the cache counts are a part of it. Prices are USD per million tokens. A call nobody has a
price for has no cost, which is not the same as a cost of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from core.jsontext import Json, JsonObject

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

_MILLION: Final = 1_000_000
_COST_DIGITS: Final = 6
EventSink: TypeAlias = Callable[[JsonObject], None]


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per million tokens. A missing cache rate is the input rate."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None

    @property
    def priced(self) -> bool:
        return self.input is not None or self.output is not None


Pricing: TypeAlias = Mapping[str, Rates]
_RATE_KEYS: Final = {
    "input": "input",
    "output": "output",
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
    "cache_read": "cache_read",
    "cache_write": "cache_write",
}


def read_pricing(value: Mapping[str, Any]) -> dict[str, Rates]:
    """A host's `pricing` option: `{model id: {input, output, cacheRead, cacheWrite}}`. Raises: `ValueError`."""
    pricing: dict[str, Rates] = {}
    for model_id, rates in value.items():
        if isinstance(rates, Rates):
            pricing[model_id] = rates
            continue
        if not isinstance(rates, Mapping):
            raise ValueError(
                f"pricing of {model_id!r} must be a mapping of {', '.join(list(_RATE_KEYS)[:4])}"
            )
        read: dict[str, float] = {}
        for key, rate in rates.items():
            if key not in _RATE_KEYS:
                raise ValueError(f"pricing of {model_id!r} has an unknown key {key!r}")
            if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate < float("inf"):
                raise ValueError(f"pricing of {model_id!r}: {key} must be a number, 0 or more")
            read[_RATE_KEYS[key]] = float(rate)
        pricing[model_id] = Rates(**read)
    return pricing


def rates_for(pricing: Pricing, model_id: str | None) -> Rates | None:
    """The exact id, else the longest key that is part of the id, else `default`."""
    if model_id:
        if model_id in pricing:
            return pricing[model_id]
        parts = [key for key in pricing if key and key != "default" and key in model_id]
        if parts:
            return pricing[max(parts, key=len)]
    return pricing.get("default")


@dataclass(frozen=True, slots=True)
class Usage:
    """One model call. `model` is the id the provider reported, else the one asked for."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    model: str | None = None

    def cost_usd(self, pricing: Pricing) -> float | None:
        rates = rates_for(pricing, self.model)
        if rates is None or not rates.priced:
            return None
        base = rates.input or 0.0
        plain = max(0, self.input_tokens - self.cache_read_tokens - self.cache_creation_tokens)
        spent = (
            plain * base
            + self.cache_read_tokens * (base if rates.cache_read is None else rates.cache_read)
            + self.cache_creation_tokens * (base if rates.cache_write is None else rates.cache_write)
            + self.output_tokens * (rates.output or 0.0)
        )
        return round(spent / _MILLION, _COST_DIGITS)

    def fields(self, pricing: Pricing | None = None) -> JsonObject:
        """The fields of a `model-usage` event."""
        event: JsonObject = {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cacheReadTokens": self.cache_read_tokens,
            "cacheCreationTokens": self.cache_creation_tokens,
        }
        if self.model:
            event["model"] = self.model
        cost = self.cost_usd(pricing) if pricing else None
        if cost is not None:
            event["costUsd"] = cost
        return event


def usage_of(answer: AIMessage, requested: str | None = None) -> Usage | None:
    """What the provider reported for this answer; None when it reported nothing. `requested` is the id asked for."""
    metadata = answer.response_metadata
    reported = metadata.get("model_name") or metadata.get("model") or metadata.get("model_id")
    model = reported if isinstance(reported, str) and reported else requested
    counts = _normalised(answer) or _raw(metadata)
    return None if counts is None else Usage(*counts, model=model)


def _normalised(answer: AIMessage) -> tuple[int, int, int, int] | None:
    """LangChain's own form, in which the input is the total already."""
    usage = answer.usage_metadata
    if usage is None:
        return None
    details: Mapping[str, Any] = usage.get("input_token_details") or {}
    written = _count(details.get("cache_creation")) or sum(
        _count(details.get(key)) for key in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
    )
    if not written:  # endpoints that pass Anthropic's own count through beside OpenAI's
        written = _count(
            (answer.response_metadata.get("token_usage") or {}).get("cache_creation_input_tokens")
        )
    return (
        _count(usage.get("input_tokens")),
        _count(usage.get("output_tokens")),
        _count(details.get("cache_read")),
        written,
    )


def _raw(metadata: Mapping[str, Any]) -> tuple[int, int, int, int] | None:
    """A provider's own form, when LangChain kept it and normalised nothing."""
    usage = metadata.get("usage") or metadata.get("token_usage")
    if not isinstance(usage, Mapping):
        return None
    read = _count(usage.get("cache_read_input_tokens"))
    written = _count(usage.get("cache_creation_input_tokens"))
    if "prompt_tokens" in usage or "completion_tokens" in usage:  # OpenAI: the total
        details = usage.get("prompt_tokens_details") or {}
        cached = _count(details.get("cached_tokens")) or read
        return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), cached, written
    if "input_tokens" in usage or "output_tokens" in usage:  # Anthropic: without the cache
        total = _count(usage.get("input_tokens")) + read + written
        return total, _count(usage.get("output_tokens")), read, written
    return None


def _count(value: Json) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """A sum over calls. `cost_usd` is None while no call had a price."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    cost_usd: float | None = None

    @property
    def spent(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.input_tokens or self.output_tokens or self.cost_usd)

    def __add__(self, other: UsageSummary) -> UsageSummary:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return UsageSummary(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_creation_tokens + other.cache_creation_tokens,
            round(sum(costs), _COST_DIGITS) if costs else None,
        )

    def to_json(self) -> JsonObject:
        return {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cacheReadTokens": self.cache_read_tokens,
            "cacheCreationTokens": self.cache_creation_tokens,
            **({} if self.cost_usd is None else {"costUsd": self.cost_usd}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> UsageSummary:
        """Of a stored summary, or of the fields of one `model-usage` event. Malformed counts read as 0."""
        value = value or {}
        cost = value.get("costUsd")
        return cls(
            _count(value.get("inputTokens")),
            _count(value.get("outputTokens")),
            _count(value.get("cacheReadTokens")),
            _count(value.get("cacheCreationTokens")),
            float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
        )


class UsageTracker:
    """Adds up the `model-usage` events that pass through `handler`, by session."""

    def __init__(self, on_event: EventSink | None = None) -> None:
        self._on_event = on_event
        self._sessions: dict[str, UsageSummary] = {}

    def handler(self, event: JsonObject) -> None:
        """Give this as `on_event`; every event goes on to the tracker's own."""
        if event.get("type") == "model-usage":
            session = str(event.get("sessionId", ""))
            self._sessions[session] = self._sessions.get(session, UsageSummary()) + UsageSummary.from_json(
                event
            )
        if self._on_event is not None:
            self._on_event(event)

    def totals(self, session_id: str | None = None) -> UsageSummary:
        """One session's sum, or everything's."""
        if session_id is not None:
            return self._sessions.get(session_id, UsageSummary())
        return sum(self._sessions.values(), UsageSummary())

    def by_session(self) -> dict[str, UsageSummary]:
        return dict(self._sessions)

    def reset(self, session_id: str | None = None) -> None:
        """Forget one session, or all."""
        if session_id is None:
            self._sessions.clear()
        else:
            self._sessions.pop(session_id, None)


def create_usage_tracker(on_event: EventSink | None = None) -> UsageTracker:
    return UsageTracker(on_event)
