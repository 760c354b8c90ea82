"""Running cases: halting, dying, start conditions, mocks, scripts and the suite (06 §3, §6–§8, §11; 09 §2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from archmax.testing import (
    CaseResult,
    CaseTargetError,
    SuiteRefusedError,
    SuiteResult,
    assert_workflow_governed_target,
    create_case_target,
    create_tool_mock_middleware,
    discover_cases,
    run_case,
    run_tests,
)
from core.jsontext import JsonObject
from engine.cases.document import Mock
from engine.cases.runner import current_mocks
from engine.errors import WorkflowLoadError
from engine.models.script import ModelScript
from engine.models.scripted import ScriptedChatModel
from engine.spec.tree import DirectoryTree
from sandbox import Sandbox
from tests.support.cases import DESK, head, write_cases

HELLO = "- text: Hello.\n"
PARKS = """
- tool_calls: [{ name: archmax_advance, args: { to: review, reason: look } }]
- text: Someone looks.
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARCHMAX_MODEL", "ARCHMAX_HOST", "ARCHMAX_API_BASE_URL", "ARCHMAX_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


async def run_one(root: Path, case: str, script: str = "") -> CaseResult:
    scripts = {"one": script} if script else {}
    suite = await run_tests("desk", root=write_cases(root, {"one": head() + case}, scripts))
    (result,) = suite.results
    return result


def statuses(result: CaseResult) -> list[tuple[str, str]]:
    return [(record.kind, record.status) for record in result.records]


# -- halting ---------------------------------------------------------------------------------------------------------


async def test_a_structural_miss_halts_the_case_without_an_error(tmp_path: Path) -> None:
    """06 §6.1."""
    case = """
steps:
  - send: hi
  - parked: decision
  - reply: { includes: [Hello, you], excludes: nothing }
  - send: more
  - succeeded: true
"""
    result = await run_one(tmp_path, case, HELLO + "- text: never asked\n")
    assert statuses(result) == [
        ("parked", "failed"),
        ("reply", "not-executed"),
        ("succeeded", "not-executed"),
    ]
    assert result.error is None
    assert result.verdict.status == "failed"
    assert [failure.partition(":")[0] for failure in result.verdict.failures] == ["parked"]


async def test_a_miss_that_is_not_structural_lets_the_case_go_on(tmp_path: Path) -> None:
    """06 §6.1: reply, tool, variables and grade assertions never halt."""
    case = """
steps:
  - send: hi
  - reply: { includes: Goodbye }
  - calledTool: { name: read_file }
  - ranWorkflow: { workflow: other }
  - variables: { expect: { x: 1 } }
  - grade: { closedQA: anything, atLeast: 0.5 }
  - send: again
  - reply: { includes: Welcome back }
"""
    result = await run_one(tmp_path, case, HELLO + "- text: Welcome back.\n")
    assert [status for _, status in statuses(result)] == ["failed"] * 5 + ["passed"]
    (graded,) = [record for record in result.records if record.kind == "grade.closedQA"]
    assert graded.score == 0
    assert "judge" in (graded.detail or "")


# -- dying -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("decide: { to: done }", "not parked for a decision"),
        ("deliver: { trigger: mail }", "not awaiting input"),
    ],
)
async def test_an_action_the_session_cannot_take_kills_the_case(
    tmp_path: Path, action: str, said: str
) -> None:
    """06 §3, §6.2: its message comes first, and records made before survive."""
    case = f"steps:\n  - send: hi\n  - reply: {{ excludes: Hello }}\n  - {action}\n  - succeeded: true\n"
    result = await run_one(tmp_path, case, HELLO)
    assert result.error is not None
    assert said in result.error
    assert result.verdict.failures[0] == result.error
    assert result.verdict.failures[1].startswith("reply.excludes")
    assert statuses(result) == [("reply.excludes", "failed"), ("succeeded", "not-executed")]


async def test_a_decision_to_a_target_that_is_no_transition_kills_the_case(tmp_path: Path) -> None:
    """06 §3."""
    case = "steps:\n  - send: hi\n  - parked: { state: review }\n  - decide: { to: desk }\n"
    result = await run_one(tmp_path, case, PARKS)
    assert "done" in (result.error or "")
    assert statuses(result) == [("parked", "passed")]


