"""The reference workspace is the one chapter 08 describes: its data, its machine, its triggers, its sub-workflow."""

from __future__ import annotations

import json

import pytest

from engine.spec.loader import usable_workflow
from engine.spec.model import Spec, Trigger
from engine.spec.tree import DirectoryTree
from engine.spec.yaml12 import load_yaml
from tests.support.command import REPOSITORY

DESK = REPOSITORY / "examples/order-desk"

ORDERS = """
SO-4101 | Harbor Bakery | orders@harborbakery.example | delivered | 2031-04-18 | 2031-04-25 | 186.40
SO-4102 | Harbor Bakery | orders@harborbakery.example | shipped | 2031-05-02 | 2031-05-11 | 92.00
SO-4103 | Harbor Bakery | orders@harborbakery.example | delayed | 2031-04-21 | 2031-04-30 | 410.75
SO-4104 | Harbor Bakery | orders@harborbakery.example | processing | 2031-05-08 | 2031-05-20 | 58.10
SO-5201 | Lindqvist Optik | inkop@lindqvist.example | delayed | 2031-04-28 | 2031-05-05 | 1290.00
SO-5202 | Lindqvist Optik | inkop@lindqvist.example | delivered | 2031-04-02 | 2031-04-09 | 349.90
SO-6301 | Orchard Primary School | office@orchardprimary.example | shipped | 2031-05-05 | 2031-05-12 | 77.25
"""
#: state: type, skills, targets, on_error
STATES = {
    "screen-request": ("code", {"order-data"}, {"identify-case", "decline"}, "escalation"),
    "identify-case": (
        "agent", set(), {"orders-question", "refund-request", "general-question", "clarify"}, None,
    ),
    "orders-question": ("agent", {"order-data"}, set(), None),
    "general-question": ("agent", set(), set(), None),
    "clarify": ("agent", set(), {"orders-question", "closed-unanswered"}, None),
    "closed-unanswered": ("agent", set(), set(), None),
    "refund-request": ("agent", {"order-data", "refund-policy"}, {"check-refund"}, "escalation"),
    "check-refund": (
        "code", {"order-data"}, {"refund-review", "refund-request", "escalation"}, "escalation",
    ),
    "refund-review": ("human", set(), {"refund-closed", "refund-request"}, None),
    "refund-closed": ("agent", set(), set(), None),
    "decline": ("agent", set(), set(), None),
    "escalation": ("agent", set(), set(), None),
    "report-requested": ("agent", {"order-data"}, set(), None),
    "enrich-order": ("agent", {"order-enrichment"}, {"review-enrichment"}, "escalation"),
    "review-enrichment": ("grader", set(), {"enrichment-reported", "enrich-order"}, "escalation"),
    "enrichment-reported": ("agent", set(), set(), None),
}  # fmt: skip


@pytest.fixture
def spec() -> Spec:
    return usable_workflow(DirectoryTree(DESK), "order-desk")


def signature(trigger: Trigger | None) -> tuple[dict[str, str | None], dict[str, str | None]]:
    assert trigger is not None
    return ({e.name: e.type for e in trigger.requires}, {e.name: e.type for e in trigger.returns})


def test_the_orders_are_the_chapters() -> None:
    """08 §2: exactly these fields."""
    fields = ("id", "customer", "email", "status", "placed", "promised", "total")
    rows = [[cell.strip() for cell in line.split("|")] for line in ORDERS.strip().splitlines()]
    expected = [dict(zip(fields, [*row[:-1], float(row[-1])], strict=True)) for row in rows]
    assert json.loads((DESK / "skills/order-data/assets/orders.json").read_text("utf-8")) == expected


def test_the_machine_is_the_chapters(spec: Spec) -> None:
    """08 §3: states in order, what each enables and leaves to; every one with a title and a line of summary."""
    found = {
        slug: (state.type, set(state.skills_allow), {edge.to for edge in state.transitions}, state.on_error)
        for slug, state in spec.states.items()
    }
    assert list(found.items()) == list(STATES.items())
    for slug, state in spec.states.items():
        assert state.title, slug
        assert state.summary and "\n" not in state.summary, slug
    kinds = {edge.to: edge.type for edge in spec.states["refund-review"].transitions}
    assert kinds == {"refund-closed": "approve", "refund-request": "refine"}


