"""What pages show and take: hostile text, evidence, decisions and who took them, lists, files, schedules."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from html import escape, unescape
from html.parser import HTMLParser

import httpx
import pytest

from api.ui.decision import _pretty_json
from api.ui.pages import moment, reflow, since
from api.ui.story import path_of
from engine.session.state import SessionState
from tests.support.desk import (
    ADMIN,
    CLERK,
    CLERK_NAME,
    EVIL,
    MESSAGE,
    bearer,
    form_fields,
    hostile,
    refund,
    signed_in,
)
from tests.support.fleet import RunningFleet, eventually, run_turn, sse


@pytest.fixture
async def clerk(desk: RunningFleet) -> AsyncGenerator[httpx.AsyncClient]:
    async with signed_in(desk, CLERK) as client:
        yield client


@pytest.fixture
async def administrator(desk: RunningFleet) -> AsyncGenerator[httpx.AsyncClient]:
    async with signed_in(desk, ADMIN) as client:
        yield client


class Elements(HTMLParser):
    """The tags and attributes a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


async def decide(
    client: httpx.AsyncClient, session: str, to: str, comment: str = "", **changed: str
) -> httpx.Response:
    page = (await client.get(f"/ui/sessions/{session}")).text
    action = f"/ui/sessions/{session}/decide"
    fields = {**form_fields(page, action), "to": to, "comment": comment, **changed}
    return await client.post(action, data=fields)


async def shows(client: httpx.AsyncClient, path: str, words: str) -> None:
    async def holds() -> bool:
        return words in unescape((await client.get(path)).text)

    await eventually(holds)


async def test_hostile_text_is_text_on_every_page(desk: RunningFleet, clerk: httpx.AsyncClient) -> None:
    await hostile(desk, "evil-1")
    async with desk.client(headers=bearer(ADMIN)) as api:
        await run_turn(api, "/v1/workflows/waiter/sessions", {"sessionId": "waits-1", "message": EVIL})
    pages = [
        "/ui/inbox",
        "/ui/inbox?session=evil-1",
        "/ui/sessions",
        "/ui/sessions/evil-1",
        "/ui/schedules",
        "/ui/sessions/waits-1",
    ]
    pages += [
        "/ui/sessions?q=" + escape(EVIL),
        "/ui/sessions?status=%3Cscript%3E&workflow=%22%3E%3Cimg%3E",
        "/ui/sessions/%3Cscript%3E%3Cimg%3E",
    ]
    shown = EVIL.replace("\u202e", "⟨U+202E⟩")
    for path in pages:
        answer = await clerk.get(path)
        elements = Elements(answer.text)
        scripts = [attrs for tag, attrs in elements.tags if tag == "script"]
        assert scripts == [{"src": "/ui/static/ui.js", "defer": None}], path
        assert not [tag for tag, _ in elements.tags if tag == "img"], path
        assert not [name for _, attrs in elements.tags for name in attrs if name.startswith("on")], path
        links = [attrs.get("href") or "" for tag, attrs in elements.tags if tag == "a"]
        assert all(link.startswith(("/ui", "#")) for link in links), path
        assert "\u202e" not in answer.text and "zqzq" not in answer.text, path
    for path in ("/ui/inbox?session=evil-1", "/ui/sessions/evil-1", "/ui/schedules"):
        assert shown in unescape((await clerk.get(path)).text), path
    one = unescape((await clerk.get("/ui/sessions/evil-1")).text)
    assert one.count(shown) > 12, (
        "titles, instructions, ways, evidence, transcript, arguments, variables, labels"
    )


async def test_evidence_is_shown_as_text_and_json_is_laid_out(
    desk: RunningFleet, clerk: httpx.AsyncClient
) -> None:
    """03 §10.2."""
    await refund(desk, "evidence-1")
    page = unescape((await clerk.get("/ui/inbox?session=evidence-1")).text)
    assert (
        '"decision": "approved",\n' in page
        and 'href="/ui/sessions/evidence-1/files/scratchpad/refund.json"' in page
    )
    await hostile(desk, "evidence-2")
    page = unescape((await clerk.get("/ui/inbox?session=evidence-2")).text)
    assert "scratchpad/none.txt" in page and "never written" in page


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('{"a":1}', False),
        ('{"a":1,"a":2}', True),
        ("[1.10]", True),
        ("[1e999]", True),
        ("[NaN]", True),
        ("[" * 5000, True),
        ("no", True),
    ],
)
def test_json_that_would_read_differently_stays_as_it_is(text: str, same: bool) -> None:
    assert (_pretty_json(text) == text) is same


