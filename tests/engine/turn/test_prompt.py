"""What a model is told: the static layers, the current-state block, parked calls, clock and caching (03 §15, §17, §18)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from langchain_core.messages import AIMessage

from bench.prompt_prefix import TARGET, prefixes
from engine.governance.zones import MountPrefixes
from engine.turn.clock import clock_line
from engine.turn.platform_prompt import PLATFORM_PROMPT, for_session
from engine.turn.prompt import zones_block
from engine.workspace.memory_backend import MemoryBackend
from tests.support.command import REPOSITORY
from tests.support.engine import Bench, bench, raw_call

__all__ = ["bench"]
Make = Callable[..., Bench]


def advance(to: str) -> AIMessage:
    return raw_call("archmax_advance", to=to, reason="so")


def blocks(b: Bench, index: int) -> tuple[str, str]:
    """Static and volatile block of a request."""
    content = b.seen[index].messages[0].content
    assert isinstance(content, list)
    assert len(content) == 2
    static, volatile = content
    assert isinstance(static, dict)
    assert isinstance(volatile, dict)
    return str(static["text"]), str(volatile["text"])


LOANS = """
title: Lending desk
instructions: |-
  Be  kind.
states:
  secret-intake:
    title: The intake
    summary: Summed up
    triggers: {manual: {}, mail: {}}
    instructions: Take it in.
    tools: {allow: [touch]}
    transitions:
      - {to: hidden-review, type: refine, description: The reader disputes the fee.}
      - {to: check-fee, description: The fee is settled.}
      - {to: loan-closed}
      - {to: rate}
  hidden-review:
    type: human
    title: Review it
    instructions: For people only.
    transitions: [{to: loan-closed, type: approve, description: Fine.}]
  check-fee:
    type: code
    script: scripts/fee.js
    transitions: [{to: loan-closed, description: Nothing is owed.}]
  rate:
    type: grader
    instructions: Secret criteria.
    transitions: [{to: loan-closed, description: Good.}]
  loan-closed:
    instructions: Say goodbye.
