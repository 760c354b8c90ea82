"""`archmax_get_variables` and `archmax_set_variables`: locks, owners, titles, paths (03 §7, §9.5, §9.6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    states:
      intake:
        triggers: { manual: }
        locks: [owned]
        transitions: [{ to: work, description: go on }]
      work:
        transitions: [{ to: intake, description: back }]
"""


def get(**args: Any) -> dict[str, Any]:
    return call("archmax_get_variables", **args)


def put(lock: Any = None, **variables: Any) -> dict[str, Any]:
    args: dict[str, Any] = {"variables": variables}
    return call("archmax_set_variables", **(args if lock is None else args | {"lock": lock}))


async def test_reads_give_all_one_or_a_part(bench: Make) -> None:
    """03 §9.5: blank strings count as absent."""
    held = {"lines": [{"n": 1}, {"n": 2}], "a.b": 3}
    reads = [
        get(),
        get(name=" "),
        get(name="order"),
        get(name="order", path="lines.-1.n"),
        get(name="order", path=" "),
    ]
    b = bench(SPEC, [do(setting(order=held)), do(*reads), say("done")])
    outcome = await b.send()
    every, blank, one, part, whole = (
        json.loads(text) for text in b.results(outcome, "archmax_get_variables")
    )
    assert (
        every
        == blank
        == {"order": {"value": held, "locked": False}, "trigger": {"value": "manual", "locked": True}}
    )
    assert one == whole == {"value": held, "locked": False}
    assert part == {"value": 2}


@pytest.mark.parametrize(
    "path", ["lines.2", "lines.-0", "lines.01", "lines.length", "nowhere", "a.b", "lines.-3"]
)
async def test_a_path_that_does_not_resolve_is_refused_and_never_the_whole_value(
    bench: Make, path: str
) -> None:
    """03 §7.1, §9.5."""
    b = bench(
        SPEC, [do(setting(order={"lines": [1, 2], "a.b": 3})), do(get(name="order", path=path)), say("done")]
    )
    outcome = await b.send()
    message = [m for m in outcome.transcript if m["role"] == "tool"][-1]
    assert message["status"] == "error" and "lines" not in message["text"].replace(path, "")


async def test_an_unset_name_lists_what_is_set(bench: Make) -> None:
    """03 §9.5."""
    b = bench(SPEC, [do(get(name="nothing")), say("done")])
    assert "trigger" in b.results(await b.send())[0]


async def test_a_write_tells_names_and_never_values(bench: Make) -> None:
    """03 §9.6: `(locked)` when locked; one `variables-set`; a title has its own event."""
    b = bench(
        SPEC, [do(put(lock=True, a="SECRET", b=2)), do(setting(title="  Two books ", c=1)), say("done")]
    )
    outcome = await b.send()
    assert b.results(outcome)[0] == "Set a, b (locked)." and "SECRET" not in b.results(outcome)[0]
    first, second = b.of("variables-set")
    assert (first["names"], first["locked"], first["state"]) == (["a", "b"], True, "intake")
    assert second["names"] == ["title", "c"] and second["callId"] == b.one("title-set")["callId"]
    assert b.one("title-set")["title"] == "Two books"
    assert outcome.variables["title"] == {"value": "Two books", "locked": False}
    assert outcome.variables["a"]["locked"] is True


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"variables": {}}, "no variables"),
    ({"variables": [1]}, "object"),
    ({"variables": {"ok": 1, "Bad": 2}}, "'Bad'"),
    ({"variables": {"order.lines": 2}}, "whole value"),
    ({"variables": {"ok": 1, "fixed": 2}}, "locked"),
    ({"variables": {"ok": 1, "trigger": "x"}}, "trigger"),
    ({"variables": {"owned": 1}}, "'intake'"),
    ({"variables": {"title": "x"}, "lock": True}, "title"),
    ({"variables": {"title": "a\nb"}}, "title"),
    ({"variables": {"title": " "}}, "title"),
    ({"variables": {"title": "x" * 201}}, "200"),
    ({"variables": {"ok": 1}, "lock": "yes"}, "lock"),
]


