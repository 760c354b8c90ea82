"""Grader states: isolation, deciding, budgets, events (03 §11.6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    settings: { model: small }
    states:
      intake:
        triggers: { manual: }
        instructions: WORK ORDERS
        tools: { allow: [touch] }
        transitions: [{ to: judge, description: have it judged }]
      judge:
        type: grader
        instructions: CRITERIA
        model: big
        tools: { allow: [read_file, write_file] }
        on_error: rescue
        transitions:
          - { to: intake, description: send back }
          - { to: end, description: fine, type: approve }
          - { to: review, description: unsure }
      review: { type: human, instructions: Look., transitions: [{ to: end, description: ok }] }
      end:
      rescue:
"""
GO = do(setting(draft="d"), advance_to("judge"), text="My draft.")


def judged(*answers: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**answer, "role": "grader"} for answer in answers]


async def test_a_grader_moves_the_session_with_its_note(bench: Make) -> None:
    """03 §11.4, §12: the fixed head; a `grader` step."""
    b = bench(SPEC, [GO, *judged(do(advance_to("intake", "no source"))), say("I mend it.")])
    outcome = await b.send()
    assert outcome.state == "intake"
    assert b.notes(outcome) == [
        ("grader", "[grader] The 'judge' grader moved the run to 'intake': no source.")
    ]
    assert b.steps(outcome)[-1] == ("grader", "intake")
    assert b.kinds("grader-start", "grader-result", "advance", "state-leave", "state-enter")[-6:-1] == [
        "grader-start", "grader-result", "advance", "state-leave", "state-enter",
    ]  # fmt: skip
    assert b.one("grader-result")["status"] == "advanced"


async def test_a_grader_sees_nothing_but_its_criteria_and_edges(bench: Make) -> None:
    """03 §11.6: no transcript, no static prompt; edges with type, description and markers."""
    b = bench(SPEC, [GO, *judged(do(advance_to("end"))), say("done")])
    await b.send("SECRET WORDS")
    seen = b.seen[1]
    assert (seen.role, seen.state) == ("grader", "judge")
    shown = seen.system + seen.text
    assert "CRITERIA" in seen.system
    for absent in ("SECRET WORDS", "My draft.", "WORK ORDERS", "## Current state"):
        assert absent not in shown
    assert "`judge`" in seen.text and "- to `end` (approve, terminal) — fine" in seen.text
    assert "- to `review` (human decision node) — unsure" in seen.text
    for said in ("did not do", "records", "exactly one", "next state", "text decides nothing"):
        assert said in seen.system
    assert set(seen.tools) >= {"archmax_advance", "archmax_raise", "archmax_get_history", "read_file"}
    assert not {"touch", "archmax_wait", "archmax_reset", "archmax_eval", "write_todos"} & set(seen.tools)


async def test_a_graders_words_enter_no_transcript_and_never_stream(bench: Make) -> None:
    """03 §11.6: its tokens are counted in the session under its state."""
    b = bench(SPEC, [GO, *judged(do(advance_to("end"), text="I think it is fine.")), say("done")])
    outcome = await b.send()
    assert "I think" not in json.dumps(outcome.transcript) and "I think" not in outcome.reply
    assert all("I think" not in str(e.get("text")) for e in b.events)
    assert "judge" in [e["state"] for e in b.of("model-usage")]
    assert outcome.usage is not None
    assert outcome.usage["inputTokens"] == sum(e["inputTokens"] for e in b.of("model-usage"))


async def test_a_grader_works_with_its_own_tools_substituted_like_the_agents(bench: Make) -> None:
    """03 §11.6, §14: `${{…}}` filled in; events marked `grader`; call ids are the provider's."""
    write = do(call("write_file", file_path="scratchpad/verdict.md", content="on ${{draft}}"))
    read = do(call("read_file", file_path="scratchpad/verdict.md"), call("archmax_get_history"))
    b = bench(SPEC, [GO, *judged(write, read, do(advance_to("end"))), say("done")])
    await b.send()
    text = b.seen[3].text
    assert "on d" in text and "My draft." in text and '"trail"' in text
    calls = b.of("tool-called", origin="grader")
    assert [e["tool"] for e in calls] == ["write_file", "read_file", "archmax_get_history", "archmax_advance"]
    assert len({e["callId"] for e in calls}) == 4
    assert {e["callId"] for e in calls} == {e["callId"] for e in b.of("tool-result", origin="grader")}


async def test_the_first_decision_wins_and_a_refused_one_may_be_retried(bench: Make) -> None:
    """03 §11.3."""
    b = bench(
        SPEC,
        [
            GO,
            *judged(
                do(advance_to("nowhere")),
                do(advance_to("end"), advance_to("intake"), after_tool="archmax_advance"),
                say("that is all", after_tool="archmax_advance"),
            ),
            say("done"),
        ],
    )
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "end")
    assert "already decided" in b.seen[3].text