@pytest.mark.parametrize(
    ("name", "kind", "disposition"),
    [
        ("scratchpad/note.txt", "text/plain; charset=utf-8", "inline"),
        ("scratchpad/data.json", "application/json", "attachment"),
        ("scratchpad/page.html", "application/octet-stream", "attachment"),
        ("scratchpad/picture.svg", "application/octet-stream", "attachment"),
    ],
)
async def test_a_file_is_never_a_page(
    desk: RunningFleet, clerk: httpx.AsyncClient, name: str, kind: str, disposition: str
) -> None:
    if (await clerk.get("/ui/sessions/files-1")).status_code == 404:
        await hostile(desk, "files-1")
    answer = await clerk.get(f"/ui/sessions/files-1/files/{name}")
    assert answer.status_code == 200 and answer.headers["content-type"] == kind
    assert answer.headers["content-disposition"].startswith(disposition)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    for other in ("checkpoints/head", "..%2F..%2Fmodel.yaml", "scratchpad/none.txt"):
        assert (await clerk.get(f"/ui/sessions/files-1/files/{other}")).status_code == 404


async def test_a_decision_shows_who_took_it_and_the_session_completes(
    desk: RunningFleet, clerk: httpx.AsyncClient
) -> None:
    await refund(desk, "decided-1")
    comment = "Checked with the photos.\nAll <b>fine</b>."
    answer = await decide(clerk, "decided-1", "refund-closed", comment)
    assert answer.status_code == 303 and answer.headers["location"] == "/ui/sessions/decided-1?done=decided"
    await shows(clerk, "/ui/sessions/decided-1", "✓</span> completed")
    page = unescape((await clerk.get("/ui/sessions/decided-1")).text)
    assert f"<strong>{CLERK_NAME}</strong> decided" in page and comment in page
    assert "waits for no decision" in (await clerk.get("/ui/inbox?session=decided-1")).text


async def test_a_decision_is_about_what_was_read(desk: RunningFleet, clerk: httpx.AsyncClient) -> None:
    """Sent back, the session asks again: the first page's button does not answer the second question."""
    await refund(desk, "stale-1")
    action = "/ui/sessions/stale-1/decide"
    stale = form_fields((await clerk.get("/ui/sessions/stale-1")).text, action)
    assert (await decide(clerk, "stale-1", "refund-request", "Say why.")).status_code == 303
    await shows(clerk, "/ui/sessions/stale-1", "delivered (as reviewed)")
    await shows(clerk, "/ui/sessions/stale-1", "Waits for a decision")
    answer = await clerk.post(action, data={**stale, "to": "refund-closed", "comment": "kept words"})
    assert answer.status_code == 409 and "read it again" in answer.text and "kept words" in answer.text
    assert 'role="alert"' in answer.text
    assert (await decide(clerk, "stale-1", "refund-closed")).status_code == 303
    await shows(clerk, "/ui/sessions/stale-1", "✓</span> completed")


async def test_a_form_sent_twice_decides_once(desk: RunningFleet, clerk: httpx.AsyncClient) -> None:
    await refund(desk, "twice-1")
    action = "/ui/sessions/twice-1/decide"
    fields = {**form_fields((await clerk.get("/ui/sessions/twice-1")).text, action), "to": "refund-closed"}
    answers = await asyncio.gather(*(clerk.post(action, data=fields) for _ in range(3)))
    assert 303 in {answer.status_code for answer in answers}
    assert {answer.status_code for answer in answers} <= {303, 409}
    await shows(clerk, "/ui/sessions/twice-1", "✓</span> completed")
    async with desk.client(headers=bearer(ADMIN)) as api:
        assert (await api.get("/v1/sessions/twice-1")).json()["turn"] == 2


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"to": "no-such-state"}, 409),
        ({"to": ""}, 422),
        ({"once": "short"}, 409),
        ({"comment": "x" * 20_001}, 422),
    ],
)
async def test_a_decision_that_cannot_be_says_why_and_changes_nothing(
    desk: RunningFleet, clerk: httpx.AsyncClient, changed: dict[str, str], code: int
) -> None:
    if (await clerk.get("/ui/sessions/wrong-1")).status_code == 404:
        await refund(desk, "wrong-1")
    answer = await decide(clerk, "wrong-1", changed.pop("to", "refund-closed"), **changed)
    assert answer.status_code == code and 'role="alert"' in answer.text
    assert "awaiting decision" in answer.text


