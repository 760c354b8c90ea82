from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from pydantic import SecretStr
from typing_extensions import override

from engine.errors import SessionStoreCapabilityError
from engine.models import calling
from engine.models.calling import RetryPolicy, call_model
from engine.models.errors import CallFailure, ModelCallError
from engine.models.factory import ModelFactory, ModelSettings
from engine.models.failures import redact
from engine.models.scope import CallScope
from engine.models.usage import usage_of
from tests.support.openai_server import Body, Cut, Hang, OpenAIServer, Reply, Status, openai_server

KEY = "sk-test-1234567890"
FAST = RetryPolicy(first_wait_seconds=0)
ASKED = [SystemMessage("be brief"), HumanMessage("hello")]
USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 5,
    "total_tokens": 35,
    "prompt_tokens_details": {"cached_tokens": 20},
}


@tool
def look(path: str) -> str:
    """Look at a path."""
    return path


def served(server: OpenAIServer, **settings: Any) -> BaseChatModel:
    return ModelFactory(
        ModelSettings(model="some-model", base_url=server.base_url, api_key=SecretStr(KEY), **settings)
    ).model("agent")


class Deltas:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, text: str, message_id: str) -> None:
        self.seen.append((text, message_id))


async def ask(model: BaseChatModel, **options: Any) -> Any:
    options.setdefault("retry", FAST)
    return await call_model(model, ASKED, scope=CallScope("agent"), **options)


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_request_carries_model_sampling_tools_and_key(streamed: bool) -> None:
    """05 §15; 03 §18: endpoint, key and sampling are configuration."""
    async with openai_server() as server:
        server.plan(Reply(text="hi"))
        model = served(server, temperature=0.3, max_tokens=77)
        await ask(model, tools=[look], on_text_delta=Deltas() if streamed else None)
        (request,) = server.requests
        assert request["model"] == "some-model"
        assert request["temperature"] == 0.3
        assert request["max_completion_tokens"] == 77
        assert [entry["function"]["name"] for entry in request["tools"]] == ["look"]
        assert [message["role"] for message in request["messages"]] == ["system", "user"]
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert bool(request.get("stream")) is streamed
        if streamed:
            assert request["stream_options"] == {"include_usage": True}  # 03 §21


@pytest.mark.parametrize("streamed", [True, False])
async def test_text_calls_usage_and_model_come_back(streamed: bool) -> None:
    """03 §20, §21."""
    async with openai_server() as server:
        server.plan(Reply(text="hello there", calls=[("look", '{"path": "a"}'), ("look", "")], usage=USAGE))
        deltas = Deltas()
        answer = await ask(served(server), on_text_delta=deltas if streamed else None)
        assert answer.text == "hello there"
        assert [(call["name"], call["args"]) for call in answer.tool_calls] == [
            ("look", {"path": "a"}),
            ("look", {}),
        ]
        usage = usage_of(answer, "some-model")
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (30, 5, 20)
        assert usage.model == "served-model"
        if streamed:
            assert len(deltas.seen) > 1
            assert "".join(text for text, _ in deltas.seen) == "hello there"
            assert {message_id for _, message_id in deltas.seen} == {answer.id}


async def test_without_streaming_there_is_one_delta_and_the_same_answer() -> None:
    """05 §15: `ARCHMAX_STREAMING` off = one delta per message; results identical."""
    async with openai_server() as server:
        server.plan(Reply(text="hello there", usage=USAGE), Reply(text="hello there", usage=USAGE))
        deltas = Deltas()
        by_call = await ask(served(server), on_text_delta=deltas, streaming=False)
        assert deltas.seen == [("hello there", by_call.id)]
        by_model = await ask(served(server, streaming=False), on_text_delta=deltas)
        assert deltas.seen[1:] == [("hello there", by_model.id)]
        assert [bool(request.get("stream")) for request in server.requests] == [False, False]
        assert by_call.text == by_model.text
        assert by_call.usage_metadata == by_model.usage_metadata


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_without_a_role_is_the_assistants(streamed: bool) -> None:
    """05 §15."""
    async with openai_server() as server:
        server.plan(Reply(text="hi", calls=[("look", '{"path": "a"}')], role=None))
        answer = await ask(served(server), on_text_delta=Deltas() if streamed else None)
        assert (answer.type, answer.text, len(answer.tool_calls)) == ("ai", "hi", 1)


