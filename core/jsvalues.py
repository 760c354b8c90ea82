"""JSON values as JavaScript sees them: equality of kinds, and text (06 §4.2, §4.3)."""

from __future__ import annotations

import math

from core.jsontext import Json


def same_scalar(expected: Json, observed: Json) -> bool:
    """Strict equality. Integers and floats are one number type; a boolean is no number."""
    if isinstance(expected, bool) or isinstance(observed, bool):
        return isinstance(expected, bool) and isinstance(observed, bool) and expected == observed
    if isinstance(expected, int | float) and isinstance(observed, int | float):
        return expected == observed
    if isinstance(expected, str) and isinstance(observed, str):
        return expected == observed
    return expected is None and observed is None


def deep_equal(expected: Json, observed: Json) -> bool:
    """Same shape and values: mappings in any order, lists in order."""
    if isinstance(expected, dict):
        return (
            isinstance(observed, dict)
            and expected.keys() == observed.keys()
            and all(deep_equal(value, observed[key]) for key, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(observed, list)
            and len(expected) == len(observed)
            and all(deep_equal(one, other) for one, other in zip(expected, observed, strict=True))
        )
    return same_scalar(expected, observed)


def js_text(value: Json) -> str:
    """The value as JavaScript turns it into a string, but null into the empty one."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, list):
        return ",".join(js_text(item) for item in value)
    return "[object Object]"


def _number_text(number: float) -> str:
    """Number::toString: the shortest digits that read back, an exponent only from 1e21 and below 1e-6."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # the value is 0.digits × 10^point
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
        return sign + whole + ("." + fraction if fraction else "")
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = point - 1
    head = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{head}e{'+' if power > 0 else '-'}{abs(power)}"
