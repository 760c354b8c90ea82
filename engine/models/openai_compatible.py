"""The default client: any endpoint that speaks OpenAI's chat completions.

`langchain_openai` with its differences made good: an answer without a role is the assistant's (05 §15), a call's
arguments are read strictly, a stream that ends before its answer does is an error, and connections belong to the
running loop. Imported only when such a model is built: the import costs a good part of a second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import openai
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI

# The SDK is built on one of two HTTP libraries, by version; this names the one it takes clients from.
from langchain_openai._compat import httpx
from pydantic import SecretStr
from typing_extensions import override

from engine.models.arguments import calls_of, wire_calls
from engine.models.transport import PerLoop

_CONNECT_SECONDS = 10.0
#: far above any call's own time, which ends a call by cancelling it
_READ_SECONDS = 3600.0
_LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=5.0)


class StreamCut(ConnectionError):
    """The stream ended before the answer was complete."""


class _LoopTransport(httpx.AsyncBaseTransport):
    def __init__(self) -> None:
        self._transports = PerLoop(lambda: httpx.AsyncHTTPTransport(limits=_LIMITS))

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        transport = await self._transports.get()
        return await transport.handle_async_request(request)

    @override
    async def aclose(self) -> None:
        await self._transports.close()


class OpenAICompatibleModel(ChatOpenAI):
    """See the module. Build it with `open_model`."""

    @override
    def _create_chat_result(
        self, response: dict[str, Any] | openai.BaseModel, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        if isinstance(response, openai.BaseModel):
            response = response.model_dump(warnings=False)
        choices = response.get("choices") if isinstance(response, dict) else None
        if not isinstance(choices, list) or not choices:
            problem = response.get("error") if isinstance(response, dict) else None
            raise ValueError(f"the endpoint reports {problem!r}" if problem else "it is no chat completion")
        messages = [{**(choice.get("message") or {}), "role": "assistant"} for choice in choices]
        bare = [
            {**choice, "message": {key: value for key, value in message.items() if key != "tool_calls"}}
            for choice, message in zip(choices, messages, strict=True)
        ]
        result = super()._create_chat_result({**response, "choices": bare}, generation_info)
        for generation, message in zip(result.generations, messages, strict=True):
            if isinstance(generation.message, AIMessage):
                good, bad = calls_of(wire_calls(message))
                generation.message.tool_calls, generation.message.invalid_tool_calls = good, bad
        return result

    @override
    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        finished = False
        async for chunk in super()._astream(*args, **kwargs):
            finished = finished or bool((chunk.generation_info or {}).get("finish_reason"))
            yield chunk
        if not finished:
            raise StreamCut("the stream ended before the answer was complete")


def open_model(
    *,
    model: str,
    base_url: str | None,
    api_key: SecretStr | None,
    temperature: float | None,
    max_tokens: int | None,
    streaming: bool,
) -> ChatOpenAI:
    """A client for `base_url`; for OpenAI itself, with its own key, when there is none."""
    own: dict[str, Any] = {} if base_url is None else {"base_url": base_url, "api_key": api_key}
    if max_tokens is not None:
        own["max_tokens"] = max_tokens
    return OpenAICompatibleModel(
        model=model,
        temperature=temperature,
        disable_streaming=not streaming,
        stream_usage=True,
        use_responses_api=False,
        max_retries=0,  # retries are the caller's: engine.models.calling
        timeout=httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
        http_async_client=openai.DefaultAsyncHttpxClient(transport=cast(Any, _LoopTransport())),
        **own,
    )
