"""The state flow: typed events drawn as lines, append-only (07 §11).

`event_line` draws one event that stands on its own. What a line needs to know from earlier events (a raise before its
state is left, an error route before its move, whether a raise was accepted) is `StateFlow`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from archmax.cli.render.style import (
    ACTION,
    ACTIVE,
    ATTENTION,
    DONE,
    FAILED,
    MOVE,
    PLAIN,
    QUOTE,
    Style,
    TextStream,
    brief,
    one_line,
    safe,
    style_for,
)
from core.jsontext import Json, JsonObject, text

INSIDE = "    "
OUTPUT = "      "


def instant(value: object) -> str:
    """A due time: ISO text as it is, epoch milliseconds as UTC with milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            moment = datetime.fromtimestamp(value / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return str(value)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return one_line(str(value))


def _word(event: JsonObject, key: str) -> str:
    value = event.get(key)
    return "" if value is None else one_line(str(value))


def _quoted(body: str, style: Style) -> list[str]:
    return [f"{INSIDE}{style.dim(QUOTE)} {line}".rstrip() for line in safe(body).split("\n")]


def _state_enter(event: JsonObject, style: Style) -> list[str]:
    return ["", f"{style.accent(ACTIVE)} {style.bold(_word(event, 'state'))}"]


def _state_leave(event: JsonObject, style: Style) -> list[str]:
    state, following = _word(event, "state"), _word(event, "next")
    return [f"{style.good(DONE)} {state} {MOVE} {'done' if following == state else following}"]


def _error_routed(event: JsonObject, style: Style) -> list[str]:
    move = f"{_word(event, 'state')} {MOVE} {_word(event, 'to')}"
    return [f"{style.warn(ATTENTION)} {move} (on_error: {_word(event, 'reason')})"]


def _agent_text(event: JsonObject, style: Style) -> list[str]:
    return _quoted(str(event.get("text", "")), style)


#: arguments that say by themselves what a call is about
_TELLING = ("file_path", "path", "pattern", "name", "url")
#: tools whose arguments are a script's source, a plan, or told by lines of their own
_UNTOLD = frozenset({"archmax_eval", "archmax_wait", "archmax_raise", "write_todos"})


def _detail(event: JsonObject) -> str:
    """What a call is about, from its arguments; of variables the names only."""
    args = event.get("args")
    if not isinstance(args, dict) or event.get("tool") in _UNTOLD:
        return ""
    told = next((args[key] for key in _TELLING if isinstance(args.get(key), str)), None)
    if told is not None:
        return told
    named: Json = args.get("variables", args.get("names"))
    if isinstance(named, (dict, list)):
        return ", ".join(map(str, named))
    return text(args) if args else ""


def _tool_called(event: JsonObject, style: Style) -> list[str]:
    parts = [f"{INSIDE}{style.dim(ACTION)} {_word(event, 'tool')}"]
    detail = brief(str(event.get("detail") or _detail(event)), 100)
    if detail:
        parts.append(detail)
    if event.get("origin"):
        parts.append(style.dim(f"({_word(event, 'origin')})"))
    return [" ".join(parts)]


def _tool_blocked(event: JsonObject, style: Style) -> list[str]:
    where = f"(not allowed in {_word(event, 'state')})"
    return [f"{INSIDE}{style.warn(ATTENTION)} blocked {_word(event, 'tool')} {where}"]


def _advance(event: JsonObject, style: Style) -> list[str]:
    reason = _word(event, "reason")
    return [f"{INSIDE}{style.dim(MOVE)} {reason}"] if reason else []


def _raised(event: JsonObject, style: Style) -> list[str]:
    line = f"{INSIDE}{style.bad(FAILED)} raised {_word(event, 'code')} {_word(event, 'reason')}"
    return [line.rstrip()]


def _code_start(event: JsonObject, style: Style) -> list[str]:
    return [f"{INSIDE}{style.dim(ACTION)} code {_word(event, 'script')}".rstrip()]


def _code_output(event: JsonObject, _style: Style) -> list[str]:
    return [f"{OUTPUT}{line}".rstrip() for line in safe(str(event.get("line", ""))).split("\n")]


def _grader_start(_event: JsonObject, style: Style) -> list[str]:
    return [f"{INSIDE}{style.dim(ACTION)} grader"]


def _automated_result(kind: str) -> Callable[[JsonObject, Style], list[str]]:
    def draw(event: JsonObject, style: Style) -> list[str]:
        status = _word(event, "status")
        line = f"{kind} {status} ({event.get('durationMs', 0):.0f}ms)"
        if status in ("raised", "failed"):
            return [f"{INSIDE}{style.bad(FAILED)} {line} {_word(event, 'reason')}".rstrip()]
        return [f"{INSIDE}{style.good(DONE)} {line}"]

    return draw


def _sub_workflow_start(event: JsonObject, style: Style) -> list[str]:
    depth = event.get("depth", 1)
    below = f" (depth {depth})" if isinstance(depth, int) and depth > 1 else ""
    return [f"{INSIDE}{style.accent(ACTIVE)} sub-workflow {_word(event, 'workflow')}{below}"]


def _sub_workflow_result(event: JsonObject, style: Style) -> list[str]:
    name = f"sub-workflow {_word(event, 'workflow')}"
    match event.get("status"):
        case "ok":
            return [f"{INSIDE}{style.good(DONE)} {name} ({event.get('durationMs', 0):.0f}ms)"]
        case "parked":
            return [f"{INSIDE}{style.warn(ATTENTION)} {name} parked"]
        case _:
            return [f"{INSIDE}{style.bad(FAILED)} {name} failed {_word(event, 'reason')}".rstrip()]


def _parked(event: JsonObject, style: Style) -> list[str]:
    icon = style.warn(ATTENTION)
    if event.get("awaiting") != "input":
        return [f"{INSIDE}{icon} awaiting human decision at {_word(event, 'state')}"]
    line = f"{INSIDE}{icon} awaiting input in {_word(event, 'state')}"
    if event.get("reason"):
        line += f" — {_word(event, 'reason')}"
    if event.get("resumeAt") is not None:
        line += f" (due {instant(event['resumeAt'])})"
    return [line]


def _decided(event: JsonObject, style: Style) -> list[str]:
    return [f"{INSIDE}{style.good(DONE)} decision {MOVE} {_word(event, 'to')}"]


def _delivered(event: JsonObject, style: Style) -> list[str]:
    state = _word(event, "state") or _word(event, "to")
    return [f"{INSIDE}{style.good(DONE)} {_word(event, 'trigger')} delivered, resuming {state}"]


def _park_message(event: JsonObject, style: Style) -> list[str]:
    if event.get("direction") == "outbound":
        return []  # the answer is drawn as the agent's text
    head = f"{INSIDE}{style.dim(MOVE)} message to the parked session at {_word(event, 'state')}"
    return [head, *_quoted(str(event.get("text", "")), style)]


def _warning(event: JsonObject, style: Style) -> list[str]:
    return [f"{style.warn(ATTENTION)} [{_word(event, 'scope')}] {_word(event, 'message')}"]


_DRAWN: dict[str, Callable[[JsonObject, Style], list[str]]] = {
    "state-enter": _state_enter,
    "state-leave": _state_leave,
    "state-error-routed": _error_routed,
    "agent-text": _agent_text,
    "tool-called": _tool_called,
    "tool-blocked": _tool_blocked,
    "advance": _advance,
    "raised": _raised,
    "code-start": _code_start,
    "code-output": _code_output,
    "code-result": _automated_result("code"),
    "grader-start": _grader_start,
    "grader-result": _automated_result("grader"),
    "sub-workflow-start": _sub_workflow_start,
    "sub-workflow-result": _sub_workflow_result,
    "parked": _parked,
    "decided": _decided,
    "delivered": _delivered,
    "park-message": _park_message,
    "warning": _warning,
}
#: what a child session's dispatch lines show of it; the rest is folded into them
_CHILD_DRAWN = frozenset({"sub-workflow-start", "sub-workflow-result"})


def event_line(event: JsonObject, *, style: Style = PLAIN) -> str | None:
    """The drawn form of one event, without a final newline (it may hold several lines); None for hidden kinds."""
    kind = str(event.get("type"))
    if event.get("subWorkflowDispatchId") is not None and kind not in _CHILD_DRAWN:
        return None
    draw = _DRAWN.get(kind)
    lines = draw(event, style) if draw else []
    return "\n".join(lines) if lines else None


def raw_line(event: JsonObject, *, style: Style = PLAIN) -> str:
    """`--verbose`: type, state and payload in brief."""
    envelope = ("type", "level", "ts", "seq", "state", "sessionId")
    payload = {key: value for key, value in event.items() if key not in envelope}
    parts = [_word(event, "type")]
    if event.get("state") is not None:
        parts.append(f"[{_word(event, 'state')}]")
    if payload:
        parts.append(brief(text(payload)))
    return style.dim(f"· {' '.join(parts)}")


class StateFlow:
    """Draws a session's events on a text stream as they come. Call it with each event.

    `session_id`: events of any other session are not drawn, except those of its children.
    """

    def __init__(
        self,
        stream: TextStream,
        *,
        style: Style | None = None,
        verbose: bool = False,
        session_id: str | None = None,
    ) -> None:
        self._stream = stream
        self._style = style_for(stream) if style is None else style
        self._verbose = verbose
        self._session_id = session_id
        self._raised_in: str | None = None
        #: the state whose next leave is a real move onto itself, or was already drawn as an error route
        self._moves_to_itself: str | None = None
        self._routed_from: str | None = None
        self._held_raise: JsonObject | None = None

    def __call__(self, event: JsonObject) -> None:
        if not self.concerns(event):
            return
        lines = [raw_line(event, style=self._style)] if self._verbose else []
        drawn = self._draw(event)
        if drawn is not None:
            lines.append(drawn)
        if lines:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    def concerns(self, event: JsonObject) -> bool:
        """Whether the event is of this session or one of its children (or of no session yet)."""
        owner = event.get("sessionId")
        if self._session_id is None or owner is None or owner == self._session_id:
            return True
        return str(owner).startswith(f"{self._session_id}~")

    def _draw(self, event: JsonObject) -> str | None:
        if event.get("subWorkflowDispatchId") is not None:
            return event_line(event, style=self._style)
        state = event.get("state")
        match event.get("type"):
            case "tool-called" if event.get("tool") in ("archmax_advance", "archmax_raise"):
                # The move reports an advance. A raise is drawn only once it turns out to have been refused.
                if event.get("tool") == "archmax_raise":
                    self._held_raise = event
                return None
            case "tool-result" if self._held_raise and event.get("callId") == self._held_raise.get("callId"):
                held, self._held_raise = self._held_raise, None
                return event_line(held, style=self._style) if event.get("status") == "error" else None
            case "raised":
                self._raised_in, self._held_raise = str(state), None
            case "advance":
                if event.get("from") == event.get("to"):
                    self._moves_to_itself = str(event.get("to"))
            case "decided":
                if event.get("to") == state:
                    self._moves_to_itself = str(state)
            case "state-error-routed":
                self._routed_from = str(state)
            case "state-enter":
                self._raised_in = self._moves_to_itself = self._routed_from = None
            case "state-leave":
                return self._leave(event, str(state))
        return event_line(event, style=self._style)

    def _leave(self, event: JsonObject, state: str) -> str | None:
        if self._routed_from == state:
            self._routed_from = None
            return None  # the error route has drawn this move
        if self._raised_in == state:
            self._raised_in = None
            return f"{self._style.bad(FAILED)} {one_line(state)} {MOVE} failed"
        if self._moves_to_itself == state == event.get("next"):
            return f"{self._style.good(DONE)} {one_line(state)} {MOVE} {one_line(state)}"
        return event_line(event, style=self._style)
