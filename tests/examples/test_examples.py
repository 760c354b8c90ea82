"""The example workspaces pass their own cases on the scripted model, and validate without a word (08)."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from archmax.testing import CaseResult, create_case_target, run_tests
from archmax.validation import validate_workflow
from core.jsontext import JsonObject
from engine.host.agent import Agent
from engine.models.factory import read_script

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SUITES = (("order-desk", "order-desk"), ("order-desk", "enrich-order"), ("refund", "refund"))
HOSTS = {"refund": "refund_host:wire"}


def case_ids() -> list[tuple[str, str, str]]:
    """Every case of every example: example, workflow, case id."""
    found: list[tuple[str, str, str]] = []
    for example, workflow in SUITES:
        folder = EXAMPLES / example / "workflows" / workflow / "tests"
        found += [
            (example, workflow, path.relative_to(folder).as_posix().removesuffix(".test.yaml"))
            for path in sorted(folder.rglob("*.test.yaml"))
        ]
    return found


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """No configured model: whatever a case says comes from the script beside it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ARCHMAX_MODEL", "ARCHMAX_API_BASE_URL", "ARCHMAX_API_KEY", "ARCHMAX_HOST"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def results(environment: None) -> dict[tuple[str, str, str], CaseResult]:
    """Every suite, run once."""
    found: dict[tuple[str, str, str], CaseResult] = {}
    for example, workflow in SUITES:
        with pytest.MonkeyPatch.context() as patch:
            if example in HOSTS:
                patch.setattr(sys, "path", [str(EXAMPLES / example), *sys.path])
                patch.setenv("ARCHMAX_HOST", HOSTS[example])
            suite = asyncio.run(run_tests(workflow, root=EXAMPLES / example))
        found |= {(example, workflow, result.id): result for result in suite.results}
    return found


@pytest.mark.parametrize(("example", "workflow", "case"), case_ids(), ids="/".join)
def test_the_case_passes(
    results: dict[tuple[str, str, str], CaseResult], example: str, workflow: str, case: str
) -> None:
    """08 §6."""
    result = results[example, workflow, case]
    assert result.verdict.status == "passed", result.verdict.failures
    assert all(record.status == "passed" for record in result.records)
    assert result.records


@pytest.mark.parametrize(("example", "workflow"), SUITES)
async def test_the_workflow_validates_without_an_error_or_warning(example: str, workflow: str) -> None:
    """08 §6."""
    result = await validate_workflow(workflow, EXAMPLES / example)
    assert [diagnostic.message for diagnostic in result.diagnostics] == []


@pytest.mark.parametrize(("example", "workflow"), SUITES)
def test_every_case_plays_its_own_script(example: str, workflow: str) -> None:
    """Ruling 19: and no script lies there without its case."""
    folder = EXAMPLES / example / "workflows" / workflow / "tests"
    cases = {path.name.removesuffix(".test.yaml") for path in folder.rglob("*.test.yaml")}
    scripts = {path.name.removesuffix(".model.yaml") for path in folder.rglob("*.model.yaml")}
    assert cases == scripts


#: 08 §6, in its order
ORDER_DESK = [
    "delayed-orders",
    "unknown-requester",
    "no-address",
    "foreign-company",
    "foreign-order-id",
    "records-unreadable",
    "general-question",
    "skill-gate",
    "reset-denied",
    "refund-approved",
    "refund-denied",
    "refund-unknown-order",
    "refund-corrected-by-check",
    "refund-gives-up",
    "refund-refined",
    "message-while-parked",
    "order-id-is-owned",
    "clarify-then-answer",
    "clarify-too-often",
    "report",
    "report-guard",
    "report-unavailable",
    "enrichment-fan-out",
    "enrichment-real-children",
    "enrichment-sent-back",
    "enrichment-gives-up",
    "enrichment-child-fails",
]


def test_the_reference_has_exactly_the_cases_of_the_contract() -> None:
    """08 §6."""
    ids = case_ids()
    assert {case for _, workflow, case in ids if workflow == "order-desk"} == set(ORDER_DESK)
    enrich = {case for _, workflow, case in ids if workflow == "enrich-order"}
    assert enrich == {"delayed-order", "unknown-order", "missing-input"}


# -- the demo's script -------------------------------------------------------------------------------------------------


@pytest.fixture
async def agent(environment: None) -> AsyncIterator[Agent]:
    root = EXAMPLES / "order-desk"
    script = read_script(root / "demo.model.yaml", shown="demo.model.yaml")
    async with await create_case_target("order-desk", root=root, script=script) as target:
        yield target


