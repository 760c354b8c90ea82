"""The scripted model: a LangChain chat model that plays a YAML script instead of calling a provider (09).

Which role, workflow and state a request comes under, and which answers are used up, is told by the caller through
`engine.models.scope`. Without a scope (the model used directly, as any chat model) a request is an agent's without
workflow and state, and the model object remembers what it has played.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    ToolCallChunk,
    ToolMessage,
)
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr
from typing_extensions import override

from core.jsontext import text as json_text
from engine.models.arguments import read_arguments
from engine.models.errors import ScriptedError, ScriptExhausted
from engine.models.scope import CallScope, ScriptPlay, current_scope
from engine.models.script import Answer, ModelScript, Request, ScriptedCall

#: an answer is streamed in at most this many pieces, none shorter than `_PIECE`
_PIECES = 32
_PIECE = 12
#: so many characters of an error answer are told when a script has nothing to say to it
_REFUSED = 300


class ScriptedChatModel(BaseChatModel):
    """Plays `script`. `model_id` is the id that was asked for: the same script answers for every id."""

    script: ModelScript
    model_id: str = "scripted"

    _own_play: ScriptPlay = PrivateAttr(default_factory=ScriptPlay)

    @property
    @override
    def _llm_type(self) -> str:
        return "scripted"

    @property
    @override
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_id, "script": self.script.file}

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Tools are carried along like a provider's, and change nothing about the answers."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self._take(messages)
        time.sleep(answer.delay_ms / 1000)
        return _result(self._message(answer, messages))

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self._take(messages)
        await asyncio.sleep(answer.delay_ms / 1000)
        return _result(self._message(answer, messages))

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._take(messages)
        time.sleep(answer.delay_ms / 1000)
        for chunk in _chunks(self._message(answer, messages), answer):
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = self._take(messages)
        await asyncio.sleep(answer.delay_ms / 1000)
        for chunk in _chunks(self._message(answer, messages), answer):
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _take(self, messages: Sequence[BaseMessage]) -> Answer:
        """Choose the answer and mark it used, before anything else can happen to the request."""
        scope = current_scope.get() or CallScope("agent", play=self._own_play)
        request = _request(scope, messages)
        answer = self.script.choose(request, scope.play.used)
        if answer is None:
            exhausted = ScriptExhausted(scope.role, scope.workflow, scope.state, _refused(messages))
            scope.play.exhausted.append(str(exhausted))
            raise exhausted
        if answer.index >= 0:
            scope.play.used.add(answer.index)
            scope.taken.append(answer.index)
        return answer

    def _message(self, answer: Answer, messages: Sequence[BaseMessage]) -> AIMessage:
        if answer.error is not None:
            raise ScriptedError(answer.error, answer.error_status)
        calls, invalid = _calls(answer.tool_calls)
        metadata: dict[str, Any] = {
            "model_name": self.model_id,
            "finish_reason": "tool_calls" if calls else "stop",
        }
        if answer.index >= 0:
            metadata["scripted"] = {"used": [answer.index]}
        return AIMessage(
            content=answer.text,
            tool_calls=calls,
            invalid_tool_calls=invalid,
            usage_metadata=_usage(answer, messages),
            response_metadata=metadata,
        )


def _request(scope: CallScope, messages: Sequence[BaseMessage]) -> Request:
    last = messages[-1] if messages else None
    tool = _tool_of(last, messages) if isinstance(last, ToolMessage) else None
    return Request(
        role=scope.role,
        workflow=scope.workflow,
        state=scope.state,
        text="\n".join(str(message.text) for message in messages),
        last_tool=tool,
        last_accepted=isinstance(last, ToolMessage) and _accepted(last),
    )


def _refused(messages: Sequence[BaseMessage]) -> str:
    """The last error answer among the results the request ends with, in brief: mostly why a script does not fit."""
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        if message.status == "error":
            return " ".join(str(message.text).split())[:_REFUSED]
    return ""


def _accepted(result: ToolMessage) -> bool:
    """A refused control reads like an ordinary answer to its caller (03 §6): only its words tell it apart."""
    return result.status != "error" and f"{result.name or ''} rejected: " not in str(result.content)[:80]


def _tool_of(result: ToolMessage, messages: Sequence[BaseMessage]) -> str | None:
    """The name of the tool a result answers for; from the call itself when the result carries no name."""
    if result.name:
        return result.name
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                if call["id"] == result.tool_call_id:
                    return call["name"]
    return None


def _calls(calls: Sequence[ScriptedCall]) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Good and bad calls, as LangChain keeps them: apart."""
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    for call in calls:
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        args = call.args if call.raw_args is None else read_arguments(call.raw_args)
        if isinstance(args, dict):
            good.append(ToolCall(name=call.name, args=args, id=call_id, type="tool_call"))
        else:
            bad.append(
                InvalidToolCall(
                    name=call.name, args=call.raw_args, id=call_id, error=args, type="invalid_tool_call"
                )
            )
    return good, bad


def _usage(answer: Answer, messages: Sequence[BaseMessage]) -> UsageMetadata:
    """The counts the script gives, else an estimate: a token for every four characters, at least one."""
    if answer.usage is not None:
        given = answer.usage
        details = InputTokenDetails(cache_read=given.cache_read, cache_creation=given.cache_write)
        return UsageMetadata(
            input_tokens=given.input,
            output_tokens=given.output,
            total_tokens=given.input + given.output,
            input_token_details=details,
        )
    asked = sum(len(message.text) for message in messages)
    said = len(answer.text) + sum(
        len(call.name) + len(json_text(call.args) if call.raw_args is None else call.raw_args)
        for call in answer.tool_calls
    )
    counted, spoken = max(1, asked // 4), max(1, said // 4)
    return UsageMetadata(input_tokens=counted, output_tokens=spoken, total_tokens=counted + spoken)


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunks(message: AIMessage, answer: Answer) -> Iterator[ChatGenerationChunk]:
    """The message in pieces: text, then each call (its name first, its arguments after), then the usage."""
    text = answer.text
    size = max(_PIECE, -(-len(text) // _PIECES))
    for start in range(0, len(text), size):
        yield ChatGenerationChunk(message=AIMessageChunk(content=text[start : start + size]))
    ids = iter([call["id"] for call in message.tool_calls])
    bad_ids = iter([call["id"] for call in message.invalid_tool_calls])
    for index, call in enumerate(answer.tool_calls):
        raw = call.raw_args if call.raw_args is not None else json_text(call.args)
        good = call.raw_args is None or isinstance(read_arguments(call.raw_args), dict)
        head = ToolCallChunk(
            name=call.name, args="", id=next(ids if good else bad_ids), index=index, type="tool_call_chunk"
        )
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[head]))
        tail = ToolCallChunk(name=None, args=raw, id=None, index=index, type="tool_call_chunk")
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[tail]))
    last = AIMessageChunk(content="", usage_metadata=message.usage_metadata, chunk_position="last")
    yield ChatGenerationChunk(message=last, generation_info=message.response_metadata)