"""
LOANS = LOANS.replace("{to: rate}", "{to: rate, description: Rate it.}")


async def test_layers_stand_in_order_and_absent_ones_are_skipped(bench: Make) -> None:
    """03 §17.1."""
    b = bench(
        LOANS,
        [AIMessage("ok")],
        files={"workflows/main/WORKFLOW.md": "<!-- for authors -->Lend books.\n\n<!--\nmore\n-->"},
        persona="You are Ann.",
        system_prompt="House rules.",
    )
    await b.send()
    static, _ = blocks(b, 0)
    parts = [
        "You are Ann.\n\nHouse rules.\n\n# How this session works",
        "\n\n# Workspace\n",
        "\n\n# Workflow: Lending desk\n\n## Instructions\n\nBe  kind.\n\nLend books.",
        "\n\nFiles: ",
        "\n\nFor work of several steps",
    ]
    positions = [static.find(part) for part in parts]
    assert positions == sorted(positions)
    assert positions[0] == 0
    assert "for authors" not in static


async def test_the_static_block_is_the_same_for_every_call_and_names_no_state(bench: Make) -> None:
    """03 §17.1: byte-identical, no slug, title, summary, script, criteria or count of states."""
    b = bench(
        LOANS,
        [raw_call("touch"), advance("hidden-review"), AIMessage("over"), AIMessage("hm"), AIMessage("bye")],
    )
    await b.send()
    await b.reply("and?")
    await b.decide("loan-closed")
    statics = {blocks(b, index)[0] for index in range(len(b.seen))}
    assert len(b.seen) == 5
    assert len(statics) == 1
    static = statics.pop()
    for hidden in (
        *(
            "secret-intake",
            "The intake",
            "Summed up",
            "Take it in",
            "hidden-review",
            "Review it",
            "check-fee",
        ),
        *("fee.js", "rate", "Secret criteria", "loan-closed", "disputes", "disabled", "metadata"),
    ):
        assert hidden not in static.replace("separate", "").replace("calculate", "").replace("operate", "")


async def test_the_static_block_does_not_grow_with_the_states(bench: Make) -> None:
    def chain(count: int) -> str:
        states = ["states:", "  s0: {triggers: {manual: {}}, transitions: [{to: s1, description: On.}]}"]
        states += [
            f"  s{n}: {{transitions: [{{to: s{(n + 1) % count}, description: On.}}]}}"
            for n in range(1, count)
        ]
        return "\n".join(states)

    small, large = (bench(chain(count), "[]").agent.assembly for count in (2, 60))
    assert small.static_prompt == large.static_prompt


async def test_todo_guidance_only_where_some_state_has_todos(bench: Make) -> None:
    """03 §17.1."""
    without = "tools: {allow_always: [read_file]}\nstates: {a: {triggers: {manual: {}}}}"
    assert "write_todos" not in bench(without, "[]").agent.assembly.static_prompt
    assert "Files: " in bench(without, "[]").agent.assembly.static_prompt
    somewhere = without.replace("manual: {}}", "manual: {}}, tools: {allow: [write_todos]}")
    assert "write_todos" in bench(somewhere, "[]").agent.assembly.static_prompt
    none = "tools: {allow_always: []}\nstates: {a: {triggers: {manual: {}}}}"
    assert "Files: " not in bench(none, "[]").agent.assembly.static_prompt


def test_markers_keep_a_passage_for_top_level_sessions_only() -> None:
    """03 §17.2: lines removed, later items of the same list renumbered, an unclosed marker leaves its text."""
    text = "\n".join(
        [
            "<!-- top-level-only -->",
            "1. Name it.",
            "<!-- /top-level-only -->",
            "2. Work.",
            "   1. first",
            "   2. second",
            "3. Move.",
            "",
            "Another list:",
            "1. one",
            "2. two",
            "<!-- top-level-only -->",
            "open",
        ]
    )
    top = for_session(text, top_level=True).split("\n")
    assert top[:3] == ["1. Name it.", "2. Work.", "   1. first"]
    child = for_session(text, top_level=False).split("\n")
    assert child[:4] == ["1. Work.", "   1. first", "   2. second", "2. Move."]
    assert child[-3:] == ["1. one", "2. two", "open"]
    assert top[-1] == "open"


def test_the_naming_step_is_a_top_level_sessions_alone() -> None:
    top, child = (for_session(PLATFORM_PROMPT, top_level=level) for level in (True, False))
    assert "`title`" in top
    assert "title" not in child
    assert "\n1. Do the state's work" in child
    assert "<!--" not in top + child


@pytest.mark.parametrize(
    "said",
    [
        "`archmax_advance`",
        "One move per message",
        "Text without a tool call ends your turn",
        "put both in one message",
        "keeps its position",
        "`archmax_reset`",
        "never serves a follow-up",
        "`archmax_wait`",
        "human state",
        "`archmax_raise`",
        "retry once or twice",
        "alone in its message",
        "never as a reply",
        "Only the current state's moves",
        "Grader and code states decide on their own",
        "closed",
        "`archmax_eval`",
        "`${{name}}`",
        "`$${{name}}`",
    ],
)
def test_the_platform_prompt_says_what_it_must(said: str) -> None:
    """03 §17.2."""
    assert said.lower() in " ".join(PLATFORM_PROMPT.split()).lower()


async def test_a_workspaces_platform_prompt_replaces_ours(bench: Make) -> None:
    b = bench(
        LOANS,
        [AIMessage("ok")],
        platform_prompt="Mine.\n<!-- top-level-only -->\nTop.\n<!-- /top-level-only -->",
    )
    static = b.agent.assembly.static_prompt
    assert static.startswith("Mine.\nTop.\n\n# Workspace")
    assert "How this session works" not in static


def test_the_zones_name_ungoverned_mounts_read_only_first() -> None:
    """03 §17.3."""
    mounts = MountPrefixes(
        dirs=("zoo", "attic", "vault", ".platform", "big"),
        files=("AGENTS.md",),
        writable=frozenset({"attic"}),
        governed=frozenset({"vault"}),
        unsearchable=frozenset({"big"}),
    )
    lines = zones_block(mounts).split("\n")
    shown = [
        line for line in lines if line.startswith("- `") and "scratch" not in line and "large" not in line
    ]
    assert shown == [
        "- `AGENTS.md`: read-only",
        "- `big/`: read-only, browse only",
        "- `zoo/`: read-only",
        "- `attic/`: read/write",
    ]
    block = "\n".join(lines)
    assert "vault" not in block
    assert "current-state block" in block
    assert "current-state block" not in zones_block(MountPrefixes())


async def test_the_current_state_block_tells_the_edges_and_nothing_else_of_their_targets(bench: Make) -> None:
    """03 §17.4."""
    b = bench(LOANS, [AIMessage("ok")])
    await b.send()
    _, volatile = blocks(b, 0)
    lines = volatile.split("\n")
    assert lines[0].startswith("Now: ")
    assert lines[2] == "## Current state: secret-intake"
    assert "overrides any movement" in lines[4]
    assert volatile.index("Take it in.") > volatile.index("overrides")
    assert volatile.endswith(
        "Transitions — pick one with `archmax_advance` when this state's work is done:\n"
        "- to `hidden-review` (refine, human decision node) — The reader disputes the fee.\n"
        "- to `check-fee` (code) — The fee is settled.\n"
        '- to `loan-closed` (terminal) — "Say goodbye."\n'
        "- to `rate` (grader) — Rate it."
    )
    for hidden in ("For people only", "Secret criteria", "fee.js", "Review it", "Nothing is owed"):
        assert hidden not in volatile


async def test_the_blocks_items_come_only_when_they_apply(bench: Make) -> None:
    b = bench("states: {work: {triggers: {manual: {}}}}", [AIMessage("ok")])
    await b.send()
    _, volatile = blocks(b, 0)
    for absent in (
        "Skills",
        "Mounts",
        "Enforced",
        "Started with",
        "Before finishing",
        "Transitions",
        "archmax_reset",
    ):
        assert absent not in volatile
    assert "This state is terminal" in volatile


async def test_skills_mounts_constraints_variables_and_signature_are_told(bench: Make) -> None:
    vault = MemoryBackend()
    b = bench(
        """
        states:
          work:
            triggers:
              manual:
                description: For callers only.
                requires: [card_no]
                returns: [{name: fee, type: integer, description: in cents}, remark]
            tools: {allow: [{tool: touch, args: {n: "${{card_no}}"}}]}
            mounts: {allow: [zoo, {mount: vault, access: read_write}]}
        """,
        [AIMessage("ok"), AIMessage("ok")],
        mounts={
            "/vault/": {"backend": vault, "governed": True, "read_only": False},
            "/zoo/": {"backend": MemoryBackend(), "governed": True, "searchable": False},
            "/attic/": {"backend": MemoryBackend(), "governed": True},
        },
    )
    await b.send(variables={"card_no": "7-x"})
    _, volatile = blocks(b, 0)
    assert (
        "## Mounts available in this state\n- `vault` — read/write\n- `zoo` — read-only, browse only"
        in volatile
    )
    assert "attic" not in volatile
    assert "`card_no`" in volatile
    assert "7-x" in volatile.split("Enforced on arguments:")[1].split("\n\n")[0]
    assert "7-x" not in volatile.split("Enforced")[0]
    assert "Started with `card_no`." in volatile
    ask = volatile.split("Before finishing")[1].split("\n\n")[0]
    assert "ends rejected" in ask
    assert "- fee (integer) — in cents\n- remark" in ask
    assert "For callers only" not in volatile


async def test_a_child_is_told_what_finishing_short_means_for_its_caller(bench: Make) -> None:
    child = """
    states: {look: {triggers: {manual: {returns: [found]}}, instructions: Look.}}
    """
    parent = """
    states: {work: {triggers: {manual: {}}, tools: {allow: [archmax_workflow_child]}}}
    """
    b = bench(
        {"main": parent, "child": child},
        [raw_call("archmax_workflow_child"), AIMessage("short"), AIMessage("ok")],
    )
    await b.send()
    static, volatile = blocks(b, 1)
    assert "the caller gets what was set" in volatile
    assert "title" not in static


FOLLOWED = """
states:
  work: {triggers: {manual: {}}, transitions: [{to: done, description: Done.}]}
  done: {}
