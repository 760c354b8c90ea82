"""Offering, the signature a caller sees, and the checks of a dispatch in order (04 §1–§4.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from engine.delegation.calls import Bounds
from engine.errors import SubWorkflowError, WorkflowLoadError
from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
MAIN = """
    title: Lending
    states:
      intake:
        triggers: { manual: }
        instructions: CALLER INSTRUCTIONS
        tools: { allow: [archmax_workflow_fee-check, touch] }
        transitions: [{ to: other, description: go on }]
      other:
"""
FEE = """
    title: Fee check
    states:
      start:
        instructions: CHILD INSTRUCTIONS
        triggers:
          manual:
            description: Works out a late fee
            requires: [card_no, { name: copies, type: integer, description: How many }, { name: sheet, type: file }]
            returns: [{ name: fee, type: integer }, waived]
"""
SIMPLE = """
    states:
      start:
        triggers: { manual: { requires: [card_no], returns: [fee] } }
"""


def fee(**args: Any) -> dict[str, Any]:
    return call("archmax_workflow_fee-check", **args)


async def test_the_tool_is_offered_where_it_is_granted_with_the_targets_signature(bench: Make) -> None:
    """04 §1, §2.1: description remark on every property, further properties allowed."""
    b = bench({"main": MAIN, "fee-check": FEE}, [do(advance_to("other")), say("done")])
    await b.send()
    assert "archmax_workflow_fee-check" in b.seen[0].tools
    assert "archmax_workflow_fee-check" not in b.seen[1].tools
    schema = b.agent.assembly.schema("archmax_workflow_fee-check")["function"]
    parameters = schema["parameters"]
    assert parameters["required"] == ["card_no", "copies", "sheet"]
    assert parameters["additionalProperties"] is True
    assert parameters["properties"]["copies"]["type"] == "integer"
    assert parameters["properties"]["copies"]["description"].startswith("How many.")
    assert all("locked variable" in p["description"] for p in parameters["properties"].values())


async def test_the_description_says_what_the_contract_lists_in_order(bench: Make) -> None:
    """04 §2.2: never the target's instructions."""
    b = bench({"main": MAIN, "fee-check": FEE}, "[]")
    text = b.agent.assembly.schema("archmax_workflow_fee-check")["function"]["description"]
    parts = [
        "Works out a late fee",
        "'fee-check'",
        "Fee check",
        "card_no, copies, sheet",
        "fee, waived",
        "note",
        "several",
        "fails",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "CHILD INSTRUCTIONS" not in text


@pytest.mark.parametrize(
    "target",
    [None, "states: [", "states:\n  start:\n    triggers: { mail: }\n"],
)
def test_a_target_that_is_missing_broken_or_without_manual_fails_assembly_by_name(
    bench: Make, target: str | None
) -> None:
    """04 §1.1."""
    specs = {"main": MAIN} if target is None else {"main": MAIN, "fee-check": target}
    with pytest.raises(WorkflowLoadError, match="fee-check"):
        bench(specs, "[]")


REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"card_no": "${{card}}"}, "unresolved-param", "card"),
    ({}, "missing-param", "card_no, copies, sheet"),
    ({"copies": "4"}, "missing-param", "card_no, sheet"),
    ({"card_no": 1, "copies": "4", "sheet": "scratchpad/no.md"}, "invalid-param", "copies"),
    ({"card_no": 1, "copies": 4, "sheet": "scratchpad/no.md"}, "invalid-param", "scratchpad/no.md"),
    ({"card_no": 1, "copies": 4, "sheet": "scratchpad/s.md", "trigger": "x"}, "invalid-param", "trigger"),
    ({"card_no": 1, "copies": 4, "sheet": "scratchpad/s.md", "Bad": 1}, "invalid-param", "Bad"),
    ({"card_no": 1, "copies": 4, "sheet": "scratchpad/s.md", "title": "a\nb"}, "invalid-param", "title"),
]


