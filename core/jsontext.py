"""JSON values and their text.

One rule for strings that are no valid Unicode (a lone surrogate, half an emoji): they become U+FFFD wherever text
leaves a process (storage, queue, sandbox edge, HTTP), the same in both directions, so that nothing that was
accepted can later fail to be stored. Non-finite numbers become null, as in JavaScript's `JSON.stringify`.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, TypeAlias

import orjson

#: Any JSON value. Kept as `Any` because recursive aliases slow checkers and readers more than they help.
Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]
#: levels of arrays and objects of a value from outside (caller, model, script). Readers and writers of JSON walk on the
#: interpreter's stack and stop between 254 levels and some thousand, each at another; records wrap a value a few times
MAX_DEPTH: Final = 100


def well_formed(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def too_deep(value: Json) -> bool:
    """Whether `value` is nested more than `MAX_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, (list, tuple)):
                inner.extend(item)
        if not inner:
            return False
        level = inner
    return any(isinstance(item, (dict, list, tuple)) for item in level)


def detached(value: Json) -> Json:
    """A copy that shares nothing which can be changed."""
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [detached(item) for item in value]
    return value


def clean(value: Json) -> Json:
    """A copy of `value` that any JSON writer accepts: well-formed strings, finite numbers, string keys."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {well_formed(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def dumps(value: Json) -> bytes:
    """Compact UTF-8 JSON. Falls back to the slow, forgiving way for what the fast writer refuses."""
    try:
        return orjson.dumps(value)
    except TypeError:  # lone surrogates, integers beyond 64 bits, non-string keys
        return json.dumps(clean(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def loads(text: bytes | str) -> Json:
    """Parse JSON text. Raises `ValueError` (both writers' errors are one)."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # Integers beyond 64 bits become floats in the fast reader's error path; the slow one keeps them.
        return json.loads(text)


def text(value: Json) -> str:
    """Compact JSON as `str`."""
    return dumps(value).decode("utf-8")