async def test_a_turn_that_fails_is_an_outcome_and_no_death(tmp_path: Path) -> None:
    """06 §6.2."""
    raising = "- tool_calls: [{ name: archmax_raise, args: { code: too-much, reason: no room left } }]\n"
    case = """
steps:
  - send: hi
  - raised: { code: too-much, reason: "/room/" }
  - raised: too-much
  - noTraversal: true
"""
    result = await run_one(tmp_path, case, raising)
    assert result.verdict.status == "passed", result.verdict.failures
    assert result.error is None


async def test_a_raise_is_told_from_a_failure_by_who_made_it_and_not_by_its_code(tmp_path: Path) -> None:
    """06 §6: `raised` means archmax_raise, even under a code the runtime uses itself."""
    raising = "- tool_calls: [{ name: archmax_raise, args: { code: turn-error, reason: mine } }]\n"
    result = await run_one(tmp_path / "a", "steps: [{ send: hi }, { raised: turn-error }]\n", raising)
    assert result.verdict.status == "passed", result.verdict.failures
    broken = "- error: the provider is down\n  error_status: 400\n"
    result = await run_one(tmp_path / "b", "steps: [{ send: hi }, { raised: true }]\n", broken)
    assert statuses(result) == [("raised", "failed")]
    assert "turn-error" in result.verdict.failures[0]


async def test_a_case_that_runs_too_long_dies_and_its_turn_is_cancelled(tmp_path: Path) -> None:
    """06 §11: the error names the case, the milliseconds and the key; nothing is spent under the next case."""
    workflow = DESK + "tests: { caseTimeoutMs: 1500 }\n"
    slow = "- text: first\n- text: late\n  delay_ms: 600000\n"
    cases = {
        "a/slow": head()
        + "steps: [{ send: hi }, { reply: { includes: first } }, { send: more }, { succeeded: true }]\n",
        "b": head() + "steps: [{ send: hi }, { succeeded: true }]\n",
    }
    root = write_cases(tmp_path, cases, {"a/slow": slow, "b": HELLO}, workflow=workflow)
    events: list[JsonObject] = []
    suite = await run_tests("desk", root=root, on_event=events.append)
    slow_result, next_result = suite.results
    assert slow_result.error is not None
    for part in ("a/slow", "1500", "tests.caseTimeoutMs"):
        assert part in slow_result.error
    assert statuses(slow_result) == [("reply.includes", "passed"), ("succeeded", "not-executed")]
    assert next_result.verdict.status == "passed"
    first_of_next = next(i for i, e in enumerate(events) if e.get("sessionId") == next_result.session_id)
    assert all(e.get("sessionId") == next_result.session_id for e in events[first_of_next:])


# -- start conditions --------------------------------------------------------------------------------------------------


async def test_an_unknown_trigger_kills_a_case_even_without_steps(tmp_path: Path) -> None:
    """06 §7: it names the trigger and the declared ids."""
    result = await run_one(tmp_path, "trigger: { id: nowhere }\n")
    assert result.verdict.status == "failed"
    for part in ("nowhere", "manual", "other"):
        assert part in (result.error or "")


async def test_a_case_without_steps_passes(tmp_path: Path) -> None:
    """06 §2: absent or empty steps are legal."""
    result = await run_one(tmp_path, "")
    assert (result.verdict.status, result.records) == ("passed", ())


async def test_variables_are_seeded_locked_on_every_send_and_are_final(tmp_path: Path) -> None:
    """06 §7: title alone stays unlocked."""
    script = """
- tool_calls: [{ name: archmax_set_variables, args: { variables: { kind: mine } } }]
- text: Kept.
- text: Again.
"""
    case = """
trigger: { id: other }
variables: { kind: host, title: A title }
steps:
  - send: hi
  - calledTool: { name: archmax_set_variables }
  - variables: { expect: { kind: host, title: A title }, locked: { kind: true, title: false } }
  - triggerArrival: other
  - send: more
  - trail: { kind: trigger, reason: other, count: 2 }
"""
    result = await run_one(tmp_path, case, script)
    assert result.verdict.status == "passed", result.verdict.failures


