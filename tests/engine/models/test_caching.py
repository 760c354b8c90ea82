from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from pydantic import SecretStr

from engine.models.caching import (
    CacheMechanism,
    CacheSettings,
    cache_mechanism,
    mark_request,
    mixed_mechanisms,
    resolve_cache,
)
from engine.models.calling import call_model
from engine.models.factory import ModelFactory, ModelSettings
from engine.models.scope import CallScope
from tests.support.openai_server import Reply, openai_server

ON = CacheSettings()


class Provider(FakeListChatModel):
    """A model whose class stands where a provider's package defines it."""

    model_id: str = "m"
    responses: list[str] = ["x"]  # noqa: RUF012 - a pydantic field


def provider(package: str, name: str, model_id: str) -> Provider:
    return type(name, (Provider,), {"__module__": f"{package}.chat_models"})(model_id=model_id)


def request() -> list[BaseMessage]:
    blocks: list[str | dict[Any, Any]] = [
        {"type": "text", "text": "static"},
        {"type": "text", "text": "volatile"},
    ]
    return [SystemMessage(blocks), HumanMessage("hi")]


@pytest.mark.parametrize(
    ("package", "name", "model_id", "expected"),
    [
        ("langchain_anthropic", "ChatAnthropic", "claude-x", CacheMechanism.ANTHROPIC),
        ("langchain_aws", "ChatBedrockConverse", "eu.anthropic.claude-x", CacheMechanism.BEDROCK),
        ("langchain_aws", "ChatBedrockConverse", "amazon.nova-pro", CacheMechanism.BEDROCK),
        ("langchain_aws", "ChatBedrockConverse", "meta.llama", CacheMechanism.UNSUPPORTED),
        ("langchain_google", "ChatGemini", "gemini", CacheMechanism.UNSUPPORTED),
    ],
)
def test_the_mechanism_follows_the_models_class_and_id(
    package: str, name: str, model_id: str, expected: CacheMechanism
) -> None:
    """03 §17.5."""
    model = provider(package, name, model_id)
    assert cache_mechanism(model, ON) is expected
    assert cache_mechanism(model.bind(stop=["x"]), ON) is expected
    assert cache_mechanism(model, CacheSettings(enabled=False)) is CacheMechanism.OFF


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [("vendor/Claude-X", CacheMechanism.ANTHROPIC_COMPAT), ("gpt-5", CacheMechanism.UNSUPPORTED)],
)
def test_a_claude_behind_an_openai_compatible_endpoint_is_marked(
    model_id: str, expected: CacheMechanism
) -> None:
    """03 §17.5."""
    settings = ModelSettings(model=model_id, base_url="http://127.0.0.1:1", api_key=SecretStr("k"))
    assert cache_mechanism(ModelFactory(settings).model("agent"), ON) is expected


def test_settings_come_from_the_option_then_the_workflow_then_the_environment() -> None:
    """03 §17.5."""
    assert resolve_cache((None, None), (None, None), (None, None)) == CacheSettings(True, "5m")
    assert resolve_cache((None, None), (False, None), (True, "1h")) == CacheSettings(False, "1h")
    assert resolve_cache((True, "5m"), (False, "1h"), (False, "1h")) == CacheSettings(True, "5m")


def test_only_the_static_block_of_a_compatible_request_is_marked_and_the_transcript_is_not_touched() -> None:
    """03 §17.5."""
    messages = request()
    marked, settings = mark_request(messages, CacheMechanism.ANTHROPIC_COMPAT, "1h")
    assert marked[0].content == [
        {"type": "text", "text": "static", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": "volatile"},
    ]
    assert settings == {}
    assert messages == request()


def test_native_mechanisms_are_asked_through_langchains_own_argument() -> None:
    """03 §17.5."""
    for mechanism in (CacheMechanism.ANTHROPIC, CacheMechanism.BEDROCK):
        _, settings = mark_request(request(), mechanism, "5m")
        assert settings == {"cache_control": {"type": "ephemeral", "ttl": "5m"}}


@pytest.mark.parametrize("mechanism", [CacheMechanism.OFF, CacheMechanism.UNSUPPORTED])
def test_elsewhere_nothing_is_marked(mechanism: CacheMechanism) -> None:
    """03 §17.5; 05 §15: off removes every marker."""
    assert mark_request(request(), mechanism, "5m") == (request(), {})


async def test_the_mark_reaches_the_endpoint() -> None:
    """03 §17.5."""
    async with openai_server() as server:
        server.plan(Reply(text="hi"))
        settings = ModelSettings(model="claude-x", base_url=server.base_url, api_key=SecretStr("k"))
        model = ModelFactory(settings).model("agent")
        marked, kwargs = mark_request(request(), cache_mechanism(model, ON), "5m")
        await call_model(model, marked, scope=CallScope("agent"), settings=kwargs)
        blocks = server.requests[0]["messages"][0]["content"]
        assert [block.get("cache_control") for block in blocks] == [{"type": "ephemeral", "ttl": "5m"}, None]


def test_states_that_want_another_native_mechanism_are_named_once() -> None:
    """03 §17.5."""
    states = [
        ("a", CacheMechanism.ANTHROPIC),
        ("b", CacheMechanism.BEDROCK),
        ("c", CacheMechanism.UNSUPPORTED),
    ]
    warning = mixed_mechanisms(CacheMechanism.ANTHROPIC, states)
    assert warning is not None
    assert "'b'" in warning and "'a'" not in warning and "'c'" not in warning
    assert mixed_mechanisms(CacheMechanism.ANTHROPIC, states[:1]) is None