"""


async def test_a_message_to_a_terminal_state_is_told_to_reset_first(bench: Make) -> None:
    """03 §17.4 item 1: only when the session was already sitting there."""
    b = bench(
        FOLLOWED, [advance("done"), AIMessage("bye"), raw_call("touch"), AIMessage("hm"), AIMessage("hm")]
    )
    await b.send("one")
    assert "archmax_reset" not in blocks(b, 1)[1]  # it just came here
    await b.send("two")
    assert "Call `archmax_reset` first" in blocks(b, 2)[1]


async def test_an_entry_state_that_is_terminal_needs_no_reset(bench: Make) -> None:
    b = bench("states: {work: {triggers: {manual: {}}}}", [AIMessage("a"), AIMessage("b")])
    await b.send("one")
    await b.send("two")
    assert "archmax_reset" not in blocks(b, 1)[1]


async def test_a_delivery_to_a_terminal_state_needs_no_reset(bench: Make) -> None:
    b = bench(
        FOLLOWED,
        [advance("done"), raw_call("archmax_wait", reason="mail"), AIMessage("waiting"), AIMessage("got it")],
    )
    await b.send("one")
    await b.deliver("mail")
    assert "archmax_reset" not in blocks(b, len(b.seen) - 1)[1]


# -- parked ----------------------------------------------------------------------------------------------------------

PARKS = """
states:
  work:
    triggers: {manual: {}}
    transitions: [{to: check, description: Ready.}, {to: rate, description: Rate.}]
  rate: {type: grader, instructions: Rate., transitions: [{to: check, description: Show.}]}
  check:
    type: human
    title: Look at it
    instructions: For people only.
    transitions: [{to: done, type: approve, description: Good.}]
  done: {}
