"""The usage footer: what the models of a command spent (07 §10)."""

from __future__ import annotations

from collections.abc import Iterable

from core.jsontext import JsonObject


def usage_line(usage: JsonObject | None) -> str | None:
    """`tokens     in 20,369 · out 287 · cache r 18,000/w 900 · $0.0123`; None when no usage was reported.

    The cache part stands only when it is not zero, the cost only when it is known.
    """
    if not usage:
        return None
    read, written = usage.get("cacheReadTokens") or 0, usage.get("cacheCreationTokens") or 0
    parts = [f"in {usage.get('inputTokens') or 0:,}", f"out {usage.get('outputTokens') or 0:,}"]
    if read or written:
        parts.append(f"cache r {read:,}/w {written:,}")
    cost = usage.get("costUsd")
    if cost is not None:
        parts.append(f"${cost:.4f}")
    return "tokens     " + " · ".join(parts)


def total_usage(usages: Iterable[JsonObject | None]) -> JsonObject | None:
    """The sum; None when none reported any. The cost is the sum of those that are known."""
    total: JsonObject = {}
    for usage in usages:
        for key in ("inputTokens", "outputTokens", "cacheReadTokens", "cacheCreationTokens", "costUsd"):
            value = (usage or {}).get(key)
            if value is not None:
                total[key] = total.get(key, 0) + value
    return total or None


class UsageMeter:
    """Adds up the `model-usage` events of a command or a case, child sessions included."""

    def __init__(self) -> None:
        self.total: JsonObject | None = None

    def __call__(self, event: JsonObject) -> None:
        if event.get("type") == "model-usage":
            self.total = total_usage([self.total, event])
