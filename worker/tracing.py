"""Traces: one of each turn, across the process that accepts it, the workers, its children, models and tools.

Off unless `ARCHMAX_OTLP_ENDPOINT` is set; then OpenTelemetry (extra `otel`) is imported, and not before. The context
travels as W3C `traceparent` in the accepted input under `trace`, and a suspension hands it to its children, so that a
turn is one trace whoever runs its parts, however often. Spans carry ids, names and counts; never a payload.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, cast

from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from worker.settings import FleetSettings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

#: where an accepted input carries its context
CARRIER = "trace"
#: characters of a name that hostile text may have been
NAME_CHARS = 120


class TracingUnavailable(ArchmaxError):
    """Tracing is asked for and its packages are missing."""

    code: ClassVar[str] = "tracing-unavailable"

    @override
    def __str__(self) -> str:
        return "ARCHMAX_OTLP_ENDPOINT is set and OpenTelemetry is not installed: pip install 'archmax-fleet[otel]'"


class Tracing:
    """A process's tracer. `close` sends what is left."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer: Tracer = provider.get_tracer("archmax")

    def accepting(self, workflow: str, session: str, kind: str) -> tuple[Span, JsonObject]:
        """The root of a turn's trace, and what the input carries of it. `end` the span when the input is accepted."""
        from opentelemetry.context import Context

        span = self._tracer.start_span(
            f"accept {workflow}",
            context=Context(),
            attributes={"archmax.workflow": workflow, "archmax.session": session, "archmax.input": kind},
        )
        return span, _carry(span)

    def turn(self, carried: object, attributes: Mapping[str, str | int]) -> TurnTrace:
        """One run of a turn: until it ends, suspends or is handed on."""
        span = self._tracer.start_span(
            f"turn {attributes.get('archmax.workflow', '')}".strip(),
            context=_context(carried),
            attributes=dict(attributes),
        )
        return TurnTrace(self._tracer, span)

    def close(self) -> None:
        """Blocks for as long as the collector takes, at most some seconds."""
        self._provider.shutdown()


class TurnTrace:
    """The span of one run of a turn, and the spans below it."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer, self._span = tracer, span
        self._inside: Context = set_span_in_context(span)
        # accepting processes trace too, and load no model library
        from worker.model_spans import ModelSpans

        self.callbacks = ModelSpans(tracer, self._inside)

    def committed(self, events: Sequence[JsonObject]) -> None:
        """Spans of the tools whose results one commit holds: an event says when it was told and how long it took."""
        for event in events:
            match event.get("type"):
                case "tool-result":
                    self._tool(event, int(event.get("durationMs") or 0), str(event.get("status")))
                case "tool-blocked":
                    self._tool(event, 0, "blocked")
                case "advance":
                    self._span.add_event("advance", {"archmax.state": str(event.get("to", ""))[:NAME_CHARS]})
                case _:
                    pass

    def _tool(self, event: JsonObject, milliseconds: int, result: str) -> None:
        end_ns = int(event["ts"]) * 1_000_000
        span = self._tracer.start_span(
            f"tool {str(event.get('tool', ''))[:NAME_CHARS]}",
            context=self._inside,
            start_time=end_ns - milliseconds * 1_000_000,
            attributes={
                "archmax.tool": str(event.get("tool", ""))[:NAME_CHARS],
                "archmax.call": str(event.get("callId", ""))[:NAME_CHARS],
                "archmax.state": str(event.get("state", ""))[:NAME_CHARS],
                "archmax.result": result,
            },
        )
        if result == "error":
            span_failed(span, "the tool answered with an error")
        span.end(end_ns)

    def carried(self, calls: Sequence[JsonObject]) -> list[JsonObject]:
        """Calls of a suspension whose children's turns belong to this trace."""
        carrier = _carry(self._span)
        return [{**call, "input": {**(call.get("input") or {}), CARRIER: carrier}} for call in calls]

    def finish(self, how: str, error: BaseException | None = None) -> None:
        """`how`: the outcome's kind, `suspended`, or what became of the run. May be repeated; the first counts."""
        if not self._span.is_recording():
            return
        self._span.set_attribute("archmax.outcome", how)
        if error is not None:
            span_failed(self._span, type(error).__name__)
        elif how == "failed":
            span_failed(self._span, "the turn failed")
        self._span.end()


def open_tracing(
    settings: FleetSettings, service: str, *, exporter: SpanExporter | None = None
) -> Tracing | None:
    """The tracing of a process, None when it is off. `exporter` stands in for the collector.

    Raises: `TracingUnavailable`.
    """
    endpoint = settings.otlp_endpoint
    if endpoint is None and exporter is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise TracingUnavailable from error
    provider = TracerProvider(
        resource=Resource.create({"service.name": service}),
        sampler=ParentBased(TraceIdRatioBased(settings.otlp_sample_ratio)),
        shutdown_on_exit=False,
    )
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        url = f"{str(endpoint).rstrip('/')}/v1/traces"
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=5)))
    return Tracing(provider)


@contextmanager
def accepting(
    tracing: Tracing | None, workflow: str, session: str, kind: str, body: JsonObject
) -> Generator[JsonObject]:
    """The input to accept, with its trace's context when tracing is on."""
    if tracing is None:
        yield body
        return
    span, carrier = tracing.accepting(workflow, session, kind)
    try:
        yield {**body, CARRIER: carrier}
    except Exception as error:
        span_failed(span, getattr(error, "code", type(error).__name__))
        raise
    finally:
        span.end()


def _carry(span: Span) -> JsonObject:
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context=set_span_in_context(span))
    return {key: value for key, value in carrier.items() if key == "traceparent"}


def _context(carried: object) -> Context:
    """The context an input carries. Anything malformed gives a new trace: inputs are not trusted."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    given = cast(Mapping[str, object], carried) if isinstance(carried, Mapping) else {}
    parent = given.get("traceparent")
    carrier = {"traceparent": parent} if isinstance(parent, str) else {}
    return TraceContextTextMapPropagator().extract(carrier, context=Context())


def span_failed(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))
