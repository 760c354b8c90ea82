"""The fleet on a server that speaks S3: what a turn costs, and what it does when requests fail, hang or lose their replies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from itertools import count

import pytest
import pytest_asyncio

from archmax.local.redis import EmbeddedRedis
from tests.support.faultproxy import Act, Fault, FaultProxy, fault_proxy
from tests.support.seaweed import running
from tests.support.workers import WorkerFleet, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

WORKFLOW = """
title: Marks
instructions: Leave marks.
tools: { allow_always: [quick] }
states:
  work: { triggers: { manual: }, instructions: Leave marks. }
"""
_numbers = count(1)
_random = random.Random(7)
#: hard to compress, so that stored bytes can be compared with what is new
TEXTS = ["".join(_random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=4096)) for _ in range(24)]
MODEL = "\n".join(
    [
        *(
            f"- {{ when_workflow: five, tool_calls: [ {{ name: quick, args: {{ ref: '{n}' }} }} ] }}"
            for n in range(4)
        ),
        "- { when_workflow: five, text: done }",
        *(
            f"- {{ when_workflow: big, tool_calls: [ {{ name: quick, args: {{ ref: {text} }} }} ] }}"
            for text in TEXTS
        ),
        "- { when_workflow: big, text: done }",
    ]
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy() -> AsyncGenerator[FaultProxy]:
    async with fault_proxy(running().endpoint_url) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    tmp_path_factory: pytest.TempPathFactory, redis_server: EmbeddedRedis, proxy: FaultProxy
) -> AsyncGenerator[WorkerFleet]:
    server = running()
    folder = tmp_path_factory.mktemp("s3")
    environment = {
        "ARCHMAX_STORE": f"s3://{server.bucket}/{folder.name}",
        "ARCHMAX_S3_ENDPOINT_URL": proxy.endpoint_url,
        "ARCHMAX_S3_REGION": "us-east-1",
        "ARCHMAX_S3_ACCESS_KEY_ID": server.credentials.access_key_id,
        "ARCHMAX_S3_SECRET_ACCESS_KEY": server.credentials.secret_access_key,
    }
    async with WorkerFleet(folder, redis_server, database=12, **environment) as made:
        made.write({f"workflows/{slug}/workflow.yaml": WORKFLOW for slug in ("five", "big")})
        made.write({"model.yaml": MODEL})
        await made.ready(made.start_worker())
        yield made


async def run(fleet: WorkerFleet, workflow: str, *, seconds: float = 90) -> str:
    session = f"s3-{next(_numbers)}"
    await fleet.send(session, workflow)
    end = await fleet.settled(session, seconds=seconds)
    assert end.outcome["kind"] == "completed", end.outcome
    return session


def requests_of(proxy: FaultProxy, session: str) -> list[tuple[str, str, int]]:
    """(method, target, bytes sent) of each request for an object of the session."""
    found: list[tuple[str, str, int]] = []
    # The proxy notes a line, then its head, in threads of its own: of the newest request there may be one of them.
    for line, head in zip(list(proxy.seen), list(proxy.heads), strict=False):
        method, target = line.split(" ", 1)
        if session in target.split("?")[0].split("/"):
            length = next((h for h in head.split(b"\r\n") if h.lower().startswith(b"content-length:")), b":0")
            found.append((method, target, int(length.split(b":")[1])))
    return found


async def test_a_plain_turn_of_five_model_and_four_tool_calls_costs_fourteen_requests(
    fleet: WorkerFleet, proxy: FaultProxy
) -> None:
    """Protocol §10, counted at the server: two to accept it, twelve to run it; the test's own reads are left out."""
    await run(fleet, "five")  # the workflow's snapshot is stored once for all sessions
    session = f"s3-{next(_numbers)}"
    await fleet.send(session, "five")

    def ended() -> bool:
        # Asked of the proxy: the test must not read the session's objects itself.
        return any("/end." in target for _, target, _ in requests_of(proxy, session))

    def writes_of(session: str) -> list[str]:
        return [target for method, target, _ in requests_of(proxy, session) if method == "PUT"]

    await until(ended, what="the turn to end")
    await until(lambda: len(writes_of(session)) >= 11, what="what it owes, and the cleaner")
    await asyncio.sleep(2)  # nothing more comes
    seen = requests_of(proxy, session)
    end = await fleet.settled(session)
    assert end.outcome["kind"] == "completed"
    assert len(seen) <= 14, seen
    writes = writes_of(session)
    assert len(writes) == len(set(writes)) == 11, writes


