"""The system prompt: a static block that never changes within a session, and a volatile one per call (03 §17).

The static block names no state, so that a provider's cache holds it for the whole session. The volatile block tells
the mover its state, and nothing of any other beyond the edges that leave it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.governance.surface import MountAccess
from engine.governance.zones import MountPrefixes
from engine.session.state import SessionState
from engine.spec.model import SignatureEntry, Spec, State, Trigger
from engine.turn.platform_prompt import PLATFORM_PROMPT, for_session

TODO_GUIDANCE = "For work of several steps keep a plan with `write_todos`: one item in progress, done items marked at once."
FILE_GUIDANCE = (
    "Files: paths are relative to the workspace. Put results under `scratchpad/`; page long files with `offset` and "
    "`limit`; search with `grep` and `glob` before reading."
)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def static_prompt(
    spec: Spec | None,
    *,
    persona: str | None,
    system_prompt: str | None,
    platform: str | None,
    workflow_body: str,
    mounts: MountPrefixes,
    files: bool,
    todos: bool,
    top_level: bool,
) -> str:
    """Layers 1–7 of 03 §17.1, joined by blank lines; absent ones are skipped."""
    layers: list[str] = []
    if persona and persona.strip():
        layers.append(persona.strip())
    if system_prompt and system_prompt.strip():
        layers.append(system_prompt.strip())
    if spec is not None:
        layers.append(for_session(platform or PLATFORM_PROMPT, top_level=top_level))
    layers.append(zones_block(mounts, governed=spec is not None))
    if spec is not None:
        header: list[str] = []
        if spec.title:
            header.append(f"# Workflow: {spec.title}")
        if spec.instructions:
            header.append(f"## Instructions\n\n{spec.instructions}")
        layers.extend(header)
        body = _COMMENT.sub("", workflow_body).strip()
        if body:
            layers.append(body)
    if files:
        layers.append(FILE_GUIDANCE)
    if todos:
        layers.append(TODO_GUIDANCE)
    return "\n\n".join(layers)


def zones_block(mounts: MountPrefixes, *, governed: bool = True) -> str:
    """What of the workspace is always the same (03 §17.3): areas and ungoverned mounts."""
    lines = [
        "# Workspace",
        "",
        "- `scratchpad/`: yours to read and write" + (" in every state" if governed else ""),
        "- `large_tool_results/`, `conversation_history/`: moved here for you to read; read-only",
    ]
    shown: list[tuple[bool, str, str]] = []
    for name in mounts.names:
        if name.startswith(".") or name in mounts.governed:
            continue
        writable = name in mounts.writable
        path = f"{name}/" if name in mounts.dirs else name
        note = "read/write" if writable else "read-only"
        if name in mounts.unsearchable:
            note += ", browse only"
        shown.append((writable, path, note))
    lines += [f"- `{path}`: {note}" for _writable, path, note in sorted(shown)]
    if governed:
        lines.append("- any other path: as the state allows")
    if mounts.governed:
        lines.append("- further mounts exist only where the current-state block lists them")
    return "\n".join(lines)


def current_state_block(
    spec: Spec,
    state: State,
    s: SessionState,
    *,
    clock: str,
    top_level: bool,
    skills: Sequence[tuple[str, str, str]],
    mounts: Sequence[MountAccess],
    guards: Sequence[str],
) -> str:
    """The volatile block of an ordinary call (03 §17.4). `skills`: slug, description, path of its SKILL.md."""
    parts = [
        clock,
        f"## Current state: {state.slug}",
        "This overrides any movement recorded earlier in the conversation.",
    ]
    if _followed_up(state, s):
        parts.append(
            "The session already stood in this terminal state when the message came. Call `archmax_reset` first, then "
            "work on it from the start."
        )
    if state.instructions and state.instructions.strip():
        parts.append(state.instructions.strip())
    parts.extend(_available(skills, mounts, " in this state"))
    names = ", ".join(f"`{name}`" for name in s.variables)
    parts.append(f"Variables set: {names}." if names else "No variables are set.")
    if guards:
        parts.append("Enforced on arguments:\n" + "\n".join(f"- {guard}" for guard in guards))
    trigger = spec.trigger(s.turn_trigger or "")
    if trigger is not None:
        parts.extend(_signature(trigger, top_level))
    parts.append(_edges(spec, state))
    return "\n\n".join(parts)


def plain_block(*, clock: str, skills: Sequence[tuple[str, str, str]], mounts: Sequence[MountAccess]) -> str:
    """The volatile block of an agent no workflow governs: the clock, and what a governed state would be granted."""
    return "\n\n".join([clock, *_available(skills, mounts, "")])


def _available(
    skills: Sequence[tuple[str, str, str]], mounts: Sequence[MountAccess], where: str
) -> list[str]:
    parts: list[str] = []
    if skills:
        lines = [
            f"- `{slug}` — {' '.join(description.split())} Read `{path}` first."
            for slug, description, path in skills
        ]
        parts.append(f"## Skills available{where}\n" + "\n".join(lines))
    if mounts:
        lines = [
            f"- `{mount.mount}` — {'read/write' if mount.access == 'read_write' else 'read-only'}"
            + ("" if mount.searchable else ", browse only")
            for mount in mounts
        ]
        parts.append(f"## Mounts available{where}\n" + "\n".join(lines))
    return parts


def _followed_up(state: State, s: SessionState) -> bool:
    """Terminal, not the entry, and nothing has happened since this turn opened here (03 §17.4.1)."""
    if not state.terminal or state.slug == s.entry_state or s.disposition != "turn":
        return False
    return bool(s.trail) and s.trail[-1]["kind"] == "trigger" and len(s.trail) == s.trail_from + 1


def _entries(entries: Sequence[SignatureEntry]) -> str | list[str]:
    if all(entry.type is None and entry.description is None for entry in entries):
        return ", ".join(f"`{entry.name}`" for entry in entries)
    lines: list[str] = []
    for entry in entries:
        line = f"- {entry.name}"
        if entry.type:
            line += f" ({entry.type})"
        if entry.description:
            line += f" — {entry.description}"
        lines.append(line)
    return lines


def _signature(trigger: Trigger, top_level: bool) -> list[str]:
    parts: list[str] = []
    if trigger.requires:
        rendered = _entries(trigger.requires)
        parts.append(
            f"Started with {rendered}."
            if isinstance(rendered, str)
            else "Started with:\n" + "\n".join(rendered)
        )
    if trigger.returns:
        rendered = _entries(trigger.returns)
        short = (
            "otherwise it ends rejected"
            if top_level
            else "otherwise the caller gets what was set and a note naming the rest"
        )
        head = f"Before finishing set with `archmax_set_variables` ({short})"
        parts.append(
            f"{head}: {rendered}." if isinstance(rendered, str) else f"{head}:\n" + "\n".join(rendered)
        )
    return parts


def edge_line(spec: Spec, state: State, index: int) -> str:
    """One edge as the mover sees it (01 §7.5)."""
    edge = state.transitions[index]
    target = spec.states[edge.to]
    notes: list[str] = []
    if edge.type != "none":
        notes.append(edge.type)
    match target.type:
        case "human":
            notes.append("human decision node")
        case "grader" | "code":
            notes.append(target.type)
        case "agent":
            pass
    if target.terminal:
        notes.append("terminal")
    shown = f"- to `{edge.to}`" + (f" ({', '.join(notes)})" if notes else "")
    description = edge.description
    if description is not None and description.strip():
        return f"{shown} — {description.strip()}"
    if target.type in ("agent", "human") and target.instructions and target.instructions.strip():
        return f'{shown} — "{target.instructions.strip()}"'
    return shown


def _edges(spec: Spec, state: State) -> str:
    if state.terminal:
        return "This state is terminal: do its work and answer in text; the session then ends by itself."
    lines = [edge_line(spec, state, index) for index in range(len(state.transitions))]
    return "Transitions — pick one with `archmax_advance` when this state's work is done:\n" + "\n".join(
        lines
    )


def _routed(s: SessionState) -> bool:
    """Whether something other than the agent itself brought the session here."""
    return not s.pending_delegations and not (s.trail and s.trail[-1]["kind"] == "agent")


def parked_block(s: SessionState, *, clock: str) -> str:
    """The volatile block of a reply-only call (03 §10.5)."""
    record = s.pending_decision or s.pending_input or {}
    label = f"`{record.get('state', s.position)}`"
    if record.get("title"):
        label += f" ({record['title']})"
    last = next((m for m in reversed(s.messages) if m["role"] in ("user", "note")), None)
    if s.pending_input is not None:
        case = f"You are waiting for something from outside: {s.pending_input.get('reason', '')}"
    elif s.disposition == "reply":
        case = (
            "A person just wrote while someone else is deciding. Answer them; you may not decide, predict or announce "
            "the decision."
        )
    elif last is not None and last["role"] == "note" and _routed(s):
        case = "You were just routed here by the runtime note above; a person decides next."
    else:
        case = "You just handed the work over; a person decides next."
    return "\n\n".join(
        [
            clock,
            "## This run is parked",
            case,
            "Write one short message and make no tool call: every call is refused. The session stays parked until "
            "someone else acts.",
            f"Parked in {label}.",
        ]
    )


def grader_task(spec: Spec, state: State) -> str:
    """The one task message of a grader: its state and its edges."""
    lines = [edge_line(spec, state, index) for index in range(len(state.transitions))]
    return f"Judge the work at state `{state.slug}` and decide. Transitions:\n" + "\n".join(lines)


GRADER_PREAMBLE = """\
You judge work you did not do. Judge from records: read the session with `archmax_get_history` and the files with your \
tools; a claim by the worker is no record. Decide with exactly one `archmax_advance` or `archmax_raise`; the reason is \
read by the next state, so say what is right or what to mend. Answering in text decides nothing."""


def grader_prompt(state: State) -> str:
    return f"{GRADER_PREAMBLE}\n\n# Criteria\n\n{(state.instructions or '').strip()}"