SEEDS = """
workspace:
  scratchpad/in.txt: { from: fixtures/./in.txt }
  trigger.json: { b: [1, null], a: é }
  both.json: { from: fixtures/in.txt, and: more }
steps:
  - send: hi
  - calledTool: { name: read_file, input: { file_path: trigger.json } }
  - reply: { includes: done }
"""


async def test_workspace_entries_are_written_before_the_first_step(tmp_path: Path) -> None:
    """06 §7.3: text, fixtures byte for byte, JSON with two blanks; `from` with another key is content."""
    script = """
- tool_calls:
    - { name: read_file, args: { file_path: scratchpad/in.txt } }
    - { name: read_file, args: { file_path: trigger.json } }
    - { name: read_file, args: { file_path: both.json } }
- when_contains: ["fixture text", '"b": [', '"a": "é"', '"from": "fixtures/in.txt"']
  text: done
"""
    files = {"workflows/desk/tests/fixtures/in.txt": "fixture text"}
    root = write_cases(tmp_path, {"one": head() + SEEDS}, {"one": script}, files=files)
    (result,) = (await run_tests("desk", root=root)).results
    assert result.verdict.status == "passed", result.verdict.failures


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("skills/x.md: a", "skills"),
        ("AGENTS.md: a", "AGENTS.md"),
        ("workflows/desk/x.yaml: a", "workflows"),
        ("../x: a", "leaves"),
        ("checkpoints/x: a", "runtime"),
        ("x.txt: { from: ../workflow.yaml }", "tests/"),
        ("x.txt: { from: /etc/hosts }", "tests/"),
        ("x.txt: { from: missing.txt }", "missing.txt"),
    ],
)
async def test_a_path_that_cannot_be_seeded_kills_the_case(tmp_path: Path, entry: str, said: str) -> None:
    """06 §7.3: no step runs, nothing is written."""
    case = f"workspace:\n  good.txt: fine\n  {entry}\nsteps: [{{ send: hi }}, {{ succeeded: true }}]\n"
    result = await run_one(tmp_path, case, "- { text: Hello., optional: true }\n")
    assert said in (result.error or "")
    assert statuses(result) == [("succeeded", "not-executed")]


async def test_the_clock_replaces_now_in_prompts_only(tmp_path: Path) -> None:
    """06 §7.4: recorded timestamps keep the real time."""
    script = '- { when_contains: "2031-05-09 00:00 UTC (Friday)", text: Friday. }\n'
    case = "clock: 2031-05-09\nsteps: [{ send: What day is it? }, { reply: { includes: Friday } }]\n"
    root = write_cases(tmp_path, {"one": head() + case}, {"one": script})
    events: list[JsonObject] = []
    suite = await run_tests("desk", root=root, on_event=events.append)
    assert suite.exit_code == 0, suite.to_json()
    year_2031_ms = 1_925_000_000_000
    assert all(event["ts"] < year_2031_ms for event in events)


# -- mocks -------------------------------------------------------------------------------------------------------------


async def test_the_first_matching_mock_answers_after_substitution(tmp_path: Path) -> None:
    """06 §8: matching sees the filled-in argument, calledTool the written one; a value is compact JSON."""
    script = """
- tool_calls: [{ name: read_file, args: { file_path: "${{name}}.txt" } }]
- { when_contains: '{"a":[1,2]}', text: Seen. }
"""
    case = """
variables: { name: order }
mocks:
  - { tool: read_file, whenInput: { file_path: other.txt }, result: wrong }
  - { tool: read_file, whenInput: { file_path: "/^order\\\\.txt$/" }, result: { a: [1, 2] } }
  - { tool: read_file, result: too late }
steps:
  - send: hi
  - calledTool: { name: read_file, input: { file_path: "${{name}}.txt" } }
  - notCalledTool: { name: read_file, input: { file_path: order.txt } }
  - reply: { includes: Seen }
"""
    result = await run_one(tmp_path, case, script)
    assert result.verdict.status == "passed", result.verdict.failures