@pytest.mark.parametrize(
    ("kinds", "refused"),
    [
        ("depth-exceeded cycle unresolved-param unknown-workflow", True),
        ("not-delegatable disabled missing-param invalid-param", True),
        ("rejected invalid-return raised budget parked error", False),
    ],
)
def test_only_a_call_for_which_nothing_ran_is_a_refusal(kinds: str, refused: bool) -> None:
    """04 §4.1, §4.2."""
    for kind in kinds.split():
        assert SubWorkflowError(kind, "fee-check", "why").is_refusal is refused


@pytest.mark.parametrize(("args", "kind", "names"), REFUSALS)
async def test_a_refused_dispatch_is_a_blocked_call_and_nothing_ran(
    bench: Make, args: dict[str, Any], kind: str, names: str
) -> None:
    """04 §3, §4.1: events, no trail step, no number, no outstanding failure."""
    spec = MAIN.replace("touch]", "touch, write_file]")
    write = call("write_file", file_path="scratchpad/s.md", content="x")
    b = bench({"main": spec, "fee-check": FEE}, [do(write), do(fee(**args)), say("so be it")])
    outcome = await b.send()
    assert (outcome.kind, b.steps(outcome)) == ("completed", [("trigger", "intake")])
    message = [m for m in outcome.transcript if m["role"] == "tool"][-1]
    assert message["status"] == "error" and message["blocked"]
    assert kind in message["text"] and names in message["text"] and "fee-check" in message["text"]
    order = b.kinds("sub-workflow-start", "sub-workflow-result", "tool-called", "tool-blocked", "tool-result")
    assert order == [
        "tool-called",
        "tool-result",
        "sub-workflow-start",
        "sub-workflow-result",
        "tool-blocked",
    ]
    result = b.one("sub-workflow-result")
    assert (result["status"], result["durationMs"], result["level"]) == ("error", 0, "warn")
    assert (
        result["toolCallId"] == b.one("sub-workflow-start")["toolCallId"] == b.one("tool-blocked")["callId"]
    )
    state = await b.state()
    assert (state.dispatch_count, state.failed_delegations) == (0, [])


async def test_every_argument_that_does_not_conform_is_named(bench: Make) -> None:
    """04 §3 check 8: a wrong kind, a file that is none and an illegal name are faults of one kind."""
    args = {"card_no": 1, "copies": "4", "sheet": "scratchpad/no.md", "Bad": 1}
    b = bench({"main": MAIN, "fee-check": FEE}, [do(fee(**args)), say("so be it")])
    await b.send()
    reason = b.one("tool-blocked")["reason"]
    assert "(invalid-param)" in reason
    assert all(part in reason for part in ("'copies'", "scratchpad/no.md", "'Bad'")), reason


async def test_a_target_that_became_unloadable_is_unknown_at_dispatch(bench: Make) -> None:
    """04 §3 check 4, §1.1: a refused load is not kept; the mended one runs."""
    b = bench(
        {"main": MAIN, "fee-check": SIMPLE},
        [do(fee(card_no="c")), say("no"), do(fee(card_no="c")), say("child"), say("yes")],
    )
    path, held = "workflows/fee-check/workflow.yaml", b.agent.assembly.library._held
    good = b.files._files.pop(path)
    held.clear()
    outcome = await b.send()
    assert "unknown-workflow" in b.results(outcome)[0]
    b.files._files[path] = good
    held.clear()
    outcome = await b.send("again")
    assert (outcome.kind, b.steps(outcome)[-1]) == ("completed", ("sub-workflow", "intake"))


def mocked(_tool: str, _args: Mapping[str, Any]) -> str:
    return "mocked"


async def test_a_disabled_target_is_bound_and_refused(bench: Make) -> None:
    """04 §1.1, §3 check 6; it beats a mock (§10)."""
    specs = {"main": MAIN, "fee-check": "disabled: true\n" + SIMPLE.replace("\n    ", "\n")}
    b = bench(specs, [do(fee(card_no="c")), say("done")], mock=mocked)
    outcome = await b.send()
    assert "disabled" in b.results(outcome)[0] and b.one("tool-blocked")