async def test_a_message_to_a_park_is_answered_and_it_stays(
    desk: RunningFleet, clerk: httpx.AsyncClient
) -> None:
    """03 §10.6."""
    await refund(desk, "reply-1")
    action = "/ui/sessions/reply-1/reply"
    fields = form_fields((await clerk.get("/ui/sessions/reply-1")).text, action)
    answer = await clerk.post(action, data={**fields, "message": "Which <i>photos</i>?"})
    assert answer.status_code == 303
    await shows(clerk, "/ui/sessions/reply-1", "Which <i>photos</i>?")
    await shows(clerk, "/ui/sessions/reply-1", "Waits for a decision")
    refused = await clerk.post(action, data={**fields, "message": " "})
    assert refused.status_code in (409, 422)


async def test_sessions_are_filtered_and_searched(desk: RunningFleet, clerk: httpx.AsyncClient) -> None:
    await refund(desk, "find-1")
    async with desk.client(headers=bearer(ADMIN)) as api:
        asked = {
            "trigger": "enrichment_requested",
            "variables": {"orders_to_enrich": [{"order_id": "SO-4103"}]},
        }
        await run_turn(api, "/v1/workflows/order-desk/sessions", {"sessionId": "parent-1", **asked})
    await shows(clerk, "/ui/sessions", 'href="/ui/sessions/parent-1"')

    async def found(query: str) -> str:
        return (await clerk.get(f"/ui/sessions?{query}")).text

    def lists(page: str, session: str) -> bool:
        return f'href="/ui/sessions/{session}"' in page

    assert lists(await found("status=awaiting_decision"), "find-1")
    assert not lists(await found("status=completed"), "find-1")
    assert lists(await found("q=SO-4101+FIND-1"), "find-1")
    assert lists(await found("q=customer:harbor&workflow=order-desk"), "find-1")
    assert not lists(await found("q=find-1&workflow=hostile"), "find-1")
    assert "No session found" in await found("q=nothing-of-the-kind")
    assert not lists(await found("q=parent-1"), "parent-1~1")
    assert lists(await found("children=1"), "parent-1~1")
    assert lists(await found("q=parent-1~1"), "parent-1~1"), "an exact id is found whatever else is asked"
    assert (await clerk.get("/ui/sessions?cursor=nonsense")).status_code == 422
    page = (await clerk.get("/ui/sessions/parent-1")).text
    assert lists(page, "parent-1~1") and "$0.0" in page
    child = (await clerk.get("/ui/sessions/parent-1~1")).text
    assert "Sub-workflow of" in child and lists(child, "parent-1")


async def test_the_inbox_is_first_when_something_waits(desk: RunningFleet, clerk: httpx.AsyncClient) -> None:
    await refund(desk, "first-1")
    assert (await clerk.get("/ui")).headers["location"] == "/ui/inbox"
    page = (await clerk.get("/ui/inbox")).text
    assert "/ui/inbox?session=first-1" in page
    assert (await clerk.get("/ui/inbox?session=no-such")).status_code == 404


async def test_a_session_shows_its_path_trail_and_transcript(
    desk: RunningFleet, clerk: httpx.AsyncClient
) -> None:
    await refund(desk, "story-1")
    page = unescape((await clerk.get("/ui/sessions/story-1")).text)
    assert 'class="human taken at"' in page and 'class="agent taken"' in page
    assert MESSAGE in page and "the decision agrees with the records" in page
    assert page.index("Screen the request") < page.index("the requester writes for Harbor Bakery")
    assert "order_id" in page and "11," not in page[:200]


