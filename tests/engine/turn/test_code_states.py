"""Code states: deciding, settling, what they are offered (03 §11.1–11.5)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.engine import Bench, advance_to, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    settings: { timeoutMs: 3000 }
    states:
      intake:
        triggers: { manual: { returns: [fee] } }
        instructions: Take it in.
        tools: { allow: [touch] }
        transitions: [{ to: check, description: go on }]
      check:
        type: code
        script: scripts/check.js
        requires: [fee]
        tools: { allow: [write_file] }
        on_error: rescue
        transitions: [{ to: review }, { to: intake }, { to: closed }]
      review: { type: human, instructions: Look., transitions: [{ to: intake, description: ok }] }
      closed: { type: code, script: scripts/closed.js }
      rescue:
"""
START = "{ name: archmax_advance, args: { to: check, reason: r } }"


def scripts(check: str, closed: str = "export default async () => {}") -> dict[str, str]:
    return {"workflows/main/scripts/check.js": check, "workflows/main/scripts/closed.js": closed}


def body(code: str) -> dict[str, str]:
    return scripts(f"export default async function ({{ state, trigger, variables, tools }}) {{ {code} }}")


CLOSE = "await tools.archmax_set_variables({ variables: { fee: 1 } }); await tools.archmax_advance({ to: 'closed', reason: 'ok' });"


async def test_a_chain_of_code_states_makes_no_model_call_and_completes(bench: Make) -> None:
    """03 §11.1, §11.4: each its own step; a terminal code state completes when its script returns."""
    b = bench(SPEC, [do(advance_to("check"))], files=body(CLOSE))
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "closed")
    assert len(b.seen) == 1
    assert b.steps(outcome) == [("trigger", "intake"), ("agent", "check"), ("code", "closed")]
    assert [e["status"] for e in b.of("code-result")] == ["advanced", "completed"]


async def test_the_events_of_a_code_states_move_come_in_order(bench: Make) -> None:
    """03 §11.4, OP-7: code-start, its calls, code-result, advance, state-leave, state-enter."""
    b = bench(SPEC, [do(advance_to("check"))], files=body("console.log('hm'); " + CLOSE))
    await b.send()
    start = b.kinds().index("code-start")
    assert b.kinds()[start : start + 11] == [
        "code-start", "code-output", "tool-called", "variables-set", "tool-result", "tool-called", "tool-result",
        "code-result", "advance", "state-leave", "state-enter",
    ]  # fmt: skip
    calls = b.of("tool-called", origin="code")
    assert [event["callId"] for event in calls] == ["ptc:1", "ptc:2"]
    assert b.one("code-output")["line"] == "hm" and b.of("code-start")[0]["script"] == "scripts/check.js"
    assert "callId" not in b.of("advance")[2]


async def test_the_note_says_who_moved_where_and_why(bench: Make) -> None:
    """03 §12: its head is fixed."""
    code = "await tools.archmax_set_variables({variables:{fee:2}}); await tools.archmax_advance({ to: 'intake', reason: 'too low' })"
    b = bench(SPEC, [do(advance_to("check")), say("done")], files=body(code))
    outcome = await b.send()
    assert b.notes(outcome) == [("code", "[code] 'check' moved the run to 'intake': too low.")]


async def test_a_script_sees_its_state_trigger_and_a_snapshot_of_the_variables(bench: Make) -> None:
    """03 §11.5: with `trigger`, structured values whole; later calls see its writes."""
    code = """
      const before = JSON.stringify([state, trigger, variables.trigger, variables.order.lines[0], variables.fee ?? null]);
      await tools.archmax_set_variables({ variables: { fee: 7 } });
      const held = JSON.parse(await tools.archmax_get_variables({ name: 'fee' }));
      await tools.archmax_advance({ to: 'closed', reason: before + JSON.stringify([held.value, variables.fee ?? null]) });
    """
    b = bench(SPEC, [do(setting(order={"lines": ["a"]}), advance_to("check"))], files=body(code))
    outcome = await b.send()
    assert outcome.audit_trail[-1]["reason"] == '["check","manual","manual","a",null][7,null]'