def test_the_triggers_are_the_chapters(spec: Spec) -> None:
    """08 §3: where each enters, the session it continues, its signature."""
    entered = {trigger: spec.entry_state(trigger) for trigger in spec.trigger_ids}
    assert entered == {
        "manual": "screen-request",
        "email_reply": "screen-request",
        "clarify_requested": "clarify",
        "report_requested": "report-requested",
        "enrichment_requested": "enrich-order",
    }
    sessions = {trigger: getattr(spec.trigger(trigger), "session", None) for trigger in entered}
    assert {trigger for trigger, path in sessions.items() if path == "conversation_id"} == {
        "manual",
        "email_reply",
        "clarify_requested",
    }
    assert signature(spec.trigger("report_requested")) == ({"company": "string"}, {"report_file": "file"})
    assert signature(spec.trigger("enrichment_requested")) == ({"orders_to_enrich": "array"}, {})


def test_the_root_and_the_sub_workflow_are_the_chapters(spec: Spec) -> None:
    """08 §3, §4."""
    text = (DESK / "workflows/order-desk/workflow.yaml").read_bytes()
    root = load_yaml(text).value
    assert root["title"] and root["instructions"]
    assert root["runtime"] == {"version": "3"}
    assert root["tests"] == {"judge": {}}
    assert "timeoutMs" in root["settings"]
    assert root["tools"] == {"forbid_always": ["archmax_reset"]}
    assert root["skills"] == {"allow_always": []}
    assert root["metadata"] and [slug for slug, state in root["states"].items() if "metadata" in state]
    states = root["states"]
    assert states["refund-request"]["requires"] == states["refund-request"]["locks"] == ["order_id"]
    assert "timeoutMs" in states["refund-request"]["budget"]
    assert states["clarify"]["budget"] == {"maxParks": 2}
    assert states["refund-review"]["evidence"] == ["scratchpad/refund.json"]
    assert len(states["refund-review"]["approvers"]) == 1
    assert states["report-requested"]["tools"]["allow"] == [
        {"tool": "write_file", "paths": ["reports/${{company}}.json"]}
    ]
    assert states["enrich-order"]["tools"]["allow"] == [
        {"tool": "archmax_run", "paths": ["skills/order-enrichment/scripts/**"]},
        "archmax_workflow_enrich-order",
    ]
    assert states["enrich-order"]["requires"] == ["enrichments"]
    child = usable_workflow(DirectoryTree(DESK), "enrich-order")
    assert len(child.states) == 1 and all(state.terminal for state in child.states.values())
    manual = child.trigger("manual")
    assert manual is not None and manual.description
    assert signature(manual) == (
        {"order_id": "string"},
        {"status": "string", "delayed": "boolean", "days_late": "integer"},
    )
    held = load_yaml((DESK / "workflows/enrich-order/workflow.yaml").read_bytes()).value
    assert held["skills"] == {"allow_always": ["order-data"]}


def test_the_files_are_the_chapters() -> None:
    """08 §1: these and nothing else but cases, their scripts and fixtures, and what explains and runs the example."""
    found = {str(path.relative_to(DESK)) for path in DESK.rglob("*") if path.is_file()}
    found = {path for path in found if "/tests/" not in path and not path.startswith("sessions/")}
    assert found == {
        "AGENTS.md",
        "README.md",
        "demo.model.yaml",
        "workflows/order-desk/workflow.yaml",
        "workflows/order-desk/WORKFLOW.md",
        "workflows/order-desk/scripts/screen-request.js",
        "workflows/order-desk/scripts/check-refund.js",
        "workflows/enrich-order/workflow.yaml",
        "skills/order-data/SKILL.md",
        "skills/order-data/assets/orders.json",
        "skills/refund-policy/SKILL.md",
        "skills/order-enrichment/SKILL.md",
        "skills/order-enrichment/scripts/enrich-orders.js",
    }
    assert not (DESK / "workflows/order-desk/WORKFLOW.md").read_text("utf-8").startswith("---")
