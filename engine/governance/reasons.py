"""The words of a block: what was refused, by what, in which state, and what to do instead (contract 02 §1.3).

An alternative place, where one is named, is `scratchpad/` and no other (02 §10.4).
"""

from __future__ import annotations

from typing import Final

from engine.governance.guards import Guard
from engine.governance.references import Unresolved
from engine.governance.subject import Place, Subject
from engine.spec.model import State

_MAX_PATH_CHARS: Final = 300


def path(text: str) -> str:
    """A canonical path, quoted; the root as `/`, an endless one cut."""
    return repr(text if len(text) <= _MAX_PATH_CHARS else text[:_MAX_PATH_CHARS] + "…") if text else "'/'"


def on(subject: Subject, place: Place) -> str:
    """`'tool' on 'path'`, with the argument where the tool declares several."""
    argument = f" ({place.argument})" if len(subject.call.declared) > 1 else ""
    return f"{subject.tool!r} on {path(place.text)}{argument}"


def called(subject: Subject) -> str:
    """The tool and every path of the call."""
    if not subject.paths:
        return repr(subject.tool)
    shown = ", ".join(path(place.text) for place in subject.paths[:4])
    return f"{subject.tool!r} on {shown}"


def close(state: State) -> str:
    return (
        "Finish, the state ends by itself."
        if state.terminal
        else "Work with what is permitted, and advance when done."
    )


def denied(subject: Subject, guard: Guard, key: str) -> str:
    """A declared denial matched."""
    constraint = "" if guard.open else f" where {guard.shown(subject.variables, any_path=True)}"
    entry = "every tool" if guard.tool == "*" else repr(guard.tool)
    return (
        f"{called(subject)} is forbidden in state {subject.state!r}: {key} denies {entry}{constraint}. "
        "No grant lifts this; go on without it."
    )


def skill(subject: Subject, place: Place, slug: str, key: str | None) -> str:
    enabled = ", ".join(subject.surface.skills) or "none"
    cause = (
        f"skill {slug!r} is not enabled in state" if key is None else f"{key} denies skill {slug!r} in state"
    )
    return f"{on(subject, place)}: {cause} {subject.state!r}; skills enabled here: {enabled}"


def mount(subject: Subject, place: Place, name: str | None, key: str) -> str:
    return (
        f"{on(subject, place)}: {key} denies mount {name!r}, so state {subject.state!r} does not have it; "
        "whether the file exists was not looked at. " + close(subject.surface.state)
    )


def not_allowed(subject: Subject, guards: tuple[Guard, ...]) -> str:
    """Nothing grants the call; with `guards`, the entries that would have."""
    state = subject.surface.state
    parts = [f"{called(subject)} is not allowed in state {state.slug!r}."]
    if guards:
        shown = "; or ".join(guard.shown(subject.variables) for guard in guards)
        parts.append(f"It is allowed here only where {shown}.")
        if subject.surface.open_on_scratchpad(subject.tool) and any(
            each.access.mutates for each in subject.paths
        ):
            parts.append("Working files go under scratchpad/.")
    parts.append(f"Permitted here: {', '.join(sorted(subject.surface.offered)) or 'no tool'}.")
    parts.append(
        "If nothing here helps, "
        + ("finish, the state ends by itself." if state.terminal else "advance when done.")
    )
    return " ".join(parts)


def unresolved(subject: Subject, reference: Unresolved) -> str:
    return (
        f"{called(subject)} cannot be decided in state {subject.state!r}: the entry that would allow it reads "
        f"${{{{{reference.reference}}}}}, and {reference.why} ({reference.reason})"
    )


def no_edge(state: State, target: str) -> str:
    """A move along an edge that is not declared."""
    if state.terminal:
        return f"state {state.slug!r} is terminal and has no transition to {target!r}; finish, the state ends by itself"
    targets = ", ".join(dict.fromkeys(edge.to for edge in state.transitions))
    return f"state {state.slug!r} has no transition to {target!r}; valid targets: {targets}"