async def test_the_first_accepted_decision_wins_and_a_refused_one_may_be_caught(bench: Make) -> None:
    """03 §11.3: checked at the call: edge, requires, evidence; later ones are refused."""
    code = """
      const said = [];
      const attempt = async (args) => { try { await tools.archmax_advance(args); said.push('yes'); } catch (e) { said.push(e.message); } };
      await attempt({ to: 'closed', reason: 'no fee yet' });
      await tools.archmax_set_variables({ variables: { fee: 1 } });
      await attempt({ to: 'nowhere', reason: 'x' });
      await attempt({ to: 'closed', reason: 'x', evidence: ['scratchpad/a.md'] });
      await attempt({ to: 'intake', reason: 'first' });
      await attempt({ to: 'closed', reason: 'second' });
      try { await tools.archmax_raise({ code: 'c', reason: 'r' }); said.push('raised'); } catch (e) { said.push(e.message); }
      console.log(JSON.stringify(said));
    """
    b = bench(SPEC, [do(advance_to("check")), say("done")], files=body(code))
    outcome = await b.send()
    said = json.loads(b.one("code-output")["line"])
    assert "'fee'" in said[0] and "nowhere" in said[1] and "human" in said[2] and said[3] == "yes"
    assert "already decided" in said[4] and "already decided" in said[5]
    assert outcome.state == "intake" and outcome.audit_trail[-1]["reason"] == "first"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (CLOSE + " throw new Error('boom')", "boom"),
        ("while (true) {}", "check"),
        ("await tools.archmax_advance({ to: 'closed', reason: 'x' })", "'fee'"),
        (
            "return 'approved'",
            "code state 'check' finished without calling archmax_advance or archmax_raise",
        ),
    ],
)
async def test_a_failed_run_routes_and_drops_its_advance(bench: Make, code: str, why: str) -> None:
    """03 §11.4: threw, timed out, undecided (fixed text); the advance is discarded, writes stay (OP-6)."""
    spec = SPEC.replace("timeoutMs: 3000", "timeoutMs: 300")
    b = bench(spec, [do(advance_to("check")), do(setting(fee=3)), say("tidied")], files=body(code))
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "rescue")
    result = b.one("code-result")
    assert result["status"] == "failed" and why in result["reason"] and result["level"] == "warn"
    routed = b.one("state-error-routed")
    assert (routed["state"], routed["to"], routed["reason"]) == ("check", "rescue", result["reason"])
    order = b.kinds("code-result", "state-error-routed", "state-leave", "state-enter")
    assert order[-5:-1] == ["code-result", "state-error-routed", "state-leave", "state-enter"]
    assert b.steps(outcome)[-1] == ("on_error", "rescue")
    kind, text = b.notes(outcome)[-1]
    assert kind == "error" and text.startswith("[error]") and "'check'" in text and why in text


async def test_without_on_error_a_failed_run_rejects_the_session(bench: Make) -> None:
    """03 §11.4."""
    b = bench(
        SPEC.replace("        on_error: rescue\n", ""), [do(advance_to("check"))], files=body("throw 1")
    )
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("rejected", "check")


@pytest.mark.parametrize(
    "files", [{}, {"workflows/main/scripts/check.js": "import fs from 'fs'; export default () => {}"}]
)
async def test_a_missing_file_or_a_foreign_import_fails_the_state(bench: Make, files: dict[str, str]) -> None:
    """03 §11.4, §19.4."""
    b = bench(SPEC, [do(advance_to("check")), do(setting(fee=1)), say("done")], files=files)
    assert (await b.send()).state == "rescue"


async def test_a_raise_beats_an_error_and_ends_the_session(bench: Make) -> None:
    """03 §11.4: raised even if the run then errored; no on_error, no returns, no trail step."""
    code = "await tools.archmax_raise({ code: 'no-fee', reason: 'none' }); throw new Error('later');"
    b = bench(SPEC, [do(advance_to("check"))], files=body(code))
    outcome = await b.send()
    assert outcome.exit == {"success": False, "code": "no-fee", "reason": "none"}
    assert b.one("code-result")["status"] == "raised" and "callId" not in b.one("raised")
    assert b.kinds()[-3:] == ["code-result", "raised", "state-leave"]
    assert b.steps(outcome)[-1] == ("agent", "check")


async def test_a_human_target_parks_after_its_one_handoff_call(bench: Make) -> None:
    """03 §11.4: with the evidence the script attached."""
    code = (
        "await tools.archmax_set_variables({variables:{fee:1}});"
        "await tools.archmax_advance({ to: 'review', reason: 'ask', evidence: ['scratchpad/x.md'] });"
    )
    b = bench(SPEC, [do(advance_to("check")), say("please")], files=body(code))
    outcome = await b.send()
    assert (outcome.kind, outcome.state, outcome.reply) == ("parked", "review", "please")
    assert outcome.pending is not None and outcome.pending["evidence"] == ["scratchpad/x.md"]
    assert b.kinds("advance", "state-leave", "state-enter", "parked")[-4:] == [
        "advance", "state-leave", "state-enter", "parked",
    ]  # fmt: skip


async def test_a_code_state_is_offered_its_own_surface_alone(bench: Make) -> None:
    """03 §11.2: five controls, its state's tools; another state's tool is out of reach."""
    code = CLOSE.replace("'ok'", "Object.keys(tools).sort().join(' ')")
    b = bench(SPEC, [do(advance_to("check"))], files=body(code))
    names = (await b.send()).audit_trail[-1]["reason"].split()
    controls = {
        "archmaxAdvance",
        "archmaxRaise",
        "archmaxGetVariables",
        "archmaxSetVariables",
        "archmaxGetHistory",
    }
    assert controls <= set(names) and "writeFile" in names
    assert not {"touch", "archmaxReset", "archmaxWait", "archmaxEval", "archmaxRun", "writeTodos"} & set(
        names
    )


