"""Prompt caching: which mechanism a model wants, and marking a request for it (03 §17.5).

The mark is put on the request, never on the transcript. It follows the model of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from langchain_core.messages import BaseMessage, SystemMessage

Ttl: TypeAlias = Literal["5m", "1h"]


class CacheMechanism(StrEnum):
    """How a model's provider is asked to cache; the value is `prompt-shaping.cache`."""

    ANTHROPIC = "anthropic"  #: native, through LangChain's own argument
    BEDROCK = "bedrock"  #: Converse API, likewise
    ANTHROPIC_COMPAT = "anthropic-compat"  #: a Claude behind an OpenAI-compatible endpoint
    UNSUPPORTED = "unsupported"  #: the provider caches by itself, or not at all
    OFF = "off"  #: switched off

    @property
    def native(self) -> bool:
        return self in (CacheMechanism.ANTHROPIC, CacheMechanism.BEDROCK)


@dataclass(frozen=True, slots=True)
class CacheSettings:
    enabled: bool = True
    ttl: Ttl = "5m"


def resolve_cache(*sources: tuple[bool | None, Ttl | None]) -> CacheSettings:
    """The settings in force: for each value the first source that gives it, else on with `5m`.

    Sources by rank: the host's option, the workflow's settings, the environment.
    """
    enabled = next((on for on, _ in sources if on is not None), True)
    ttl: Ttl = next((ttl for _, ttl in sources if ttl is not None), "5m")
    return CacheSettings(enabled, ttl)


def cache_mechanism(model: object, settings: CacheSettings) -> CacheMechanism:
    """Told by the package and name of the model's class, so that no provider's package is imported."""
    if not settings.enabled:
        return CacheMechanism.OFF
    inner: Any = model
    while (bound := getattr(inner, "bound", None)) is not None:
        inner = bound
    family = _family(type(inner))
    if family is CacheMechanism.BEDROCK:
        model_id = _model_id(inner).lower()
        known = any(name in model_id for name in ("claude", "anthropic", "amazon.nova"))
        return CacheMechanism.BEDROCK if known else CacheMechanism.UNSUPPORTED
    if family is CacheMechanism.ANTHROPIC_COMPAT and "claude" not in _model_id(inner).lower():
        return CacheMechanism.UNSUPPORTED
    return family


@lru_cache(maxsize=64)
def _family(model: type) -> CacheMechanism:
    """What a class of models may want: it is asked at every call."""
    bases = [(base.__module__.partition(".")[0], base.__name__) for base in model.__mro__]
    if ("langchain_anthropic", "ChatAnthropic") in bases:
        return CacheMechanism.ANTHROPIC
    if ("langchain_aws", "ChatBedrockConverse") in bases:
        return CacheMechanism.BEDROCK
    if any(package == "langchain_openai" for package, _ in bases):
        return CacheMechanism.ANTHROPIC_COMPAT
    return CacheMechanism.UNSUPPORTED


def _model_id(model: object) -> str:
    for name in ("base_model_id", "model_name", "model_id", "model"):
        value = getattr(model, name, None)
        if isinstance(value, str) and value:
            return value
    return ""


def mark_request(
    messages: Sequence[BaseMessage], mechanism: CacheMechanism, ttl: Ttl
) -> tuple[list[BaseMessage], dict[str, Any]]:
    """The request's messages and the keyword arguments of the call. The messages given are not changed.

    The system message's first block is the static one: it ends the prefix every call of a session shares.
    """
    marker = {"type": "ephemeral", "ttl": ttl}
    match mechanism:
        case CacheMechanism.ANTHROPIC:
            return _mark_static_block(messages, marker), {"cache_control": marker}
        case CacheMechanism.BEDROCK:
            return list(messages), {"cache_control": marker}
        case CacheMechanism.ANTHROPIC_COMPAT:
            return _mark_static_block(messages, marker), {}
        case CacheMechanism.UNSUPPORTED | CacheMechanism.OFF:
            return list(messages), {}


def _mark_static_block(messages: Sequence[BaseMessage], marker: Mapping[str, str]) -> list[BaseMessage]:
    marked = list(messages)
    if marked and isinstance(marked[0], SystemMessage):
        content = marked[0].content
        blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        if blocks:
            first = blocks[0]
            block = {"type": "text", "text": first} if isinstance(first, str) else first
            blocks[0] = {**block, "cache_control": dict(marker)}
            marked[0] = marked[0].model_copy(update={"content": blocks})
    return marked


def mixed_mechanisms(workflow: CacheMechanism, states: Iterable[tuple[str, CacheMechanism]]) -> str | None:
    """The one assembly warning about states whose model wants another native mechanism than the workflow's."""
    others = [f"{slug!r} ({own})" for slug, own in states if own.native and own is not workflow]
    if not others:
        return None
    return f"the workflow's prompt caching is {workflow.value!r}; other native mechanisms: states {', '.join(others)}"