async def test_a_mock_never_grants_and_a_control_tool_is_never_mocked(tmp_path: Path) -> None:
    """06 §8."""
    script = """
- tool_calls:
    - { name: write_file, args: { file_path: skills/x.md, content: x } }
    - { name: archmax_set_variables, args: { variables: { x: 1 } } }
- text: Done.
"""
    case = """
mocks:
  - { tool: write_file, result: written }
  - { tool: archmax_set_variables, result: mocked }
steps:
  - send: hi
  - blockedTool: { name: write_file }
  - variables: { expect: { x: 1 } }
"""
    result = await run_one(tmp_path, case, script)
    assert result.verdict.status == "passed", result.verdict.failures


async def test_mocks_reach_code_states_on_decisions_and_scripts_too(tmp_path: Path) -> None:
    """06 §8: every turn of the case and every caller. An absent result is null."""
    script = """
- tool_calls: [{ name: archmax_eval, args: { code: "await tools.readFile({ file_path: 'scratchpad/a.txt' })" } }]
- when_contains: "null"
  tool_calls: [{ name: archmax_advance, args: { to: check, reason: go } }]
- text: Goodbye.
"""
    case = """
mocks:
  - { tool: read_file, whenInput: { file_path: scratchpad/in.txt }, result: from the mock }
  - { tool: read_file, whenInput: { file_path: scratchpad/a.txt } }
steps:
  - send: hi
  - trail: { kind: code, to: done, reason: from the mock, count: 1 }
  - notCalledTool: { name: read_file }
"""
    result = await run_one(tmp_path, case, script)
    assert result.verdict.status == "passed", result.verdict.failures


async def test_a_mocked_script_tool_runs_nothing(tmp_path: Path) -> None:
    """06 §8, 03 §6: archmax_eval is a default tool, no control."""
    script = """
- tool_calls: [{ name: archmax_eval, args: { code: "while (true) {}" } }]
- { when_contains: forty-two, text: Done. }
"""
    case = """
mocks: [{ tool: archmax_eval, result: forty-two }]
steps: [{ send: hi }, { reply: { includes: Done } }]
"""
    result = await run_one(tmp_path, case, script)
    assert result.verdict.status == "passed", result.verdict.failures