async def test_history_shows_the_session_as_it_stood_at_entry(bench: Make) -> None:
    """03 §9.7: roles, notes as one runtime entry, references as written; the run's own calls are in none."""
    code = """
      await tools.archmax_set_variables({ variables: { fee: 1 } });
      const one = await tools.archmax_get_history({});
      console.log(one === await tools.archmax_get_history());
      console.log(one);
      await tools.archmax_advance({ to: 'closed', reason: 'x' });
    """
    answers = [do(setting(card="c"), text="hm"), do(advance_to("check", "${{card}} it is"))]
    b = bench(SPEC, answers, files=body(code))
    await b.send("hello")
    same, history = (event["line"] for event in b.of("code-output"))
    assert same == "true"
    read = json.loads(history)
    assert [m["role"] for m in read["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert read["messages"][3]["toolCalls"][0]["args"]["reason"] == "${{card}} it is"
    assert read["messages"][2]["tool"] == "archmax_set_variables" and read["messages"][2]["id"]
    assert read["trail"][-1]["reason"] == "c it is"


async def test_references_in_a_scripts_arguments_are_plain_text(bench: Make) -> None:
    """03 §11.5, ruling 2."""
    code = CLOSE.replace("fee: 1", "fee: '${{trigger}}'")
    b = bench(SPEC, [do(advance_to("check"))], files=body(code))
    assert b.values(await b.send()) == {"fee": "${{trigger}}"}


async def test_a_script_without_a_default_export_is_run_as_a_plain_script(bench: Make) -> None:
    """03 OP-8: with `args` and `tools`."""
    code = "await tools.archmax_set_variables({ variables: { fee: args.state } });\nawait tools.archmax_advance({ to: 'closed', reason: args.trigger });"
    b = bench(SPEC, [do(advance_to("check"))], files=scripts(code))
    outcome = await b.send()
    assert (b.values(outcome), outcome.audit_trail[-1]["reason"]) == ({"fee": "check"}, "manual")


async def test_a_terminal_code_state_is_held_to_the_returns(bench: Make) -> None:
    """03 §11.4, §4.3."""
    spec = SPEC.replace("returns: [fee]", "returns: [fee, receipt]")
    b = bench(spec, [do(advance_to("check"))], files=body(CLOSE))
    outcome = await b.send()
    assert outcome.kind == "rejected" and outcome.rejected is not None and "'receipt'" in outcome.rejected


async def test_automated_states_that_never_rest_end_at_the_recursion_limit(bench: Make) -> None:
    """03 §11.1, §13.5: `recursion-limit`, no `on_error`."""
    spec = SPEC.replace("{ to: closed }]", "{ to: closed }, { to: check }]")
    code = "await tools.archmax_set_variables({variables:{fee:1}}); await tools.archmax_advance({ to: 'check', reason: 'x' })"
    b = bench(spec, [do(advance_to("check"))], files=body(code), recursion_limit=6)
    outcome = await b.send()
    assert outcome.exit is not None and outcome.exit["code"] == "recursion-limit"
    assert len(b.of("code-start")) == 4 and not b.of("state-error-routed")


async def test_a_turn_may_open_in_a_code_state(bench: Make) -> None:
    """03 §3.4, §11.1."""
    spec = SPEC.replace("script: scripts/check.js", "script: scripts/check.js\n        triggers: { fees: }")
    b = bench(spec, "[]", files=body(CLOSE))
    outcome = await b.send(trigger="fees")
    assert outcome.kind == "completed" and b.seen == []


async def test_a_blocked_call_of_a_script_has_an_id_of_its_own_and_rejects(bench: Make) -> None:
    """03 §19.3, §20: `PtcGovernanceError`; tool-blocked instead of the pair."""
    spec = SPEC.replace(
        "{ allow: [write_file] }", "{ allow: [{ tool: write_file, args: { file_path: ['scratchpad/*'] } }] }"
    )
    code = (
        "try { await tools.write_file({ file_path: 'elsewhere.md', content: 'x' }) } catch (e) { console.log(e.name) }"
        + CLOSE
    )
    b = bench(spec, [do(advance_to("check"))], files=body(code))
    assert (await b.send()).kind == "completed"
    assert b.one("code-output")["line"] == "PtcGovernanceError"
    assert b.one("tool-blocked")["callId"] == "ptc:1"
    assert [e["callId"] for e in b.of("tool-called", origin="code")] == ["ptc:2", "ptc:3"]