"""


async def test_a_parked_call_is_told_how_it_came_to_be_parked(bench: Make) -> None:
    """03 §10.5: four cases; the human state's instructions are withheld."""
    b = bench(PARKS, [advance("check"), AIMessage("over"), AIMessage("hm")])
    await b.send()
    await b.reply("and?")
    handed, replied = blocks(b, 1)[1], blocks(b, 2)[1]
    assert "You just handed the work over" in handed
    assert "A person just wrote" in replied
    assert "you may not decide, predict or announce" in replied
    for volatile in (handed, replied):
        assert volatile.startswith("Now: ")
        assert "## This run is parked" in volatile
        assert "`check` (Look at it)" in volatile
        assert "For people only" not in volatile
        assert "one short message and make no tool call" in volatile
        assert "stays parked" in volatile
        assert "Transitions" not in volatile


async def test_a_parked_call_knows_that_a_grader_brought_it_there(bench: Make) -> None:
    b = bench(PARKS, [advance("rate"), advance("check"), AIMessage("verdict"), AIMessage("over")])
    await b.send()
    assert "routed here by the runtime note" in blocks(b, len(b.seen) - 1)[1]


async def test_a_move_after_a_note_is_the_agents_own(bench: Make) -> None:
    spec = PARKS.replace("{to: check, description: Show.}", "{to: work, description: Back.}")
    b = bench(
        spec, [advance("rate"), advance("work"), AIMessage("verdict"), advance("check"), AIMessage("over")]
    )
    await b.send()
    assert "You just handed the work over" in blocks(b, len(b.seen) - 1)[1]


async def test_a_waiting_call_is_told_the_reason(bench: Make) -> None:
    b = bench(PARKS, [raw_call("archmax_wait", reason="the mail"), AIMessage("I wait.")])
    await b.send()
    assert "waiting for something from outside: the mail" in blocks(b, 1)[1]


# -- clock -----------------------------------------------------------------------------------------------------------


def test_the_clock_is_rounded_down_and_says_so() -> None:
    """03 §15."""
    line = clock_line(datetime(2031, 5, 10, 14, 39, 59, tzinfo=UTC))
    assert "2031-05-10 14:30 UTC (Saturday)" in line
    assert "rounded down to 10 minutes" in line
    assert line == clock_line(datetime(2031, 5, 10, 14, 30, tzinfo=UTC))


def test_the_hosts_zone_is_told_when_it_is_not_utc() -> None:
    at = datetime(2031, 5, 10, 23, 4, tzinfo=UTC)
    tokyo = clock_line(at, ZoneInfo("Asia/Tokyo"), "Asia/Tokyo")
    assert tokyo.endswith("Local time here: 2031-05-11 08:00 (Asia/Tokyo).")
    berlin = clock_line(at.replace(hour=10), ZoneInfo("Europe/Berlin"), "Europe/Berlin")
    assert berlin.endswith("Local time here: 12:00 (Europe/Berlin).")
    assert "Local" not in clock_line(at, ZoneInfo("UTC"), "UTC")


async def test_a_cases_clock_is_what_prompts_say(bench: Make) -> None:
    b = bench("states: {work: {triggers: {manual: {}}}}", [AIMessage("ok")])
    agent = b.agent.with_options(clock=lambda: datetime(2031, 5, 10, 14, 31, tzinfo=UTC))
    await agent.send("s", message="hi")
    assert blocks(b, 0)[1].startswith("Now: 2031-05-10 14:30 UTC (Saturday)")


# -- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workspace", ["order-desk", "refund"])
def test_the_prefix_of_a_reference_workspace_stays_small(workspace: str) -> None:
    """03 §17: tool schemas and static prompt are paid for by every session: a budget, in characters."""
    found = prefixes(REPOSITORY / "examples" / workspace)
    assert found
    assert [prefix for prefix in found if prefix.total > TARGET] == []
