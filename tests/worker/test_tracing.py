"""Traces: one of a turn, across the accepting process, the worker, children, models and tools, as a collector gets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from pydantic import SecretStr

from tests.support.workers import WorkerFleet, until
from worker.requests import StartRequest
from worker.service import INTERNAL, FleetService
from worker.settings import FleetSettings
from worker.tracing import accepting, open_tracing

SECRET = "a message nobody else should read"
PARENT = """
title: Parent
instructions: Ask the child.
tools:
  allow_always: [quick]
states:
  work:
    triggers: { manual: }
    instructions: Ask.
    tools: { allow: [archmax_workflow_child] }
    transitions: [ { to: done, description: all is asked } ]
  done:
    instructions: Say so.
"""
CHILD = """
title: Child
instructions: Answer.
states:
  only:
    triggers: { manual: }
    instructions: Answer.
"""
MODEL = f"""
- {{ when_workflow: child, text: "{SECRET}" }}
- {{ when_workflow: parent, tool_calls: [ {{ name: quick, args: {{ ref: "{SECRET}" }} }} ] }}
- {{ when_workflow: parent, tool_calls: [ {{ name: archmax_workflow_child }} ] }}
- {{ when_workflow: parent, tool_calls: [ {{ name: archmax_advance, args: {{ to: done, reason: r }} }} ] }}
- {{ when_workflow: parent, text: Done. }}
"""


class Collector:
    """What came in over OTLP/HTTP."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        self.raw = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        self.raw += body
        for resource in request.resource_spans:
            service = next(
                a.value.string_value for a in resource.resource.attributes if a.key == "service.name"
            )
            for scope in resource.scope_spans:
                self.spans += [(service, span) for span in scope.spans]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def names(self) -> list[str]:
        return [span.name for _, span in self.spans]


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


def attributes(span: Span) -> dict[str, str | int]:
    return {
        a.key: a.value.string_value if a.value.HasField("string_value") else a.value.int_value
        for a in span.attributes
    }


async def test_a_turn_and_its_child_are_one_trace_without_any_payload(
    worker_fleet: WorkerFleet, collector: Collector
) -> None:
    worker_fleet.write(
        {
            "workflows/parent/workflow.yaml": PARENT,
            "workflows/child/workflow.yaml": CHILD,
            "model.yaml": MODEL,
        }
    )
    worker = worker_fleet.start_worker(ARCHMAX_OTLP_ENDPOINT=collector.url)
    await worker_fleet.ready(worker)
    service = FleetService(
        FleetSettings(
            root=worker_fleet.root,
            redis_url=SecretStr(worker_fleet.redis_url),
            otlp_endpoint=collector.url,
        )
    )
    await service.open()
    try:
        accepted = await service.start("parent", StartRequest(message=SECRET), INTERNAL)
        end = await worker_fleet.settled(accepted.session)
    finally:
        await service.close()
    assert end.outcome["kind"] == "completed", end.outcome
    assert worker.terminate() == 0  # what is left is sent at the end
    await until(lambda: collector.names().count("turn parent") == 2, what="the worker's spans")

    assert len({span.trace_id for _, span in collector.spans}) == 1
    by_id = {span.span_id: span for _, span in collector.spans}
    services = {service for service, _ in collector.spans}
    assert services == {"archmax-api", "archmax-worker"}

    def named(name: str) -> list[Span]:
        return [span for _, span in collector.spans if span.name == name]

    def parent(span: Span) -> str:
        return by_id[span.parent_span_id].name if span.parent_span_id else ""

    (root,) = named("accept parent")
    assert parent(root) == ""
    assert [parent(span) for span in named("turn parent")] == ["accept parent"] * 2
    (child,) = named("turn child")
    assert parent(child) == "turn parent"
    outcomes = sorted(str(attributes(span)["archmax.outcome"]) for span in named("turn parent"))
    assert outcomes == ["completed", "suspended"]
    assert attributes(child)["archmax.session"] == f"{accepted.session}~1"
    models = [span for _, span in collector.spans if span.name.startswith("model ")]
    assert len(models) == 5
    assert {parent(span) for span in models} == {"turn parent", "turn child"}
    assert [parent(span) for span in named("tool quick")] == ["turn parent"]
    assert named("tool archmax_workflow_child")
    assert all(span.status.code != Status.STATUS_CODE_ERROR for _, span in collector.spans)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for _, span in collector.spans)
    assert SECRET.encode() not in collector.raw


def test_tracing_that_is_off_is_nothing() -> None:
    settings = FleetSettings()
    assert open_tracing(settings, "x") is None
    body = {"kind": "message"}
    with accepting(None, "w", "s", "message", body) as given:
        assert given is body


@pytest.mark.parametrize(
    "carried",
    [None, "x", {"traceparent": "00-zz"}, {"traceparent": 7}, {"traceparent": "00-" + "0" * 32 + "-1-01"}],
)
def test_a_context_that_cannot_be_read_begins_a_new_trace(carried: object, collector: Collector) -> None:
    tracing = open_tracing(FleetSettings(otlp_endpoint=collector.url), "x")
    assert tracing is not None
    tracing.turn(carried, {"archmax.workflow": "w"}).finish("over")
    tracing.close()
    ((_, span),) = collector.spans
    assert not span.parent_span_id


def test_an_input_that_is_refused_leaves_a_failed_span(collector: Collector) -> None:
    tracing = open_tracing(FleetSettings(otlp_endpoint=collector.url), "x")
    assert tracing is not None
    with pytest.raises(ValueError), accepting(tracing, "w", "s", "message", {}):
        raise ValueError("refused")
    tracing.close()
    ((_, span),) = collector.spans
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert "refused" not in span.status.message


def test_a_share_of_turns_is_traced(collector: Collector) -> None:
    tracing = open_tracing(FleetSettings(otlp_endpoint=collector.url, otlp_sample_ratio=0), "x")
    assert tracing is not None
    with accepting(tracing, "w", "s", "message", {}) as body:
        flags = int(body["trace"]["traceparent"].rpartition("-")[2], 16)
        assert not flags & 1, "everybody down the line leaves it out too"
    tracing.turn(body["trace"], {}).finish("over")
    tracing.close()
    assert not collector.spans