async def test_a_chain_may_not_be_deeper_than_the_bound_nor_meet_itself(bench: Make) -> None:
    """04 §3 checks 1 and 2, in this order."""

    def level(target: str) -> str:
        return f"""
            states:
              start:
                triggers: {{ manual: }}
                tools: {{ allow: [archmax_workflow_{target}] }}
        """

    specs = {"main": level("a"), "a": level("b"), "b": level("a")}
    answers = [
        do(call("archmax_workflow_a"), when_workflow="main"),
        do(call("archmax_workflow_b"), when_workflow="a"),
        do(call("archmax_workflow_a"), when_workflow="b"),
        say("up", repeat=True),
    ]
    b = bench(specs, answers)
    await b.send()
    blocked = b.one("tool-blocked")
    assert "(cycle)" in blocked["reason"] and "main → a → b → a" in blocked["reason"]
    shallow = bench(specs, answers, bounds=Bounds(max_depth=1))
    await shallow.send()
    assert "(depth-exceeded)" in shallow.one("tool-blocked")["reason"]
    starts = b.of("sub-workflow-start")
    assert [s["depth"] for s in starts] == [1, 2, 3]
    assert starts[1]["chain"] == ["main", "a"] and starts[1]["subWorkflowDispatchId"] == "s1~1"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${{order}}", {"lines": [1, None]}),
        ("${{ order.lines }}", [1, None]),
        ("${{none}}", None),
        ("shelf ${{n}}", "shelf 4"),
        ("$${{n}}", "${{n}}"),
        ("*plain*", "*plain*"),
        ({"deep": ["${{n}}", "n=${{n}}"]}, {"deep": [4, "n=4"]}),
    ],
)
async def test_references_keep_their_type_where_they_stand_alone(
    bench: Make, written: Any, value: Any
) -> None:
    """04 §3.1, OP-1."""
    b = bench(
        {"main": MAIN, "fee-check": SIMPLE},
        [
            do(setting(order={"lines": [1, None]}, none=None, n=4)),
            do(fee(card_no=written)),
            say("child"),
            say("done"),
        ],
    )
    outcome = await b.send()
    assert outcome.kind == "completed"
    child = await b.state("s1~1")
    assert child.variables["card_no"].to_json() == {"value": value, "locked": True}
    called = b.one("tool-called", tool="archmax_workflow_fee-check")
    assert called["args"]["card_no"] == value


async def test_guards_of_a_delegation_see_the_resolved_arguments(bench: Make) -> None:
    """04 OP-9."""
    guarded = MAIN.replace(
        "archmax_workflow_fee-check,",
        "{ tool: archmax_workflow_fee-check, args: { card_no: ['${{mine}}'] } },",
    )
    answers = [
        do(setting(mine="c1", theirs="c2")), do(fee(card_no="${{theirs}}")), do(fee(card_no="${{mine}}")), say("child"), say("done"),
    ]  # fmt: skip
    b = bench({"main": guarded, "fee-check": SIMPLE}, answers)
    outcome = await b.send()
    assert outcome.kind == "completed"
    assert b.one("tool-blocked")["args"]["card_no"] == "c2"
    assert (await b.state("s1~1")).values["card_no"] == "c1"


async def test_an_ungranted_delegation_is_blocked_by_governance(bench: Make) -> None:
    """04 §1: closed by default."""
    b = bench(
        {"main": MAIN, "fee-check": SIMPLE}, [do(advance_to("other")), do(fee(card_no="c")), say("done")]
    )
    await b.send()
    assert b.one("tool-blocked")["state"] == "other" and not b.of("sub-workflow-start")


async def test_arguments_that_references_nest_too_deeply_are_refused(bench: Make) -> None:
    """A whole value put in place of its reference makes the arguments deeper than the model wrote them."""
    deep: Any = 1
    for _ in range(90):
        deep = [deep]
    wrapped: Any = "${{a}}"
    for _ in range(20):
        wrapped = [wrapped]
    child = SIMPLE.replace(", returns: [fee]", "")
    script = [do(setting(a=deep)), do(fee(card_no=wrapped)), say("done")]
    b = bench({"main": MAIN, "fee-check": child}, script)
    outcome = await b.send()
    assert "levels deep" in b.results(outcome, "archmax_workflow_fee-check")[0]
