"""Mocked delegations (04 §10) and `file` values across the boundary (04 §12)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.engine import Bench, call, do, fee, in_fee, in_main, say, setting

Make = Callable[..., Bench]
MAIN = """
    tools: { allow_always: [archmax_workflow_fee, archmax_eval, write_file, read_file, edit_file] }
    states:
      intake:
        triggers: { manual: }
        on_error: rescue
      rescue:
"""
FEE = """
    states:
      start:
        triggers: { manual: { requires: [n], returns: [{ name: days, type: integer }, fee] } }
"""


def answering(value: Any) -> Callable[[str, Mapping[str, Any]], Any]:
    """A mock that answers every call alike."""

    def mock(_tool: str, _args: Mapping[str, Any]) -> Any:
        return value

    return mock


NOTE = "Not all return variables were set by the sub-workflow: "


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("closed", {"message": "closed", "returns": {"note": NOTE + "'days', 'fee' were not set."}}),
        (
            {"message": "m", "returns": {"fee": 1, "days": 2, "other": 3}},
            {"message": "m", "returns": {"days": 2, "fee": 1}},
        ),
        ({"returns": {"days": 2}}, {"returns": {"days": 2, "note": NOTE + "'fee' was not set."}}),
        ([1, 2], {"message": "[1,2]"}),
        ({"message": "m", "returns": [1]}, {"message": '{"message":"m","returns":[1]}'}),
    ],
)
async def test_a_mock_answers_as_a_child_would(bench: Make, result: Any, text: dict[str, Any]) -> None:
    """04 §10: no session, no number, events and trail step as for a real child."""
    b = bench({"main": MAIN, "fee": FEE}, [do(fee(n=1)), say("done")], mock=answering(result))
    outcome = await b.send()
    said = json.loads(b.results(outcome)[0])
    for key, value in text.items():
        got = said[key].replace(" ", "") if key == "message" else said[key]
        assert got == (value.replace(" ", "") if key == "message" else value)
    assert list(said["returns"]) == [n for n in ("days", "fee", "note") if n in said["returns"]]
    assert b.kinds("tool-called", "sub-workflow-start", "sub-workflow-result", "tool-result") == [
        "tool-called", "sub-workflow-start", "sub-workflow-result", "tool-result",
    ]  # fmt: skip
    assert b.steps(outcome)[-1] == ("sub-workflow", "intake")
    assert (await b.state()).dispatch_count == 0 and await b.agent.sessions.get("s1~1") is None


@pytest.mark.parametrize(
    ("result", "kind"), [({"error": "no"}, "rejected"), ({"returns": {"days": "2"}}, "invalid-return")]
)
async def test_a_mocked_failure_is_outstanding(bench: Make, result: Any, kind: str) -> None:
    """04 §10, §8."""
    b = bench({"main": MAIN, "fee": FEE}, [do(fee(n=1)), say("done"), say("tidied")], mock=answering(result))
    outcome = await b.send()
    assert outcome.state == "rescue" and f"({kind})" in b.results(outcome)[0]
    assert b.one("sub-workflow-result")["status"] == "error"


async def test_mocks_match_resolved_arguments_after_the_checks(bench: Make) -> None:
    """04 §10: a refused call asks no mock; scripts' calls are mocked too."""
    asked: list[Mapping[str, Any]] = []

    def mock(tool: str, args: Mapping[str, Any]) -> Any:
        if "workflow" not in tool:
            return None
        asked.append(dict(args))
        return "mocked"

    code = "await tools.archmaxWorkflowFee({ n: 9 })"
    b = bench(
        {"main": MAIN, "fee": FEE},
        [
            do(setting(k=[7])),
            do(fee(n="${{k}}"), fee(n="${{gone}}")),
            do(call("archmax_eval", code=code)),
            say("done"),
        ],
        mock=mock,
    )
    outcome = await b.send()
    assert asked == [{"n": [7]}, {"n": 9}]
    assert "mocked" in b.results(outcome)[-1]


async def test_a_mock_stands_in_for_a_target_that_cannot_be_loaded(bench: Make) -> None:
    """04 §3: checks 4 and 5 are skipped, no signature is enforced."""
    b = bench({"main": MAIN, "fee": FEE}, [do(fee()), say("done")], mock=answering({"returns": {"x": 1}}))
    b.agent.assembly.schema("archmax_workflow_fee")
    b.agent.assembly.offered("intake")
    b.files._files.pop("workflows/fee/workflow.yaml")
    b.agent.assembly.library._held.clear()
    outcome = await b.send()
    assert json.loads(b.results(outcome)[0])["returns"] == {"x": 1}


# -- files -------------------------------------------------------------------------------------------------------------

COPY = """
    tools: { allow_always: [read_file, write_file] }
    states:
      start:
        triggers: { manual: { requires: [{ name: sheet, type: file }], returns: [{ name: result, type: file }] } }
"""


def write(path: str, content: str) -> dict[str, Any]:
    return call("write_file", file_path=path, content=content)


def read(path: str) -> dict[str, Any]:
    return call("read_file", file_path=path)


async def test_a_file_goes_down_and_another_comes_up_at_the_same_path(bench: Make) -> None:
    """04 §12: the value is never rewritten; other files stay where they are."""
    b = bench(
        {"main": MAIN, "fee": COPY},
        [
            in_main(do(write("scratchpad/in.md", "from above"), write("scratchpad/own.md", "private"))),
            in_main(do(fee(sheet="./scratchpad/in.md"))),
            in_fee(
                do(
                    read("scratchpad/in.md"),
                    read("scratchpad/own.md"),
                    write("scratchpad/out.md", "from below"),
                )
            ),
            in_fee(do(write("scratchpad/below.md", "private"), setting(result="scratchpad/out.md"))),
            in_fee(say("copied")),
            in_main(do(read("scratchpad/out.md"), read("scratchpad/below.md"))),
            in_main(say("done")),
        ],
    )
    outcome = await b.send()
    assert outcome.kind == "completed"
    below = (await b.state("s1~1")).messages
    texts = [m["text"] for m in below if m["role"] == "tool"]
    assert "from above" in texts[0] and "private" not in texts[1]
    assert (await b.state("s1~1")).values["sheet"] == "./scratchpad/in.md"
    up, hidden = b.results(outcome, "read_file")
    assert "from below" in up and "private" not in hidden


@pytest.mark.parametrize(("held", "good"), [("from below", True), ("something else", False)])
async def test_a_different_file_at_the_path_refuses_the_copy_an_equal_one_is_fine(
    bench: Make, held: str, good: bool
) -> None:
    """04 §12: up → `invalid-return`; nothing is replaced."""
    b = bench(
        {"main": MAIN, "fee": COPY},
        [
            in_main(do(write("scratchpad/in.md", "x"), write("scratchpad/out.md", held))),
            in_main(do(fee(sheet="scratchpad/in.md"))),
            in_fee(do(write("scratchpad/out.md", "from below"))),
            in_fee(do(setting(result="scratchpad/out.md"))),
            in_fee(say("copied")),
            in_main(say("done")),
            {**in_main(say("tidied")), "optional": True},
        ],
    )
    outcome = await b.send()
    text = b.results(outcome, "archmax_workflow_fee")[0]
    assert ("(invalid-return)" in text) is not good
    assert outcome.state == ("intake" if good else "rescue")
    files = (await b.state()).files
    assert set(files) == {"scratchpad/in.md", "scratchpad/out.md"}
