"""Mocks: which entry answers a call, and with what (06 §8). Governance has decided before anyone asks here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from core.jsontext import Json, JsonObject
from core.jsontext import text as json_text
from engine.cases.document import Mock
from engine.cases.matching import partial_match
from engine.cases.regex import RegexEngine
from engine.governance.names import CONTROL_TOOLS

_CONTROLS: Final = frozenset(CONTROL_TOOLS)


def find_mock(
    mocks: Iterable[Mock], tool: str, args: Mapping[str, Json], *, engine: RegexEngine | None = None
) -> Mock | None:
    """The first entry that matches; control tools are never mocked. `args` are the arguments after substitution.

    Raises: `RegexStopped` for a regex that takes too long.
    """
    if tool in _CONTROLS:
        return None
    for mock in mocks:
        if mock.tool == tool and (
            mock.when_input is None or partial_match(mock.when_input, dict(args), engine=engine)
        ):
            return mock
    return None


def mocked_text(mock: Mock) -> str:
    """What an ordinary tool's call is answered."""
    return mock.result if isinstance(mock.result, str) else json_text(mock.result)


@dataclass(frozen=True, slots=True)
class MockedChild:
    """What a mocked sub-workflow comes to. With `error` the call fails as a rejected child would."""

    message: str = ""
    returns: JsonObject | None = None
    error: str | None = None


def mocked_child(mock: Mock) -> MockedChild:
    """`result` read as a delegation's answer (06 §8.1)."""
    result = mock.result
    if isinstance(result, str):
        return MockedChild(message=result)
    if isinstance(result, dict) and "error" in result:
        return MockedChild(error=_words(result["error"]))
    if isinstance(result, dict) and result.keys() <= {"message", "returns"}:
        returns = result.get("returns")
        if returns is None or isinstance(returns, dict):
            message = result.get("message")
            return MockedChild("" if message is None else _words(message), returns)
    return MockedChild(message=json_text(result))


def _words(value: Json) -> str:
    return value if isinstance(value, str) else json_text(value)