@pytest.mark.parametrize("raw", ['{"ref": ', "[1]", "null", "{}}"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_garbage_arguments_are_never_repaired(raw: str, streamed: bool) -> None:
    """Known fault H13."""
    async with openai_server() as server:
        server.plan(Reply(calls=[("look", raw), ("look", '{"path": "b"}')]))
        answer = await ask(served(server), on_text_delta=Deltas() if streamed else None)
        assert [call["args"] for call in answer.tool_calls] == [{"path": "b"}]
        assert [(call["id"], call["args"]) for call in answer.invalid_tool_calls] == [("call_0", raw)]


@pytest.mark.parametrize(
    ("failure", "streamed"),
    [
        *[(Status(code), streamed) for code in (429, 500, 503) for streamed in (True, False)],
        (Cut("beg"), True),
        (Cut("beg", clean=True), True),
    ],
)
async def test_a_passing_failure_is_tried_again(failure: Any, streamed: bool) -> None:
    """Retries with backoff on 429, 5xx and lost connections (decision 0060)."""
    async with openai_server() as server:
        server.plan(failure, failure, Reply(text="made it"))
        deltas = Deltas()
        answer = await ask(served(server), on_text_delta=deltas if streamed else None)
        assert answer.text == "made it"
        assert len(server.requests) == 3
        if streamed:
            # What a broken attempt showed belongs to a message that is never committed.
            kept = [text for text, message_id in deltas.seen if message_id == answer.id]
            assert "".join(kept) == "made it"
            dropped = {message_id for text, message_id in deltas.seen if text == "beg"}
            assert len(dropped) == (2 if isinstance(failure, Cut) else 0)
            assert answer.id not in dropped


async def test_attempts_are_bounded() -> None:
    """Decision 0060."""
    async with openai_server() as server:
        server.plan(*[Status(503)] * 5)
        with pytest.raises(ModelCallError, match="3 attempts") as caught:
            await ask(served(server))
        assert caught.value.kind is CallFailure.UNAVAILABLE
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "too long", "code": "context_length"}}, CallFailure.REFUSED),
        (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, CallFailure.DENIED),
        (403, {"error": {"message": "no"}}, CallFailure.DENIED),
        (404, {"error": {"message": "no such model"}}, CallFailure.REFUSED),
        (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, CallFailure.RATE_LIMITED),
    ],
)
async def test_a_refusal_is_not_tried_again_and_tells_no_secret(
    status: int, body: dict[str, Any], kind: CallFailure
) -> None:
    """Decision 0060; secrets never reach an error's text."""
    async with openai_server() as server:
        server.plan(Status(status, body), Reply(text="never"))
        with pytest.raises(ModelCallError) as caught:
            await ask(served(server))
        assert caught.value.kind is kind
        assert len(server.requests) == 1
        assert str(status) in str(caught.value)
        assert KEY not in str(caught.value)
        assert "1234567890" not in str(caught.value)
        assert "\n" not in str(caught.value)


async def test_a_provider_that_says_how_long_to_wait_is_heard_within_bounds() -> None:
    """Decision 0060: `Retry-After`, never longer than the policy's longest wait."""
    policy = RetryPolicy(first_wait_seconds=0, longest_wait_seconds=0.01)
    async with openai_server() as server:
        server.plan(Status(429, headers={"retry-after": "3600"}), Reply(text="made it"))
        assert (await ask(served(server), retry=policy)).text == "made it"
    assert RetryPolicy(longest_wait_seconds=60).wait_seconds(1, 30) == 30


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_model_that_hangs_is_given_up(streamed: bool) -> None:
    """A call is bounded in time."""
    async with openai_server() as server:
        model = served(server)
        server.plan(Reply(text="warm"), Hang(), Hang(), Reply(text="awake"))
        await ask(model)  # making the client takes longer than the limits below on a busy machine
        deltas = Deltas() if streamed else None
        assert (await ask(model, timeout_ms=2_000, on_text_delta=deltas)).text == "awake"
        server.plan(*[Hang()] * 2)
        with pytest.raises(ModelCallError, match="within 1500 ms") as caught:
            await ask(model, timeout_ms=1_500, retry=RetryPolicy(attempts=2, first_wait_seconds=0))
        assert caught.value.kind is CallFailure.TIMEOUT


async def test_cancelling_a_call_closes_its_connection_and_is_not_an_error_of_the_model() -> None:
    """03 §16."""
    async with openai_server() as server:
        server.plan(Hang())
        call = asyncio.create_task(ask(served(server)))
        await server.arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.abandoned.wait()