BAKERY = "From: orders@harborbakery.example\n"
REFUND = BAKERY + "The bread tins of SO-4101 are dented, please refund them."


def walked(trail: list[JsonObject]) -> list[str]:
    return [step["to"] for step in trail if step["kind"] != "sub-workflow"]


async def test_the_demo_plays_a_refund_to_its_end(agent: Agent) -> None:
    """09 §1: one script for a whole session, with a park in the middle."""
    parked = await agent.send("s", message=REFUND)
    assert (parked.kind, parked.state) == ("parked", "refund-review")
    asked = await agent.reply("s", "Is it decided yet?")
    assert (asked.kind, asked.reply.count("waits")) == ("parked", 1)
    done = await agent.decide("s", "refund-closed", "Agreed.")
    assert done.kind == "completed", done.exit
    assert "SO-4101" in done.reply
    assert walked(done.audit_trail) == [
        "screen-request",
        "identify-case",
        "refund-request",
        "check-refund",
        "refund-review",
        "refund-closed",
    ]


async def test_the_demo_plays_a_refund_that_is_sent_back(agent: Agent) -> None:
    """09 §2."""
    await agent.send("s", message=REFUND)
    again = await agent.decide("s", "refund-request", "Say more.")
    assert (again.kind, again.state) == ("parked", "refund-review"), again.exit
    done = await agent.decide("s", "refund-closed")
    assert done.kind == "completed", done.exit


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (BAKERY + "Which of our orders are late?", "orders-question"),
        (BAKERY + "What is the capital of Portugal?", "general-question"),
        ("Where is my order?", "decline"),
    ],
)
async def test_the_demo_plays_the_short_paths(agent: Agent, message: str, state: str) -> None:
    """09 §2."""
    done = await agent.send("s", message=message)
    assert (done.kind, done.state) == ("completed", state), done.exit


async def test_the_demo_plays_what_a_host_fires(agent: Agent) -> None:
    """09 §2: a wait and its delivery, a report, and a fan-out."""
    parked = await agent.send("c", message="It has not arrived.", trigger="clarify_requested")
    assert (parked.kind, parked.state) == ("parked", "clarify")
    answered = await agent.deliver("c", "email_reply", {"body": "all that are late"})
    assert (answered.kind, answered.state) == ("completed", "orders-question"), answered.exit
    report = await agent.send("r", trigger="report_requested", variables={"company": "Harbor Bakery"})
    assert report.kind == "completed", report.rejected
    assert report.variables["report_file"]["value"] == "reports/Harbor Bakery.json"
    wanted: JsonObject = {"orders_to_enrich": [{"order_id": "SO-4103"}]}
    enriched = await agent.send("e", trigger="enrichment_requested", variables=wanted)
    assert (enriched.kind, enriched.state) == ("completed", "enrichment-reported"), enriched.exit


# -- the cases notice when a rule is taken away ------------------------------------------------------------------------

MACHINE, SCREEN, CHECK = "workflow.yaml", "scripts/screen-request.js", "scripts/check-refund.js"


@pytest.mark.parametrize(
    ("file", "rule", "instead", "case"),
    [
        (MACHINE, "forbid_always: [archmax_reset]", "forbid_always: []", "reset-denied"),
        (MACHINE, "    locks: [order_id]", "    locks: []", "order-id-is-owned"),
        (MACHINE, "    requires: [order_id]", "    requires: []", "refund-denied"),
        (MACHINE, "maxParks: 2", "maxParks: 3", "clarify-too-often"),
        (MACHINE, "allow_always: []", "allow_always: [order-data]", "skill-gate"),
        (MACHINE, 'paths: ["reports/${{company}}.json"]', 'paths: ["**"]', "report-guard"),
        (SCREEN, "if (foreign)", "if (false)", "foreign-order-id"),
        (CHECK, "if (!problem)", "if (true)", "refund-corrected-by-check"),
        (CHECK, "returned >= 2", "returned >= 9", "refund-gives-up"),
    ],
)
async def test_a_case_fails_without_the_rule_it_shows(
    tmp_path: Path, file: str, rule: str, instead: str, case: str
) -> None:
    """08: every feature of the reference is there because a case needs it."""
    root = tmp_path / "order-desk"
    await asyncio.to_thread(shutil.copytree, EXAMPLES / "order-desk", root)
    path = root / "workflows" / "order-desk" / file
    text = path.read_text()
    assert text.count(rule) == 1
    path.write_text(text.replace(rule, instead))
    suite = await run_tests("order-desk", root=root, filter=case)
    assert [result.verdict.status for result in suite.results if result.id == case] == ["failed"]