async def test_text_alone_decides_nothing(bench: Make) -> None:
    """03 §11.4: never approval; the fixed text."""
    b = bench(SPEC, [GO, *judged(say("It is fine, approve.")), say("done")])
    outcome = await b.send()
    assert outcome.state == "rescue"
    assert b.one("grader-result")["reason"] == (
        "grader state 'judge' finished without calling archmax_advance or archmax_raise"
    )


async def test_a_grader_may_raise(bench: Make) -> None:
    """03 §9.4, §11.4: also when its run then errs."""
    b = bench(
        SPEC,
        [
            GO,
            *judged(
                do(call("archmax_raise", code="fraud", reason="forged")),
                {"error": "down", "after_tool": "archmax_raise"},
            ),
        ],
    )
    outcome = await b.send()
    assert outcome.exit == {"success": False, "code": "fraud", "reason": "forged"}
    assert b.one("grader-result")["status"] == "raised"


async def test_an_error_drops_the_advance_and_routes(bench: Make) -> None:
    """03 §11.4."""
    b = bench(
        SPEC,
        [GO, *judged(do(advance_to("end")), {"error": "down", "after_tool": "archmax_advance"}), say("done")],
    )
    outcome = await b.send()
    assert outcome.state == "rescue" and "down" in b.one("grader-result")["reason"]


@pytest.mark.parametrize(
    ("budget", "asked", "why"), [("maxTurns: 2", 2, "maxTurns"), ("timeoutMs: 30", 1, "timeoutMs")]
)
async def test_a_graders_budgets_bound_its_own_run(bench: Make, budget: str, asked: int, why: str) -> None:
    """03 §11.6, §13.3."""
    spec = SPEC.replace("        model: big\n", f"        model: big\n        budget: {{ {budget} }}\n")
    slow = {"delay_ms": 200} if "timeout" in budget else {}
    read = {**do(call("archmax_get_variables")), **slow, "repeat": True}
    b = bench(spec, [GO, *judged(read), say("done")])
    outcome = await b.send()
    assert outcome.state == "rescue" and why in b.one("grader-result")["reason"]
    assert len([seen for seen in b.seen if seen.role == "grader"]) == asked


async def test_a_graders_loop_has_the_limit_as_its_own(bench: Make) -> None:
    """03 OP-4: exceeding it is a state failure."""
    b = bench(
        SPEC,
        [GO, *judged({**do(call("archmax_get_variables")), "repeat": True}), say("done")],
        recursion_limit=7,
    )
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "rescue")


async def test_a_graders_human_target_parks_with_its_evidence(bench: Make) -> None:
    """03 §9.1, §10.2."""
    b = bench(SPEC, [GO, *judged(do(advance_to("review", evidence=["scratchpad/v.md"]))), say("please")])
    outcome = await b.send()
    assert (outcome.kind, outcome.reply) == ("parked", "My draft.\n\nplease")
    assert outcome.pending is not None and outcome.pending["evidence"] == ["scratchpad/v.md"]


async def test_graders_spend_none_of_the_agents_turns(bench: Make) -> None:
    """03 §13.3."""
    spec = SPEC.replace(
        "        instructions: WORK ORDERS\n", "        instructions: W\n        budget: { maxTurns: 1 }\n"
    )
    b = bench(spec, [GO, *judged(do(advance_to("intake", "again"))), say("mended")])
    assert (await b.send()).kind == "completed"


async def test_unreadable_and_unknown_calls_of_a_grader_are_answered(bench: Make) -> None:
    """03 §6: it may correct itself."""
    bad = {"tool_calls": [{"name": "archmax_advance", "raw_args": "{to"}, {"name": "no_such_tool"}]}
    b = bench(SPEC, [GO, *judged(bad, do(advance_to("end"))), say("done")])
    assert (await b.send()).state == "end"


async def test_a_grader_script_goes_on_after_a_refused_decision(bench: Make) -> None:
    """09 §2: only an accepted advance or raise is answered `done` and uses nothing up."""
    b = bench(
        """
        states:
          work: { triggers: { manual: }, transitions: [{ to: judge, description: ready }] }
          judge:
            type: grader
            instructions: Be strict.
            transitions: [{ to: done, description: good }]
          done:
        """,
        [
            do(advance_to("judge")),
            {
                "role": "grader",
                "tool_calls": [{"name": "archmax_advance", "args": {"to": "nowhere", "reason": "x"}}],
            },
            {
                "role": "grader",
                "tool_calls": [{"name": "archmax_advance", "args": {"to": "done", "reason": "good"}}],
            },
            say("finished"),
        ],
    )
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "done")