@pytest.mark.parametrize(("args", "names"), FAULTS)
async def test_one_fault_refuses_the_whole_write(bench: Make, args: dict[str, Any], names: str) -> None:
    """03 §9.6: atomic; says that nothing was written; no events."""
    b = bench(SPEC, [do(advance_to("work")), do(call("archmax_set_variables", **args)), say("done")])
    outcome = await b.send(variables={"fixed": "the value"})
    message = [m for m in outcome.transcript if m["role"] == "tool"][-1]
    assert (
        message["status"] == "error" and "Nothing was written" in message["text"] and names in message["text"]
    )
    assert b.values(outcome) == {"fixed": "the value"} and not b.of("variables-set") and not b.of("title-set")
    if "fixed" in args["variables"]:
        assert "the value" in message["text"]


async def test_the_owner_rewrites_what_it_owns_and_may_not_lock_it(bench: Make) -> None:
    """03 §7.4: whenever it is active."""
    again = [do(advance_to("work")), do(put(owned=9)), do(advance_to("intake")), do(put(owned=2))]
    b = bench(SPEC, [do(put(owned=1)), do(put(lock=True, owned=5)), *again, say("done")])
    outcome = await b.send()
    assert b.values(outcome) == {"owned": 2}
    texts = b.results(outcome, "archmax_set_variables")
    assert "not locked" in texts[1] and "'intake'" in texts[2]


async def test_a_host_value_of_an_owned_name_stays_final(bench: Make) -> None:
    """03 §7.4, §7.3."""
    b = bench(SPEC, [do(put(owned=1)), say("done")])
    assert b.values(await b.send(variables={"owned": "host"})) == {"owned": "host"}


async def test_a_lock_is_permanent_for_the_agent_and_not_for_the_host(bench: Make) -> None:
    """03 §7.3."""
    b = bench(SPEC, [do(put(lock=True, a=1)), do(put(a=2)), say("done"), say("done")])
    assert b.values(await b.send()) == {"a": 1}
    assert b.values(await b.send(variables={"a": 3})) == {"a": 3}


async def test_variables_set_in_a_message_count_for_its_move_and_its_references(bench: Make) -> None:
    """03 §9.1, §14: controls in call order, moves last."""
    spec = SPEC.replace(
        "        locks: [owned]\n", "        requires: [a]\n        tools: { allow: [stamp] }\n"
    )
    b = bench(spec, [do(advance_to("work"), put(a="x"), call("stamp", name="<${{a}}>")), say("done")])
    outcome = await b.send()
    assert outcome.state == "work" and b.touched == ["<x>"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("x", "x"), (True, "true"), (4.0, "4"), (4.5, "4.5"), (12, "12")],
)
async def test_references_enter_other_tools_as_text(bench: Make, value: Any, shown: str) -> None:
    """03 §14.1: booleans, numbers without a trailing .0; `$${{…}}` stays literal."""
    spec = SPEC.replace("        locks: [owned]\n", "        tools: { allow: [stamp] }\n")
    b = bench(spec, [do(put(v={"a": [value]})), do(call("stamp", name="${{ v.a.0 }} $${{v}}")), say("done")])
    outcome = await b.send()
    assert b.touched == [f"{shown} ${{{{v}}}}"]
    assert b.of("tool-called", tool="stamp")[0]["args"] == {"name": f"{shown} ${{{{v}}}}"}
    assert "${{ v.a.0 }}" in json.dumps(outcome.transcript)


@pytest.mark.parametrize(
    "reference", ["${{}}", "${{v.}}", "${{Bad}}", "${{gone}}", "${{v.gone}}", "${{v}}", "${{none}}"]
)
async def test_an_unresolved_reference_refuses_the_call(bench: Make, reference: str) -> None:
    """03 §14.1: malformed, invalid name, unset, missing path, non-scalar, null."""
    spec = SPEC.replace("        locks: [owned]\n", "        tools: { allow: [stamp] }\n")
    b = bench(spec, [do(put(v={"a": 1}, none=None)), do(call("stamp", name=reference)), say("done")])
    outcome = await b.send()
    assert b.touched == [] and outcome.kind == "completed"
    assert [m["status"] for m in outcome.transcript if m["role"] == "tool"] == ["ok", "error"]