@pytest.mark.parametrize("error", [ValueError("the host's own"), SessionStoreCapabilityError("x", "y")])
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_error_of_the_listener_is_not_the_models(error: Exception, streaming: bool) -> None:
    """Nothing is tried again, and nothing renamed, for an error the model did not make."""

    def broken(text: str, message_id: str) -> None:
        raise error

    async with openai_server() as server:
        server.plan(Reply(text="hello there"), Reply(text="never"))
        with pytest.raises(type(error)) as caught:
            await ask(served(server), on_text_delta=broken, streaming=streaming)
        assert caught.value is error
        assert len(server.requests) == 1


async def test_a_deliberate_error_passes_through() -> None:
    """03 §13.1: what a host's wrapper raises on purpose keeps its type."""
    fenced = SessionStoreCapabilityError("x", "y")

    class Wrapper(BaseCallbackHandler):
        raise_error = True

        @override
        def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
            raise fenced

    async with openai_server() as server:
        with pytest.raises(SessionStoreCapabilityError):
            await ask(served(server), config={"callbacks": [Wrapper()]})
        assert server.requests == []


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything from a provider is hostile: a stream must not fill the process."""
    monkeypatch.setattr(calling, "MAX_ANSWER_CHARS", 100)
    async with openai_server() as server:
        server.plan(Reply(text="x" * 400), Reply(calls=[("look", "x" * 400)]), Reply(text="x" * 100))
        for _ in range(2):
            with pytest.raises(ModelCallError, match="longer than 100 characters") as caught:
                await ask(served(server), on_text_delta=Deltas())
            assert caught.value.kind is CallFailure.UNREADABLE
        assert (await ask(served(server), on_text_delta=Deltas())).text == "x" * 100
        assert len(server.requests) == 3


async def test_an_endpoint_nobody_serves_is_one_clear_line() -> None:
    """05 §15."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    settings = ModelSettings(model="m", base_url=f"http://127.0.0.1:{port}/v1", api_key=SecretStr(KEY))
    with pytest.raises(ModelCallError) as caught:
        await ask(ModelFactory(settings).model("agent"))
    assert caught.value.kind is CallFailure.UNREACHABLE
    assert f"http://127.0.0.1:{port}/v1 failed: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [{"hello": "world"}, {"choices": None}, {"choices": []}, [], "text", {"error": "x"}]
)
async def test_an_answer_that_is_no_completion_is_one_clear_line(value: Any) -> None:
    """Everything from a provider is hostile."""
    async with openai_server() as server:
        server.plan(Body(value))
        with pytest.raises(ModelCallError) as caught:
            await ask(served(server))
        assert caught.value.kind is CallFailure.UNREADABLE
        assert "\n" not in str(caught.value)


async def test_callbacks_of_the_callers_config_see_the_call() -> None:
    """Ruling 13: `config` carries tags and callbacks."""
    seen: list[tuple[str, list[str] | None]] = []

    class Handler(AsyncCallbackHandler):
        @override
        async def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
            seen.append(("start", kwargs.get("tags")))

        @override
        async def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            seen.append(("end", None))

    async with openai_server() as server:
        server.plan(Reply(text="hi"))
        await ask(served(server), config={"callbacks": [Handler()], "tags": ["mine"]}, on_text_delta=Deltas())
    assert seen == [("start", ["mine"]), ("end", None)]


def test_one_model_works_in_one_loop_after_another_and_leaves_nothing_behind() -> None:
    """Known fault H10."""
    reached: list[str] = []

    async def turn(model: BaseChatModel, server: OpenAIServer) -> None:
        server.plan(Reply(text="one"), Reply(text="two"))
        reached.append((await ask(model)).text)
        reached.append((await ask(model, on_text_delta=Deltas())).text)

    async def first() -> None:
        async with openai_server() as server:
            port.append(server.port)
            models.append(served(server))
            await turn(models[0], server)
            assert server.connections == 1  # kept open between calls of one loop

    async def second() -> None:
        server = OpenAIServer()
        listener = await asyncio.start_server(server.serve, "127.0.0.1", port[0])
        await turn(models[0], server)
        listener.close()
        await server.close()

    port: list[int] = []
    models: list[BaseChatModel] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(first())
        asyncio.run(second())
        gc.collect()
    assert reached == ["one", "two"] * 2
    assert [str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)] == []


def test_a_login_that_an_endpoint_repeats_is_not_told() -> None:
    """The client makes a header of what stands before the host of `ARCHMAX_API_BASE_URL`."""
    login = "Basic dXNlcjpwYXNzd29yZC0x"
    assert redact(f"403: {{'authorization': '{login}'}}") == "403: {'authorization': '***'}"
    assert redact("Basic authentication is needed") == "Basic authentication is needed"
