"""Recovery of failed calls: the accounting of 04 §8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
MAIN = """
    tools: { allow_always: [archmax_workflow_title, archmax_workflow_other, archmax_eval] }
    states:
      find:
        triggers: { manual: }
        on_error: rescue
        transitions: [{ to: next, description: go on }]
      next:
        on_error: rescue
      rescue:
"""
#: raises for every `q` that begins with "bad"
TITLE = """
    states:
      start: { type: code, script: scripts/go.js, triggers: { manual: { requires: [q] } }, transitions: [{ to: end }] }
      end:
"""
GO = """export default async ({ variables, tools }) => {
  if (JSON.stringify(variables.q).includes('bad')) await tools.archmax_raise({ code: 'unknown', reason: 'no ' + JSON.stringify(variables.q) });
  else await tools.archmax_advance({ to: 'end', reason: 'found' });
}"""


def title(q: Any, **more: Any) -> dict[str, Any]:
    return call("archmax_workflow_title", q=q, **more)


def other(q: Any) -> dict[str, Any]:
    return call("archmax_workflow_other", q=q)


async def run(bench: Make, *answers: dict[str, Any]) -> tuple[Bench, Any]:
    files = {f"workflows/{slug}/scripts/go.js": GO for slug in ("title", "other")}
    script = [{**a, "when_workflow": "main"} for a in answers]
    script.append({**say("found it"), "when_state": "end", "repeat": True})
    b = bench({"main": MAIN, "title": TITLE, "other": TITLE}, script, files=files)
    return b, await b.send()


async def test_an_unrecovered_failure_routes_when_the_agent_stops_with_its_arguments(bench: Make) -> None:
    """04 §8.1, §8.5: every outstanding one in order, each ending `(called with {…})`."""
    b, outcome = await run(bench, do(title("bad A"), title("bad B")), say("stop"), say("tidied"))
    assert outcome.state == "rescue"
    lines = b.one("state-error-routed")["reason"].split("\n")
    assert len(lines) == 2
    assert "bad A" in lines[0] and lines[0].endswith('(called with {"q": "bad A"})'.replace('": ', '":'))
    assert "bad B" in lines[1]


async def test_one_success_recovers_one_failure(bench: Make) -> None:
    """04 §8.2: the oldest, when no arguments are equal."""
    b, outcome = await run(
        bench, do(title("bad A"), title("bad B")), do(title("A2")), say("stop"), say("tidied")
    )
    reason = b.one("state-error-routed")["reason"]
    assert outcome.state == "rescue" and "bad B" in reason and "bad A" not in reason


async def test_two_later_successes_recover_both_also_in_one_message(bench: Make) -> None:
    """04 §8.3: never the same one."""
    _, outcome = await run(bench, do(title("bad A"), title("bad B")), do(title("A"), title("B")), say("stop"))
    assert (outcome.kind, outcome.state) == ("completed", "find")


async def test_a_sibling_of_the_same_message_recovers_nothing(bench: Make) -> None:
    """04 §8.4: whatever their order."""
    _, outcome = await run(
        bench, do(title("good"), title("bad A"), title("good too")), say("stop"), say("tidied")
    )
    assert outcome.state == "rescue"


async def test_another_workflows_success_recovers_nothing(bench: Make) -> None:
    """04 §8.4."""
    _, outcome = await run(bench, do(title("bad A")), do(other("good")), say("stop"), say("tidied"))
    assert outcome.state == "rescue"


async def test_a_landed_move_clears_all(bench: Make) -> None:
    """04 §8.6: unrouted; in the next state they are forgotten."""
    _, outcome = await run(bench, do(title("bad A"), title("bad B")), do(advance_to("next")), say("stop"))
    assert (outcome.kind, outcome.state) == ("completed", "next")


async def test_a_wait_a_reset_and_a_new_turn_clear_all(bench: Make) -> None:
    """04 §8.6."""
    bad = do(title("bad A"))
    b, outcome = await run(
        bench, bad, do(call("archmax_wait", reason="r"), text="w"), bad, do(call("archmax_reset", reason="r")),
        bad, {"error": "down"}, say("done"),
    )  # fmt: skip
    assert outcome.kind == "parked"
    assert (await b.deliver()).kind == "failed"
    outcome = await b.send("again")
    assert (outcome.kind, outcome.state) == ("completed", "find")


async def test_a_raise_clears_all(bench: Make) -> None:
    """04 §8.6."""
    b, outcome = await run(bench, do(title("bad A")), do(call("archmax_raise", code="c", reason="r")))
    assert outcome.exit is not None and outcome.exit["code"] == "c"
    assert (await b.state()).failed_delegations == []


async def test_a_refused_call_records_nothing(bench: Make) -> None:
    """04 §8.1."""
    _, outcome = await run(bench, do(call("archmax_workflow_title")), say("stop"))
    assert outcome.kind == "completed"


async def test_a_scripts_failure_answers_the_script_and_records_nothing(bench: Make) -> None:
    """04 §8."""
    code = "let said; try { await tools.archmaxWorkflowTitle({ q: 'bad' }) } catch (e) { said = e.name + ' ' + e.message } said"
    b, outcome = await run(bench, do(call("archmax_eval", code=code)), say("stop"))
    assert outcome.kind == "completed"
    assert "SubWorkflowError" in b.results(outcome)[0] and "unknown" in b.results(outcome)[0]
    assert ("sub-workflow", "find") in b.steps(outcome)


async def test_arguments_are_compared_and_told_as_they_were_seeded(bench: Make) -> None:
    """04 §8.1: resolved."""
    b, outcome = await run(
        bench, do(setting(q={"b": 1, "a": "bad"})), do(title("${{q}}")), say("stop"), say("tidied")
    )
    assert outcome.state == "rescue"
    assert '"a":"bad"' in b.one("state-error-routed")["reason"].replace('": ', '":')


async def test_equal_arguments_are_recovered_before_older_failures(bench: Make) -> None:
    """04 §8.2: key order ignored; a mocked call counts like a real one."""
    fails = [True, True]

    def mock(tool: str, args: Any) -> Any:
        return {"error": f"down for {args['q']}"} if fails and fails.pop() else {"message": "ok"}

    script = [
        do(title("A"), title({"x": 1, "y": 2})),
        do(title({"y": 2, "x": 1})),
        say("stop"),
        say("tidied"),
    ]
    files = {f"workflows/{slug}/scripts/go.js": GO for slug in ("title", "other")}
    b = bench({"main": MAIN, "title": TITLE, "other": TITLE}, script, files=files, mock=mock)
    outcome = await b.send()
    reason = b.one("state-error-routed")["reason"]
    assert outcome.state == "rescue" and "down for A" in reason and '"x"' not in reason


async def test_a_number_and_a_truth_value_are_not_equal_arguments(bench: Make) -> None:
    """04 §8.2: structurally equal, as JSON is."""
    down = [True, True]

    def mock(_tool: str, _args: Any) -> Any:
        return {"error": "down"} if down and down.pop() else {"message": "ok"}

    script = [do(title([1]), title([True])), do(title([True])), say("stop"), say("tidied")]
    files = {f"workflows/{slug}/scripts/go.js": GO for slug in ("title", "other")}
    b = bench({"main": MAIN, "title": TITLE, "other": TITLE}, script, files=files, mock=mock)
    await b.send()
    assert b.one("state-error-routed")["reason"].endswith('(called with {"q":[1]})')


async def test_a_committed_rejection_with_another_cause_is_the_reason(bench: Make) -> None:
    """04 §8.4, §8.5: and no success recovers it."""
    spec = MAIN.replace("archmax_eval]", "archmax_eval, { tool: touch, args: { n: ['${{nowhere}}'] } }]")
    script = [do(title("bad")), do(call("touch", n=1)), do(title("good")), say("stop"), say("tidied")]
    files = {f"workflows/{slug}/scripts/go.js": GO for slug in ("title", "other")}
    script = [{**a, "when_workflow": "main"} for a in script] + [
        {**say("x"), "when_state": "end", "repeat": True}
    ]
    b = bench({"main": spec, "title": TITLE, "other": TITLE}, script, files=files)
    outcome = await b.send()
    assert outcome.state == "rescue" and "nowhere" in b.one("state-error-routed")["reason"]
