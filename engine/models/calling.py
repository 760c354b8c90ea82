"""One model call, as the turn loop makes it: streamed, timed, retried, and its failure said in one line.

    async def call_model(model, messages, tools=(), *, scope, …) -> AIMessage

Retries. A call that was refused for load (429), failed at the provider (5xx), timed out or lost its connection is made
again, a bounded number of times. Each attempt writes under a message id of its own, and every text delta carries that
id: text shown by an attempt that was cut short belongs to a message that is never committed, so a reader who groups
by id drops it, and repeating the call is safe although something was shown (decision 0060).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.runnables import Runnable, RunnableConfig

from core.errors import ArchmaxError
from core.ids import fresh_id
from engine.models.arguments import whole_message
from engine.models.errors import ModelCallError, ScriptedError, ScriptExhausted
from engine.models.failures import AnswerTooLarge, classify, describe, may_retry, retry_after_seconds
from engine.models.scope import CallScope, current_scope

DEFAULT_TIMEOUT_MS = 120_000
#: an answer longer than this is no answer: a stream must not fill the process
MAX_ANSWER_CHARS = 8 * 1024 * 1024

#: called with a piece of text and the id of the message it belongs to
TextDelta: TypeAlias = Callable[[str, str], None]
ChatModel: TypeAlias = BaseChatModel | Runnable[Any, Any]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts in all, and the wait before the next: doubled each time, half of it chance, a provider's word first."""

    attempts: int = 3
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 20.0

    def wait_seconds(self, attempt: int, asked: float | None) -> float:
        doubled = min(self.first_wait_seconds * 2 ** (attempt - 1), self.longest_wait_seconds)
        jittered = doubled * (0.5 + random.random() / 2)
        return jittered if asked is None else min(max(asked, jittered), self.longest_wait_seconds)


def new_message_id() -> str:
    return f"a-{fresh_id(20)}"


async def call_model(
    model: ChatModel,
    messages: Sequence[BaseMessage],
    tools: Sequence[Any] = (),
    *,
    scope: CallScope,
    config: RunnableConfig | None = None,
    on_text_delta: TextDelta | None = None,
    streaming: bool = True,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    retry: RetryPolicy = RetryPolicy(),
    settings: Mapping[str, Any] | None = None,
    message_id: Callable[[], str] = new_message_id,
) -> AIMessage:
    """The model's answer, its id from `message_id`, its calls read strictly.

    `tools` is bound to the model; pass none with a model that is bound already. `timeout_ms` bounds each attempt.
    `settings` are keyword arguments of the provider's request (prompt caching). Cancellation passes through.

    Raises: `ModelCallError`. Either way `scope.taken` tells which answers of a script were used up; an answer carries
    them as `response_metadata["scripted"]["used"]`, an error as `used`.
    """
    bound = cast(BaseChatModel, model).bind_tools(list(tools)) if tools else model
    token = current_scope.set(scope)
    try:
        attempt = 1
        while True:
            attempt_id = message_id()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    answer = await _ask(
                        bound, messages, config, on_text_delta, streaming, attempt_id, settings or {}
                    )
                break
            except _ListenerFailed as failed:
                raise failed.error from None
            except Exception as error:
                if isinstance(error, ArchmaxError) and not isinstance(error, ScriptedError | ScriptExhausted):
                    raise  # raised on purpose, by whatever a host put around the model
                if attempt >= retry.attempts or not may_retry(error):
                    problem = describe(error, model, timeout_ms=timeout_ms, attempts=attempt)
                    raise ModelCallError(classify(error), problem, scope.taken) from error
                await asyncio.sleep(retry.wait_seconds(attempt, retry_after_seconds(error)))
                attempt += 1
    finally:
        current_scope.reset(token)
    answer.id = attempt_id
    if scope.taken:
        answer.response_metadata = {**answer.response_metadata, "scripted": {"used": list(scope.taken)}}
    return answer


class _ListenerFailed(Exception):
    """Carries an error of `on_text_delta` past the handling of the model's own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _tell(on_text_delta: TextDelta, text: str, message_id: str) -> None:
    try:
        on_text_delta(text, message_id)
    except Exception as error:
        raise _ListenerFailed(error) from error


async def _ask(
    model: ChatModel,
    messages: Sequence[BaseMessage],
    config: RunnableConfig | None,
    on_text_delta: TextDelta | None,
    streaming: bool,
    attempt_id: str,
    settings: Mapping[str, Any],
) -> AIMessage:
    if not streaming or on_text_delta is None:
        answer = await model.ainvoke(list(messages), config, **settings)
        if not isinstance(answer, AIMessage):
            raise TypeError(f"the model answered with {type(answer).__name__}, not with an assistant message")
        if on_text_delta is not None and answer.text:
            _tell(on_text_delta, str(answer.text), attempt_id)
        return whole_message(answer) if isinstance(answer, AIMessageChunk) else answer
    chunks: list[AIMessageChunk] = []
    size = 0
    stream = cast(AsyncGenerator[Any], model.astream(list(messages), config, **settings))
    async with contextlib.aclosing(stream):
        async for chunk in stream:
            text = str(chunk.text) if isinstance(chunk, AIMessage) else ""
            if text:
                _tell(on_text_delta, text, attempt_id)
            if not isinstance(chunk, AIMessageChunk):
                if isinstance(chunk, AIMessage):  # a model that cannot stream answers whole
                    return chunk
                raise TypeError(
                    f"the model answered with {type(chunk).__name__}, not with an assistant message"
                )
            size += len(text) + sum(len(call["args"] or "") for call in chunk.tool_call_chunks)
            if size > MAX_ANSWER_CHARS:
                raise AnswerTooLarge(MAX_ANSWER_CHARS)
            chunks.append(chunk)
    if not chunks:
        raise ConnectionError("the model's stream held no answer")
    # Added up once, at the end: adding chunk by chunk parses the whole message again for each.
    return whole_message(add_ai_message_chunks(chunks[0], *chunks[1:]))
