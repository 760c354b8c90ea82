"""The short version of the benches: what a turn costs in counts, which no busy machine changes. Never seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.counts import count_fleet_turn, count_session, count_turn, static_blocks
from bench.prompt_prefix import TARGET, prefixes

REPOSITORY = Path(__file__).resolve().parents[2]


async def test_a_plain_turn_writes_one_object_a_step_and_begins_no_process() -> None:
    """Five model and four tool calls: entry, claim, a record for each step but the last, the end, and the entry's removal."""
    counted = await count_turn()
    assert counted.requests["put"] <= 11, counted
    assert sum(counted.requests.values()) <= 20, counted
    assert counted.written <= 6_000, counted
    assert counted.spawned == 0


async def test_the_40th_turn_of_a_session_writes_no_more_than_what_is_new() -> None:
    """W2: what 40 turns leave is under 0.48 MB; what they write grows with their number, not with its square."""
    few, _ = await count_session(10)
    many, kept = await count_session(40)
    assert kept <= 480_000, kept
    assert many <= 4 * few * 1.25, (few, many)


@pytest.mark.timeout(240)
async def test_a_plain_turn_of_the_fleet_is_one_message_and_few_commands() -> None:
    counted = await count_fleet_turn()
    assert counted.messages == 1, counted
    # 15 of them are its events
    assert counted.steady <= 23, counted
    assert counted.spawned == 0, counted
    assert counted.kept <= 5_000, counted


@pytest.mark.timeout(240)
async def test_50_children_are_50_messages_and_the_way_back() -> None:
    """W3: a message for each child, one for the parent, and the last answers' calls for it to go on."""
    counted = await count_fleet_turn(fan=50)
    assert 52 <= counted.messages <= 75, counted
    assert counted.steady <= 51 * 20, counted
    assert counted.spawned == 0, counted


async def test_the_static_block_is_the_same_bytes_in_every_call_of_a_session() -> None:
    blocks = await static_blocks(turns=3)
    assert len(blocks) == 6
    assert len({block.encode() for block in blocks}) == 1
    assert blocks[0]


def test_the_reference_workspace_opens_each_call_with_at_most_12_000_characters() -> None:
    for prefix in prefixes(REPOSITORY / "examples/order-desk"):
        assert prefix.total <= TARGET, prefix
