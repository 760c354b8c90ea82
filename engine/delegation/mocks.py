"""What a mocked sub-workflow comes to (04 §10, 06 §8.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.jsontext import Json, JsonObject, text


@dataclass(frozen=True, slots=True)
class MockedChild:
    """With `error` the call fails as a rejected child would."""

    message: str = ""
    returns: JsonObject = field(default_factory=dict)
    error: str | None = None


def mocked_child(result: Json) -> MockedChild:
    """A mock's `result` read as a delegation's answer."""
    if isinstance(result, dict) and "error" in result:
        return MockedChild(error=_words(result["error"]))
    if isinstance(result, dict) and result.keys() <= {"message", "returns"}:
        message, returns = result.get("message"), result.get("returns")
        if returns is None or isinstance(returns, dict):
            return MockedChild("" if message is None else _words(message), returns or {})
    return MockedChild(message=_words(result))


def _words(value: Json) -> str:
    return value if isinstance(value, str) else text(value)
