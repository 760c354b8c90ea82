"""What a person needs to decide a park: the question, its evidence, and the ways on (03 §10.2, 07 §6).

The context is the deciding state's own: when a child's park is presented, that of the child, whose files hold the evidence.
The decision is sent to the session that presents it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from api.files import media_type
from api.ui.pages import file_path, pretty
from api.ui.story import last_words
from core.errors import ArchmaxError
from core.jsontext import JsonObject, dumps
from core.paths import canonical
from engine.session.outcome import delegation_of
from engine.spec.model import Spec, State
from worker.reading import SessionView
from worker.service import Caller, FleetService

#: bytes of a text shown in place, and of an image
MAX_TEXT_BYTES: Final = 64 * 1024
MAX_IMAGE_BYTES: Final = 4 << 20
#: files of one folder named as evidence
MAX_LISTED: Final = 20
#: children that present one another's park
_MAX_DEPTH: Final = 16
_VERBS: Final = {
    "approve": ("✓", "Approve"),
    "reject": ("✕", "Reject"),
    "refine": ("↺", "Send back"),
    "none": ("→", "Go on"),
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """`kind` says how it is shown; a `missing` one is named all the same. `text` of a `text` one is complete."""

    path: str
    kind: Literal["text", "image", "download", "missing"]
    link: str = ""
    size: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One button."""

    to: str
    kind: str
    sign: str
    verb: str
    title: str
    description: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A parked decision. `park` names this very question: another one that came since is another."""

    session: str
    holder: str
    workflow: str
    delegated: bool
    state: str
    title: str
    instructions: str
    approvers: tuple[str, ...]
    handoff: str
    since: Any
    evidence: tuple[Evidence, ...]
    ways: tuple[Way, ...]
    park: str
    problem: str | None = None


def park_name(pending: JsonObject) -> str:
    """Of the record's content: a reply leaves it as it is, a new park never does."""
    return hashlib.sha256(dumps(pending)).hexdigest()[:24]


async def asked_now(service: FleetService, view: SessionView) -> JsonObject | None:
    """The decision record that waits for its answer."""
    pending = view.state.pending_decision
    if pending is None or view.open or view.state.status != "awaiting_decision":
        return None
    return None if await queued(service, view) else pending


async def queued(service: FleetService, view: SessionView) -> bool:
    """Whether an input was accepted behind everything this view shows."""
    log = service.client.fleet.log(view.state.session_id)
    return await log.entry(view.head.turn + 1) is not None


async def decision_of(service: FleetService, view: SessionView, caller: Caller) -> Decision | None:
    """None unless the session waits for a decision now, and none is on its way."""
    pending = await asked_now(service, view)
    if pending is None:
        return None
    holder, problem = await _holder(service, view, caller)
    spec: Spec | None = None
    if holder is not None:
        try:
            spec = await service.spec(holder.head.workflow, caller)
        except ArchmaxError as error:
            problem = str(error)
    slug = str(pending.get("state"))
    state: State | None = spec.states.get(slug) if spec is not None else None
    if spec is not None and state is None:
        problem = f"the workflow has no state {slug!r} any more; the decision may be refused"
    shown = holder or view
    evidence: list[Evidence] = []
    for path in pending.get("evidence") or ():
        if holder is None:
            evidence.append(Evidence(str(path), "missing"))
        else:
            evidence += await _evidence(service, holder.state.session_id, str(path), caller)
    return Decision(
        session=view.state.session_id,
        holder=shown.state.session_id,
        workflow=shown.head.workflow,
        delegated=shown is not view or holder is None,
        state=slug,
        title=str(pending.get("title") or slug),
        instructions=(state.instructions or "") if state is not None else "",
        approvers=state.approvers if state is not None else (),
        handoff=last_words(view.state),
        since=pending.get("createdAt"),
        evidence=tuple(evidence),
        ways=tuple(_way(edge, spec) for edge in pending.get("transitions") or ()),
        park=park_name(pending),
        problem=problem,
    )


async def _holder(
    service: FleetService, view: SessionView, caller: Caller
) -> tuple[SessionView | None, str | None]:
    """The session whose own park is presented: this one, or a descendant; None when the caller may not see it."""
    for _ in range(_MAX_DEPTH):
        delegation = delegation_of(view.state)
        if delegation is None:
            return view, None
        try:
            view = await service.session(delegation["sessionId"], caller)
        except ArchmaxError:
            return (
                None,
                f"the question is asked by a sub-workflow {delegation['workflow']!r} whose session you cannot see",
            )
    return None, "the question is asked by a sub-workflow too deep to follow"


def _way(edge: JsonObject, spec: Spec | None) -> Way:
    kind = str(edge.get("type") or "none")
    sign, verb = _VERBS.get(kind, _VERBS["none"])
    to = str(edge.get("to"))
    target = spec.states.get(to) if spec is not None else None
    title = target.title if target is not None and target.title else to
    return Way(to, kind, sign, verb, title, str(edge.get("description") or ""))


async def _evidence(service: FleetService, session: str, path: str, caller: Caller) -> list[Evidence]:
    """A file, or the files of a folder."""
    name = canonical(path).text
    files = await service.files(session, caller)
    if name in files:
        return [await _shown(service, session, name, files[name].size, caller)]
    inside = [held for held in files if held.startswith(f"{name}/")]
    found = [await _shown(service, session, held, files[held].size, caller) for held in inside[:MAX_LISTED]]
    return found or [Evidence(path, "missing")]


async def _shown(service: FleetService, session: str, path: str, size: int, caller: Caller) -> Evidence:
    link = file_path(session, path)
    kind, inline = media_type(path)
    if inline and kind.startswith("image/"):
        return Evidence(path, "image" if size <= MAX_IMAGE_BYTES else "download", link, size)
    if size > MAX_TEXT_BYTES:
        return Evidence(path, "download", link, size)
    content = await service.file(session, path, caller)
    if content is None:
        return Evidence(path, "missing")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return Evidence(path, "download", link, size)
    if "\0" in text:
        return Evidence(path, "download", link, size)
    if path.lower().endswith(".json"):
        text = _pretty_json(text)
    return Evidence(path, "text", link, size, text)


def _pretty_json(text: str) -> str:
    """Laid out for reading; as it stands where that would change what it says, or it is no JSON."""
    try:
        return pretty(
            json.loads(
                text,
                object_pairs_hook=_once,
                parse_float=_exact(float),
                parse_int=_exact(int),
                parse_constant=_never,
            )
        )
    except (ValueError, RecursionError):
        return text


def _once(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _exact(read: Callable[[str], float]) -> Callable[[str], float]:
    def number(written: str) -> float:
        value = read(written)
        if repr(value) != written:
            raise ValueError("another spelling of the number")
        return value

    return number


def _never(_written: str) -> float:
    raise ValueError("no JSON")
