"""Where a firing goes: which session, and what the firing becomes there (05 §2.1). Invokes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from core.jsontext import Json
from engine.errors import InvalidSessionPathError, UnknownSessionTriggerError
from engine.session.state import SessionState
from engine.spec.model import Spec
from engine.spec.paths import parse_dotted_path, resolve_path
from engine.turn.inputs import disposition_of

Resolution: TypeAlias = Literal["turn", "resume", "reply"]


@dataclass(frozen=True)
class Resolved:
    """Where a firing goes. `native`: the id was minted here. `state`: where the session is parked."""

    session_id: str
    disposition: Resolution
    native: bool
    start_state: str | None = None
    state: str | None = None


def session_from_path(
    spec: Spec, trigger: str, values: Mapping[str, Json], *, given: str | None, assembled: str | None
) -> tuple[str | None, str | None]:
    """`(id, path)`: the firing's path, the assembly's, the trigger's `session`, by the first that is there.

    Without an id the caller mints one; a path without an id deserves a warning.
    Raises: `InvalidSessionPathError`, `UnknownSessionTriggerError`.
    """
    declared = spec.trigger(trigger)
    if declared is None:
        raise UnknownSessionTriggerError(trigger)
    for path in (given, assembled):
        if path is not None and parse_dotted_path(path) is None:
            raise InvalidSessionPathError(path, "a dotted path over the firing's variables, without ${{…}}")
    path = given if given is not None else assembled if assembled is not None else declared.session
    return (None, None) if path is None else (_id_of(resolve_path(path, values)), path)


def _id_of(found: object) -> str | None:
    """A non-blank string as it is, a finite number as text; anything else is no id."""
    if isinstance(found, str) and found.strip():
        return found
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return str(int(found)) if float(found).is_integer() else repr(found)


def resolved(
    spec: Spec, state: SessionState | None, session_id: str, trigger: str, *, native: bool
) -> Resolved:
    """What the session as it stands makes of a message by this trigger."""
    disposition = disposition_of(state, {"kind": "message"})
    parked = (state.pending_decision or state.pending_input) if state is not None else None
    retained = state.position if state is not None and state.position in spec.states else None
    kinds: dict[str, Resolution] = {"deliver": "resume", "reply": "reply"}
    return Resolved(
        session_id=session_id,
        disposition=kinds.get(disposition, "turn"),
        native=native,
        start_state=retained or spec.entry_state(trigger),
        state=parked.get("state") if parked else None,
    )
