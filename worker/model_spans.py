"""A span for each call of a model, as LangChain's callback; apart from `worker.tracing` so that tracing loads no model library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from typing_extensions import override

from worker.tracing import NAME_CHARS, span_failed

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer


class ModelSpans(BaseCallbackHandler):
    """A span for each call of a model, an attempt each. LangChain calls it; it keeps no text."""

    run_inline: bool = True

    def __init__(self, tracer: Tracer, inside: Context) -> None:
        self._tracer, self._inside = tracer, inside
        self._open: dict[UUID, Span] = {}

    @override
    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, metadata: Any = None, **_: Any
    ) -> None:
        told: Mapping[str, Any] = metadata or {}
        model = str(told.get("ls_model_name") or "model")[:NAME_CHARS]
        self._open[run_id] = self._tracer.start_span(
            f"model {model}", context=self._inside, attributes={"archmax.model": model}
        )

    @override
    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        span = self._open.pop(run_id, None)
        if span is None:
            return
        for key, count in _usage(response).items():
            span.set_attribute(key, count)
        span.end()

    @override
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        span = self._open.pop(run_id, None)
        if span is not None:
            span_failed(span, type(error).__name__)
            span.end()

    def close(self) -> None:
        """End what a cancelled call left open."""
        while self._open:
            _, span = self._open.popitem()
            span_failed(span, "cut off")
            span.end()


def _usage(response: Any) -> dict[str, int]:
    try:
        usage = response.generations[0][0].message.usage_metadata or {}
    except (AttributeError, IndexError):
        return {}
    counts = {"archmax.tokens.input": "input_tokens", "archmax.tokens.output": "output_tokens"}
    return {name: int(usage[key]) for name, key in counts.items() if usage.get(key) is not None}