async def test_bytes_stored_stay_near_what_is_new(fleet: WorkerFleet, proxy: FaultProxy) -> None:
    """Known fault H15: each record is written once in the log and once, compressed, in the end."""
    session = await run(fleet, "big", seconds=120)
    sent = sum(size for method, _, size in requests_of(proxy, session) if method == "PUT")
    new = 2 * sum(map(len, TEXTS))  # each text is an argument and comes back in a result
    assert new < sent < 2.5 * new, (sent, new)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda: Fault(Act.CUT_REPLY, "PUT", "/log.", times=2), id="replies-of-records-lost"),
        pytest.param(lambda: Fault(Act.CUT_REPLY, "PUT", "/end.", times=1), id="reply-of-the-end-lost"),
        pytest.param(
            lambda: Fault(Act.CUT_REPLY, "PUT", "/checkpoints/head", times=1), id="reply-of-the-claim-lost"
        ),
        pytest.param(lambda: Fault(Act.CUT_REQUEST, "PUT", "/log.", times=3), id="requests-cut"),
        # longer than a lease lasts, which its holder renews meanwhile
        pytest.param(lambda: Fault(Act.SLOW, "PUT", "/log.", times=2, seconds=4), id="records-slow"),
        pytest.param(lambda: Fault(Act.SLOW, "GET", "/checkpoints/", times=2, seconds=4), id="reads-slow"),
        # longer than the store's time-out
        pytest.param(
            lambda: Fault(Act.HOLD_REPLY, "PUT", "/log.", times=1), id="reply-of-a-record-never-comes"
        ),
        pytest.param(
            lambda: Fault(Act.ANSWER, "PUT", "/log.", times=2, status=503, code="SlowDown"), id="slow-down"
        ),
        pytest.param(lambda: Fault(Act.ANSWER, "GET", "/checkpoints/", times=3, status=500), id="reads-fail"),
        pytest.param(
            lambda: Fault(Act.REPLACE_REPLY, "PUT", "/log.", times=1, status=500),
            id="stored-and-answered-500",
        ),
    ],
)
async def test_a_turn_rides_out_what_the_store_does(
    fleet: WorkerFleet, proxy: FaultProxy, fault: object
) -> None:
    """Protocol §1: unknown is settled by the write's own id; nothing is done twice."""
    assert callable(fault)
    proxy.faults.clear()
    struck = proxy.add(fault())
    session = await run(fleet, "five", seconds=120)
    assert struck.struck.is_set()
    marks = [mark for mark, key in fleet.marked_keys() if key.startswith(f"{session}/")]
    assert marks == [f"quick:{n}" for n in range(4)]
    state = await fleet.state(session)
    assert [message["role"] for message in state.messages].count("tool") == 4


async def test_a_store_that_is_away_for_a_while_ends_no_turn(fleet: WorkerFleet, proxy: FaultProxy) -> None:
    """The turn is broken off, its lease let go, and taken up again when the store answers."""
    proxy.faults.clear()
    session = f"s3-{next(_numbers)}"
    proxy.add(Fault(Act.ANSWER, "PUT", "/log.", times=8, status=503, code="ServiceUnavailable"))
    await fleet.send(session, "five")
    end = await fleet.settled(session, seconds=150)
    assert end.outcome["kind"] == "completed", end.outcome
    marks = [key for _, key in fleet.marked_keys() if key.startswith(f"{session}/")]
    assert len(set(marks)) == 4
