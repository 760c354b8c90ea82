"""Sessions turned into model scripts and cases: what they hold reads back as it was meant (06, 09)."""

from __future__ import annotations

from archmax.recording import OPENING, Recorded, case_of, script_of, script_text
from core.jsontext import Json, JsonObject
from engine.cases.parse import parse_case_document
from engine.cases.serialize import serialize_case_document
from engine.models.script import ModelScript

ODD = 'a: b # c\n"quoted" \u2028 \\ 1e3 ${{x}} \x07'


def said(text: str = "", *calls: JsonObject) -> JsonObject:
    return {"t": "message", "m": {"role": "assistant", "id": "a-1", "text": text, "calls": list(calls)}}


def call(name: str, args: JsonObject, identity: str = "c-1") -> JsonObject:
    return {"id": identity, "name": name, "args": args}


def opened(*changes: JsonObject, position: str = "draft", trigger: str = "manual") -> JsonObject:
    first = {"t": "open", "turn": 1, "trigger": trigger, "position": position, "entry": position}
    return {"v": 1, "at": 1, "changes": [first, *changes]}


def recorded(*records: JsonObject) -> Recorded:
    return Recorded("s-1", "claims", records)


def answered(tool: str, args: JsonObject, answer: str) -> list[JsonObject]:
    return [
        said("", call(tool, args)),
        {"t": "called", "id": "c-1", "tool": tool},
        {"t": "result", "id": "c-1", "tool": tool, "ok": True, "text": answer},
    ]


def mocks_of(*changes: JsonObject) -> list[tuple[JsonObject | None, Json]]:
    case = case_of(recorded(opened(*changes)))
    read = parse_case_document("t.test.yaml", serialize_case_document(case).encode(), "tests")
    return [(mock.when_input, mock.result) for mock in read.mocks]


def test_a_script_is_read_back_with_every_text_and_argument_as_it_was() -> None:
    """09 §2: `raw_args` stand for arguments that were no JSON object."""
    broken = {"id": "c-2", "name": "pay", "raw": '{"ref": ', "fault": "no JSON"}
    answers = script_of(recorded(opened(said(ODD, call("pay", {"ref": ODD, "n": 1.5}), broken), said(""))))
    script = ModelScript.parse("m.yaml", script_text(answers, "a test"))
    first, second = script.answers
    assert (first.text, first.when_state, first.when_workflow) == (ODD, "draft", None)
    assert [(c.name, c.args, c.raw_args) for c in first.tool_calls] == [
        ("pay", {"ref": ODD, "n": 1.5}, None),
        ("pay", {}, '{"ref": '),
    ]
    assert (second.text, second.tool_calls) == ("", ())
    assert ModelScript.parse("m.yaml", script_text([], "nothing")).answers == ()


def test_a_grader_is_scripted_up_to_its_decision_and_no_further() -> None:
    """09 §2: what it says after that is answered by the scripted model itself."""
    frame = {"t": "frame", "id": "run-1", "kind": "grader", "state": "check"}
    decide = {
        "role": "assistant",
        "id": "g-1",
        "text": "",
        "calls": [call("archmax_advance", {"to": "paid"})],
    }
    after = {"role": "assistant", "id": "g-2", "text": "done"}
    answers = script_of(
        recorded(
            opened(
                frame,
                {"t": "frame-message", "frame": "run-1", "m": decide},
                {"t": "frame-decision", "frame": "run-1", "decision": {"kind": "advance", "to": "paid"}},
                {"t": "frame-message", "frame": "run-1", "m": after},
            )
        )
    )
    assert answers == [
        {
            "role": "grader",
            "when_state": "check",
            "tool_calls": [{"name": "archmax_advance", "args": {"to": "paid"}}],
        }
    ]


def test_children_are_told_apart_by_their_workflow_and_turns_can_be_picked() -> None:
    second = {"v": 1, "at": 2, "changes": [{"t": "resume", "turn": 2, "disposition": "decide"}, said("two")]}
    root = recorded(opened(said("one")), second)
    child = Recorded("s-1~1", "look-up", [opened(said("child"), position="find")])
    assert [answer["text"] for answer in script_of(root, turns=1)] == ["two"]
    assert script_of(root, [child]) == [
        {"when_workflow": "claims", "when_state": "draft", "text": "one"},
        {"when_workflow": "claims", "when_state": "draft", "text": "two"},
        {"when_workflow": "look-up", "when_state": "find", "text": "child"},
    ]


def test_a_host_tools_answer_becomes_a_mock_that_answers_with_the_same_text() -> None:
    """06 §8: a text as it is, any other value as its compact JSON."""
    assert mocks_of(*answered("look_up", {"ref": "7"}, '{"total":3}')) == [({"ref": "7"}, {"total": 3})]
    assert mocks_of(*answered("look_up", {"ref": "7"}, '{ "total": 3 }')) == [
        ({"ref": "7"}, '{ "total": 3 }')
    ]
    assert mocks_of(*answered("look_up", {}, "plain")) == [(None, "plain")]
    assert mocks_of(*answered("look_up", {}, "null")) == [(None, "null")]


def test_the_runtimes_own_tools_and_sub_workflows_are_not_mocked() -> None:
    """06 §8: a control tool is never mocked; children play their own answers."""
    for tool in ("read_file", "archmax_set_variables", "archmax_workflow_look-up"):
        assert mocks_of(*answered(tool, {"file_path": "a"}, "x")) == []


def test_a_call_that_failed_is_no_mock_and_equal_calls_are_one() -> None:
    twice = [*answered("look_up", {"ref": "7"}, "x"), *answered("look_up", {"ref": "7"}, "y")]
    assert mocks_of(*twice) == [({"ref": "7"}, "x")]
    failed = answered("look_up", {}, "broken")
    failed[-1]["ok"] = False
    assert mocks_of(*failed) == []


def test_an_argument_that_looks_like_a_regex_or_holds_a_reference_still_matches() -> None:
    """06 §4.1: `/a+b/` would be a regex; §8: a mock meets references filled in."""
    ((when, _),) = mocks_of(*answered("look_up", {"path": "/a+b/", "deep": ["/x/"], "id": "${{order}}"}, "x"))
    assert when == {"path": "/^\\/a\\+b\\/$/", "deep": ["/^\\/x\\/$/"]}


def test_a_session_that_opened_without_words_begins_with_some() -> None:
    """06 §3: a case starts with a message."""
    note = {"t": "message", "m": {"role": "user", "id": "u-1", "text": "opening", "note": "opening"}}
    seeds = {"t": "vars", "set": {"trigger": "order", "order_id": "7"}, "lock": True, "host": True}
    own = {"t": "vars", "set": {"found": True}}
    case = case_of(recorded(opened(seeds, note, own, trigger="order")))
    assert (case.trigger, case.variables) == ("order", {"order_id": "7"})
    assert [getattr(step, "text", None) for step in case.steps] == [OPENING]


def test_long_titles_and_paths_are_cut_to_what_a_case_allows() -> None:
    """06 §2."""
    titled = {"t": "vars", "set": {"title": "word " * 30}}
    case = case_of(recorded(opened(titled)))
    assert len(case.title) == 60
    parse_case_document("t.test.yaml", serialize_case_document(case).encode(), "tests")