async def test_a_target_that_cannot_be_mocked_is_refused_when_a_case_has_mocks(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    """06 §8: before anything is seeded or run; the message names the middleware."""

    class Unmockable:
        tool_mocks = False

        def __init__(self, agent: object) -> None:
            self._agent = agent

        def __getattr__(self, name: str) -> object:
            return getattr(self._agent, name)

    case = head() + "mocks: [{ tool: ls }]\nsteps: [{ send: hi }, { succeeded: true }]\n"
    root = write_cases(tmp_path, {"one": case, "two": head()})
    tree = DirectoryTree(root)
    agent = Unmockable(await create_case_target("desk", root=root, sandbox=sandbox))
    with_mocks, without = await discover_cases(tree, "workflows/desk/tests")
    refused = await run_case(
        with_mocks,
        agent=agent,  # type: ignore[arg-type]
        authoring=tree,
        tests_dir="workflows/desk/tests",
        session_id="s",
    )
    fine = await run_case(
        without,
        agent=agent,  # type: ignore[arg-type]
        authoring=tree,
        tests_dir="workflows/desk/tests",
        session_id="s",
    )
    assert "create_tool_mock_middleware" in (refused.error or "")
    assert statuses(refused) == [("succeeded", "not-executed")]
    assert fine.verdict.status == "passed"


async def test_the_middleware_mocks_a_langchain_agent_in_a_case() -> None:
    """06 §13: `create_tool_mock_middleware`."""
    from langchain.agents import create_agent

    @tool
    def ring(bell: str) -> str:
        """Ring a bell."""
        return f"really rang {bell}"

    script = (
        "- tool_calls: [{ name: ring, args: { bell: a } }, { name: ring, args: { bell: b } }]\n- text: ok\n"
    )
    model = ScriptedChatModel(script=ModelScript.parse("m.yaml", script))
    agent = create_agent(model, [ring], middleware=[create_tool_mock_middleware()])
    token = current_mocks.set([Mock("ring", {"bell": "a"}, "mocked")])
    try:
        answer = await agent.ainvoke({"messages": [HumanMessage("go")]})
    finally:
        current_mocks.reset(token)
    assert [m.content for m in answer["messages"] if m.type == "tool"] == ["mocked", "really rang b"]
    assert isinstance(answer["messages"][-1], AIMessage)


# -- model scripts -----------------------------------------------------------------------------------------------------


async def test_an_answer_left_unused_fails_a_case_that_passed(tmp_path: Path) -> None:
    """09 §2: its index and line are named; an optional one may stay."""
    script = "- text: Hello.\n- text: spare\n  optional: true\n- text: never\n"
    result = await run_one(tmp_path, "steps: [{ send: hi }, { succeeded: true }]\n", script)
    assert statuses(result) == [("succeeded", "passed")]
    assert result.error is None
    (failure,) = result.verdict.failures
    assert "one.model.yaml:4" in failure
    assert "answer 2" in failure


async def test_a_request_nothing_fits_fails_the_case(tmp_path: Path) -> None:
    """09 §2: also when every assertion passed; role, workflow and state are named."""
    script = "- { when_state: done, text: never, optional: true }\n"
    result = await run_one(tmp_path, "steps: [{ send: hi }, { usedNoTools: true }]\n", script)
    assert statuses(result) == [("usedNoTools", "passed")]
    (failure,) = result.verdict.failures
    for part in ("script exhausted", "agent", "desk"):
        assert part in failure


async def test_a_malformed_script_fails_its_case_as_an_unparseable_file_does(tmp_path: Path) -> None:
    """Ruling 19."""
    result = await run_one(tmp_path, "steps: [{ send: hi }]\n", "- { say: hi }\n")
    assert result.verdict.status == "failed"
    assert (result.title, result.session_id, result.records) == (None, None, ())
    assert "one.model.yaml" in (result.error or "")
    assert "say" in (result.error or "")


async def test_the_sibling_script_beats_the_environment_and_live_beats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """09 §1, ruling 19."""
    (tmp_path / "m.yaml").write_text("- { text: from the environment, repeat: true }\n")
    monkeypatch.setenv("ARCHMAX_MODEL", "scripted:m.yaml")
    case = "steps: [{ send: hi }, { reply: { includes: from the sibling } }]\n"
    root = write_cases(tmp_path, {"x/one": head() + case}, {"x/one": "- text: from the sibling\n"})
    assert (await run_tests("desk", root=root)).exit_code == 0
    live = await run_tests("desk", root=root, live=True)
    assert [failure.partition(":")[0] for failure in live.results[0].verdict.failures] == ["reply.includes"]
    write_cases(tmp_path, {"x/one": (head() + case).replace("the sibling", "the environment")})
    assert (await run_tests("desk", root=root, live=True)).exit_code == 0


async def test_a_case_without_script_and_without_model_fails_and_says_what_to_set(tmp_path: Path) -> None:
    """Ruling 19, 07 §4."""
    result = await run_one(tmp_path, "steps: [{ send: hi }, { succeeded: true }]\n")
    assert "ARCHMAX_MODEL" in result.verdict.failures[0]


async def test_a_model_factory_beats_the_sibling_script_and_serves_the_judge(tmp_path: Path) -> None:
    """Ruling 19, 06 §10: the judge's role; `atLeast` alone decides."""
    asked: list[str] = []
    script = ModelScript.parse(
        "f.yaml",
        """
- text: from the factory
- role: judge
  text: 'Sure: {"score": 0.6, "pass": true, "reason": "half way"}'
""",
    )
    model = ScriptedChatModel(script=script)

    def factory(role: str, _env: object, _requested: str | None) -> ScriptedChatModel:
        asked.append(role)
        return model

    case = head() + "steps: [{ send: hi }, { grade: { closedQA: greets, atLeast: 0.7 } }]\n"
    root = write_cases(tmp_path, {"one": case}, {"one": HELLO}, workflow=DESK + "tests: { judge: {} }\n")
    (result,) = (await run_tests("desk", root=root, model_factory=factory)).results
    assert asked == ["agent", "judge"]
    assert [(r.kind, r.status, r.score, r.threshold) for r in result.records] == [
        ("grade.closedQA", "failed", 0.6, 0.7)
    ]
    assert result.verdict.failures[0].endswith("(score 0.6 < 0.7)")


# -- the view ----------------------------------------------------------------------------------------------------------


async def test_regex_tokens_and_call_statuses(tmp_path: Path) -> None:
    """06 §4.1, §5: a blocked call is rejected, a failing one failed; a refused advance is neither."""
    script = """
- text: Looking at 12 things.
  tool_calls:
    - { name: read_file, args: { file_path: nowhere.txt } }
    - { name: write_file, args: { file_path: AGENTS.md, content: x } }
    - { name: archmax_advance, args: { to: nowhere, reason: try } }
- text: Nothing found.
"""
    case = """
steps:
  - send: hi
  - reply: { includes: ["/looking at \\\\d+ things/i", "/found\\\\.$/"], excludes: "/^nothing/" }
  - blockedTool: { name: write_file }
  - calledTool: { name: archmax_advance, input: { to: "/^no/" } }
  - trail: { kind: agent, count: 0 }
"""
    result = await run_one(tmp_path, case, script)
    assert result.verdict.status == "passed", result.verdict.failures
    blocked = "steps: [{ send: hi }, { blockedTool: { name: archmax_advance } }]\n"
    assert (await run_one(tmp_path / "b", blocked, script)).verdict.status == "failed"


async def test_messages_to_a_parked_session_are_answered_and_the_park_stays(tmp_path: Path) -> None:
    """06 §3: what a send becomes is the session's business."""
    script = PARKS + "- text: Still waiting.\n- text: Goodbye.\n"
    case = """
steps:
  - send: hi
  - parked: { channel: decision, state: review }
  - send: yes, approve
  - parked: {}
  - reply: { includes: [Someone looks, Still waiting] }
  - decide: { to: done, comment: fine }
  - trail: { kind: human, to: done, reason: fine, count: 1 }
  - succeeded: true
"""
    result = await run_one(tmp_path, case, script)
    assert result.verdict.status == "passed", result.verdict.failures


# -- the suite ---------------------------------------------------------------------------------------------------------


async def suite_of(root: Path, cases: dict[str, str], **options: object) -> SuiteResult:
    return await run_tests("desk", root=write_cases(root, cases), **options)  # type: ignore[arg-type]


async def test_skipped_and_unparseable_cases_are_not_driven(tmp_path: Path) -> None:
    """06 §9: no session, no records; the suite goes on."""
    started: list[str] = []
    told: list[str] = []

    def start(file: str, _session: str) -> None:
        started.append(file)

    def end(result: CaseResult) -> None:
        told.append(result.id)

    suite = await suite_of(
        tmp_path,
        {"a": head() + "skip: later\nsteps: [{ send: x }]\n", "b": "title: [\n", "c": head()},
        on_case_start=start,
        on_case_result=end,
    )
    skipped, broken, empty = suite.results
    assert skipped.to_json() == {
        "id": "a",
        "title": "A case",
        "description": "What it shows.",
        "verdict": {"status": "skipped", "failures": []},
        "records": [],
        "skipReason": "later",
    }
    assert broken.verdict.failures == (broken.error,)
    assert broken.title is None
    assert empty.verdict.status == "passed"
    assert started == ["workflows/desk/tests/c.test.yaml"]
    assert told == ["a", "b", "c"]
    assert (suite.exit_code, suite.discovered) == (1, 3)


async def test_the_filter_is_a_part_of_the_id_and_an_empty_selection_builds_nothing(tmp_path: Path) -> None:
    """06 §1, §13."""

    def never(**_given: object) -> object:
        raise AssertionError("built")

    cases = {"a/one": head(), "a/two": head()}
    suite = await suite_of(tmp_path, cases, filter="a/t")
    assert [result.id for result in suite.results] == ["a/two"]
    assert suite.discovered == 2
    nothing = await suite_of(tmp_path, cases, filter="A", create_target=never)
    assert (nothing.results, nothing.discovered, nothing.exit_code) == ((), 2, 0)


async def test_a_disabled_workflow_runs_and_discovers_nothing(tmp_path: Path) -> None:
    """06 §11."""
    root = write_cases(tmp_path, {"a": "title: [\n"}, workflow=DESK + "disabled: true\n")
    suite = await run_tests("desk", root=root)
    assert suite.to_json() == {"results": [], "exitCode": 0, "discovered": 0, "skipped": "disabled"}


async def test_a_leftover_configuration_file_refuses_the_suite(tmp_path: Path) -> None:
    """06 §1."""
    files = {"workflows/desk/tests/tests.config.js": "export default {}"}
    root = write_cases(tmp_path, {"a": head()}, files=files)
    with pytest.raises(SuiteRefusedError, match=r"tests\.config\.js"):
        await run_tests("desk", root=root)


async def test_concurrency_above_one_and_a_missing_workflow_raise_the_load_error(tmp_path: Path) -> None:
    """06 §11, §13."""
    root = write_cases(tmp_path, {"a": head()}, workflow=DESK + "tests: { maxConcurrency: 2 }\n")
    with pytest.raises(WorkflowLoadError, match="maxConcurrency"):
        await run_tests("desk", root=root)
    with pytest.raises(WorkflowLoadError):
        await run_tests("nowhere", root=root)


async def test_a_target_of_no_or_another_workflow_is_refused_before_the_first_case(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    """06 §13: in the words of the default builder."""
    root = write_cases(tmp_path, {"a": head()})
    write_cases(tmp_path, {}, slug="other")
    agent = await create_case_target("other", root=root, sandbox=sandbox)
    started: list[str] = []
    with pytest.raises(CaseTargetError) as refused:
        await run_tests(
            "desk", root=root, create_target=agent, on_case_start=lambda file, _: started.append(file)
        )
    assert started == []
    with pytest.raises(CaseTargetError, match="desk") as direct:
        assert_workflow_governed_target(agent, "desk")
    assert str(direct.value) == str(refused.value)
    with pytest.raises(CaseTargetError, match="no workflow"):
        assert_workflow_governed_target(object(), "desk")


async def test_a_target_factory_is_told_the_workflow_and_serves_every_case(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    """06 §13: each case still has a session of its own, named by `session_id_for_case`."""
    root = write_cases(tmp_path, {"a": head() + "steps: [{ send: hi }]\n", "b": head()})
    (tmp_path / "m.yaml").write_text(HELLO)
    built: list[dict[str, object]] = []

    async def target(**given: object) -> object:
        built.append(given)
        script = ModelScript.parse("m.yaml", HELLO)
        return await create_case_target("desk", root=root, script=script, sandbox=sandbox)

    suite = await run_tests(
        "desk",
        root=root,
        create_target=target,  # type: ignore[arg-type]
        session_id_for_case=lambda file: "s-" + file.rpartition("/")[2].partition(".")[0],
    )
    assert [result.session_id for result in suite.results] == ["s-a", "s-b"]
    assert suite.exit_code == 0
    assert [(given["workflow"], given["root"]) for given in built] == [("desk", root.resolve())]


async def test_the_host_function_is_called_once_per_case_with_the_purpose_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 18."""
    (tmp_path / "case_host_module.py").write_text(
        "calls = []\n"
        "def wire(context):\n"
        "    calls.append((context.purpose, context.workflow))\n"
        "    return {'variables': {'from_host': 7}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ARCHMAX_HOST", "case_host_module:wire")
    case = head() + "steps: [{ send: hi }, { variables: { expect: { from_host: 7 } } }]\n"
    root = write_cases(tmp_path, {"a": case, "b": case}, {"a": HELLO, "b": HELLO})
    suite = await run_tests("desk", root=root)
    assert suite.exit_code == 0, suite.to_json()
    import case_host_module  # pyrefly: ignore[missing-import]

    assert case_host_module.calls == [("test", "desk")] * 2
