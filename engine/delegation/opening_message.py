"""The message a session without a person's words begins with (04 §5.4, ruling 16): its inputs, safely quoted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

VALUE_LIMIT = 200
TOTAL_LIMIT = 1_000


def _render(value: Any) -> str | None:
    """One value on one line inside its own quotes, or None when it is not shown."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    return None


def opening_message(variables: Mapping[str, Any]) -> str:
    """Lines for the small values in name order; the others by name."""
    shown: list[str] = []
    hidden: list[str] = []
    total = 0
    for name in sorted(variables):
        rendered = _render(variables[name])
        if rendered is None or len(rendered) > VALUE_LIMIT or total + len(rendered) > TOTAL_LIMIT:
            hidden.append(name)
            continue
        total += len(rendered)
        shown.append(f"- {name}: {rendered}")
    begin = "Begin now; your instructions are in context."
    lines = [f"{begin} Inputs:" if shown else begin, *shown]
    if hidden:
        lines.append(f"Not shown here: {', '.join(hidden)}. Read them with archmax_get_variables.")
    return "\n".join(lines)
