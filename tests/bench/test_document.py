"""The generated pages: the sizing's arithmetic, and parts that are replaced and nothing else."""

from __future__ import annotations

import re

import pytest

from bench.document import PERFORMANCE, SIZING, Costs, fill, sizing_table

COSTS = Costs(
    worker_ms=12,
    redis_ms=0.5,
    api_ms=6,
    waiting_mib=0.5,
    idle_mib=100,
    kept_bytes=4000,
    queued_bytes=1000,
    commands=40,
    stored_bytes=1000,
    fault_writes=1.5,
)


def _cells(name: str) -> list[str]:
    [line] = [line for line in sizing_table(COSTS).splitlines() if line.startswith(f"| {name} ")]
    return [cell.strip(" *") for cell in line.strip("|").split(" |")][2:]


@pytest.mark.parametrize(
    ("name", "million", "hundred_million"),
    [
        ("turns/s, mean and peak", "11.6; 34.7", "1,157; 3,472"),
        ("turns under way at the peak", "1,042", "104,167"),
        ("worker processes for the CPU", "1", "70"),
        ("worker processes for the slots", "6", "521"),
        ("**worker processes, one core each**", "6", "521"),
        ("memory of each", "187 MiB", "200 MiB"),
        ("**API processes**", "2", "35"),
        ("**Redis servers, so fleets**", "1", "3"),
        ("store: requests/s at the peak", "486", "48,611"),
        ("store: growth a day", "1 GB", "100 GB"),
    ],
)
def test_what_a_fleet_needs_follows_from_what_a_turn_costs(
    name: str, million: str, hundred_million: str
) -> None:
    assert _cells(name) == [million, hundred_million]


def test_only_the_named_part_is_replaced() -> None:
    text = "a\n<!-- one -->\nold\n<!-- /one -->\nb\n<!-- two -->\nkept\n<!-- /two -->\n"
    assert fill(text, "one", r"new \1") == text.replace("old", "\nnew \\1\n")
    with pytest.raises(ValueError, match="three"):
        fill(text, "three", "")


def test_the_pages_have_the_parts_that_are_filled() -> None:
    assert re.findall(r"<!-- (\w+) -->", PERFORMANCE.read_text()) == ["targets", "growth", "counts"]
    assert re.findall(r"<!-- (\w+) -->", SIZING.read_text()) == ["needs"]