async def test_schedules_and_timers_are_listed(desk: RunningFleet, clerk: httpx.AsyncClient) -> None:
    async with desk.client(headers=bearer(ADMIN)) as api:
        await run_turn(api, "/v1/workflows/waiter/sessions", {"sessionId": "timer-1", "message": "wait"})
    await shows(clerk, "/ui/schedules", 'href="/ui/sessions/timer-1"')
    page = (await clerk.get("/ui/schedules")).text
    assert "0 3 * * *" in page and "Europe/Berlin" in page and "in 3 d" in page


async def test_a_page_is_told_what_happens(desk: RunningFleet, clerk: httpx.AsyncClient) -> None:
    await refund(desk, "live-1")
    page = unescape((await clerk.get("/ui/sessions/live-1")).text)
    address = page.split('data-events="')[1].split('"')[0]
    async with clerk.stream("GET", address) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert (await decide(clerk, "live-1", "refund-closed")).status_code == 303
        kinds = []
        async for item in sse(answer):
            if "comment" in item:
                continue
            kinds.append(item["event"])
            if item["event"] == "turn-settled":
                break
    assert kinds[0] == "decided", "only what is new, from its beginning"
    async with clerk.stream("GET", "/ui/changes?status=awaiting_decision") as answer:
        parked = asyncio.create_task(refund(desk, "live-2"))
        async for item in sse(answer):
            if "comment" in item:
                continue
            assert item["event"] == "changed"
            break
    await parked
    await shows(clerk, "/ui/inbox", "live-2")


async def test_what_waits_for_a_worker_is_shown_as_such(desk: RunningFleet, clerk: httpx.AsyncClient) -> None:
    """An accepted decision is no question any more, and a session nobody has begun is no error."""
    await refund(desk, "queued-1")
    assert desk.worker is not None
    action = "/ui/sessions/queued-1/decide"
    fields = {**form_fields((await clerk.get("/ui/sessions/queued-1")).text, action), "to": "refund-closed"}
    desk.worker.process.send_signal(signal.SIGSTOP)
    try:
        assert (await clerk.post(action, data=fields)).status_code == 303
        page = (await clerk.get("/ui/sessions/queued-1?done=decided")).text
        assert "</span> queued" in page and "/decide" not in page and "on its way" in page
        late = await clerk.post(action, data={**fields, "once": "x" * 24})
        assert late.status_code == 409 and "was answered" in late.text
        async with desk.client(headers=bearer(ADMIN)) as api:
            asked = {"sessionId": "queued-2", "message": MESSAGE}
            assert (await api.post("/v1/workflows/order-desk/sessions", json=asked)).status_code == 202
        page = (await clerk.get("/ui/sessions/queued-2")).text
        assert "waits for a worker" in page
    finally:
        desk.worker.process.send_signal(signal.SIGCONT)
    await shows(clerk, "/ui/sessions/queued-1", "✓</span> completed")
    await shows(clerk, "/ui/sessions/queued-2", "Waits for a decision")


async def test_an_error_is_a_page(clerk: httpx.AsyncClient) -> None:
    for path in ("/ui/sessions/no-such", "/ui/no-such-page", "/ui/sessions/%ff"):
        answer = await clerk.get(path)
        assert answer.status_code == 404 and answer.headers["content-type"].startswith("text/html"), path


def test_times_and_wrapped_text_read_well() -> None:
    assert moment(0) == "1970-01-01 00:00:00 UTC" and moment("soon") == "soon" and moment(None) == ""
    assert moment(10**20) == str(10**20) and since("2000-01-01T00:00:00Z").endswith("d ago")
    assert reflow("a\nb\n\nc\n- d\n- e\n1. f") == "a b\n\nc\n- d\n- e\n1. f"


def test_a_path_has_the_moves_a_session_made_and_no_others() -> None:
    """03 §8."""
    state = SessionState("s", "w")
    for to, kind, reason in [
        ("a", "trigger", "mail"), ("b", "agent", None), ("b", "sub-workflow", None), ("b", "trigger", "timer"),
        ("c", "on_error", None), ("a", "reset", None), ("b", "human", None),
    ]:  # fmt: skip
        state.trail.append({"to": to, "kind": kind, "reason": reason, "ts": 1})
    state.position = "b"
    marks = path_of(state)
    assert marks.moves == {("__start__", "a", "mail"), ("a", "b", ""), ("b", "c", "on_error")}
    assert marks.states == {"__start__", "a", "b", "c"} and marks.at == "b"
