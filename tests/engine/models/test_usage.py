from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from engine.models.usage import (
    Rates,
    Usage,
    UsageSummary,
    create_usage_tracker,
    rates_for,
    read_pricing,
    usage_of,
)


def answer(counts: Any = None, **metadata: Any) -> AIMessage:
    return AIMessage("x", usage_metadata=counts, response_metadata=metadata)


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        (answer({"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}), (10, 2, 0, 0)),
        (
            answer(
                {
                    "input_tokens": 100,
                    "output_tokens": 2,
                    "total_tokens": 102,
                    "input_token_details": {"cache_read": 60, "cache_creation": 30},
                }
            ),
            (100, 2, 60, 30),
        ),
        (
            answer(
                {
                    "input_tokens": 100,
                    "output_tokens": 2,
                    "total_tokens": 102,
                    "input_token_details": {"cache_creation": 0, "ephemeral_5m_input_tokens": 40},
                }
            ),
            (100, 2, 0, 40),
        ),
        # a raw Anthropic shape excludes the cache: it is added
        (
            answer(usage={"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 60}),
            (70, 2, 60, 0),
        ),
        (answer(token_usage={"prompt_tokens": 9, "completion_tokens": 1}), (9, 1, 0, 0)),
    ],
)
def test_the_providers_counts_are_read(message: AIMessage, counts: tuple[int, ...]) -> None:
    """03 §21: the input is the total, cache counts are a part of it, missing = 0."""
    usage = usage_of(message)
    assert usage is not None
    assert (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_creation_tokens,
    ) == counts


def test_a_provider_that_reports_nothing_has_no_usage() -> None:
    """03 §20: `model-usage` is omitted when the provider reports none."""
    assert usage_of(answer()) is None


def test_the_model_is_what_the_response_reported_else_what_was_asked_for() -> None:
    """03 §21."""
    counts = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    assert usage_of(answer(counts, model_name="served"), "asked").model == "served"  # type: ignore[union-attr]
    assert usage_of(answer(counts), "asked").model == "asked"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("model_id", "found"),
    [
        ("gpt-5", 1),
        ("vendor/gpt-5-mini-2031", 2),
        ("vendor/gpt-5-2031", 1),
        ("my-default", 9),
        (None, 9),
        ("x", 9),
    ],
)
def test_a_price_is_found_by_exact_id_then_longest_part_then_default(
    model_id: str | None, found: float
) -> None:
    """03 §21."""
    pricing = {"gpt-5": Rates(1), "gpt-5-mini": Rates(2), "default": Rates(9)}
    rates = rates_for(pricing, model_id)
    assert rates is not None
    assert rates.input == found


@pytest.mark.parametrize(
    ("rates", "cost"),
    [
        (Rates(2.0, 10.0, 0.5, 3.0), (100 * 2 + 600 * 0.5 + 300 * 3 + 50 * 10) / 1e6),
        (Rates(2.0, 10.0), (1000 * 2 + 50 * 10) / 1e6),  # cache rates fall back to the input rate
        (Rates(input=2.0), 0.002),
        (Rates(output=10.0), 0.0005),
        (Rates(0.0, 0.0), 0.0),
        (Rates(cache_read=1.0), None),  # input and output both missing
    ],
)
def test_the_cost_of_a_call(rates: Rates, cost: float | None) -> None:
    """03 §21."""
    usage = Usage(1000, 50, 600, 300, "m")
    found = usage.cost_usd({"m": rates})
    assert found == (None if cost is None else round(cost, 6))


def test_more_cached_than_counted_costs_no_negative_amount() -> None:
    """03 §21: floored at 0."""
    assert Usage(10, 0, 20, 0, "m").cost_usd({"m": Rates(1_000_000, 0, 0)}) == 0


def test_an_unpriced_call_has_no_cost_field() -> None:
    """03 §21: never 0."""
    fields = Usage(1, 2, model="m").fields({"other": Rates(1, 1)})
    assert fields == {
        "inputTokens": 1,
        "outputTokens": 2,
        "cacheReadTokens": 0,
        "cacheCreationTokens": 0,
        "model": "m",
    }
    assert Usage(1_000_000, 0, model="m").fields({"m": Rates(1, 1)})["costUsd"] == 1


def test_a_hosts_pricing_is_read_and_checked() -> None:
    """05 §13 `pricing`."""
    pricing = read_pricing({"m": {"input": 1, "output": 2, "cacheRead": 0.5, "cacheWrite": 3}})
    assert pricing == {"m": Rates(1, 2, 0.5, 3)}
    for bad in ({"m": {"inputs": 1}}, {"m": {"input": "1"}}, {"m": {"input": -1}}, {"m": 3}):
        with pytest.raises(ValueError, match="'m'"):
            read_pricing(bad)


def test_summaries_add_up_and_keep_unpriced_apart_from_free() -> None:
    """03 §21."""
    unpriced, priced = UsageSummary(10, 1), UsageSummary(5, 1, 2, 1, 0.000002)
    assert (unpriced + unpriced).cost_usd is None
    total = unpriced + priced + priced
    assert total.to_json() == {
        "inputTokens": 20,
        "outputTokens": 3,
        "cacheReadTokens": 4,
        "cacheCreationTokens": 2,
        "costUsd": 0.000004,
    }
    assert UsageSummary.from_json(total.to_json()) == total
    assert not UsageSummary().spent
    assert total.spent


def test_the_tracker_adds_up_by_session_and_passes_events_on() -> None:
    """03 §21: `handler`, `totals`, `by_session`, `reset`."""
    passed: list[Any] = []
    tracker = create_usage_tracker(passed.append)
    for session, count in (("a", 1), ("b", 10), ("a", 2)):
        tracker.handler(
            {"type": "model-usage", "sessionId": session, "inputTokens": count, "outputTokens": 0}
        )
    tracker.handler({"type": "state-enter", "state": "x"})
    assert len(passed) == 4
    assert tracker.totals("a").input_tokens == 3
    assert tracker.totals().input_tokens == 13
    assert set(tracker.by_session()) == {"a", "b"}
    tracker.reset("a")
    assert (tracker.totals("a"), tracker.totals().input_tokens) == (UsageSummary(), 10)
    tracker.reset()
    assert tracker.by_session() == {}
