"""Mocks: which entry answers a call, and with what (06 §8). Governance has decided before anyone asks here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from core.jsontext import Json
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
