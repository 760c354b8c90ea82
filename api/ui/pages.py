"""Drawing pages: templates that escape everything, the headers of a page, and errors as pages.

The content policy allows this server's style sheet, script and images, and nothing inline: were a text of a session ever to
come through unescaped, it still could not run.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.problems import HttpProblem, problem, problem_of
from api.ui.signin import SignInNeeded, Visitor, begin_visit
from core.errors import ArchmaxError
from core.jsontext import Json

logger = logging.getLogger(__name__)

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
}
FOLDER: Final = Path(__file__).parent
#: characters that would reorder or hide text next to them: a decision must read as it is
_HIDDEN: Final = {
    *range(0x00, 0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0),
    0x061C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF, *range(0xE0000, 0xE0080),
}  # fmt: skip
_VISIBLE: Final = {code: f"⟨U+{code:04X}⟩" for code in _HIDDEN}
_WRAPPED: Final = re.compile(r"(?<=\S)\n(?![\s\-*+#>|`]|\d+[.)])")
_STATUS: Final = {
    "queued": ("wait", "○", "queued"),
    "running": ("busy", "◐", "running"),
    "awaiting_decision": ("ask", "◆", "awaiting decision"),
    "awaiting_input": ("wait", "◷", "awaiting input"),
    "completed": ("good", "✓", "completed"),
    "failed": ("bad", "✕", "failed"),
    "rejected": ("bad", "⊘", "rejected"),
    "refused": ("bad", "⊘", "refused"),
    "cancelled": ("wait", "–", "cancelled"),
}


def visible(value: object) -> object:
    """What a template prints: a text with its invisible characters shown. Markup of our own passes."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return value.encode("utf-8", "replace").decode("utf-8").translate(_VISIBLE)
    return value


def session_path(session: str) -> str:
    return f"/ui/sessions/{quote(session, safe='')}"


def file_path(session: str, path: str) -> str:
    return f"{session_path(session)}/files/{quote(path)}"


def moment(at: object) -> str:
    """Epoch milliseconds, or ISO text, as a date and time in UTC; anything else as it is."""
    ms = _milliseconds(at)
    if ms is None:
        return "" if at is None else str(at)
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def since(at: object) -> str:
    """How long ago, or how far ahead, in one unit."""
    ms = _milliseconds(at)
    if ms is None:
        return moment(at)
    seconds = time.time() - ms / 1000
    size = abs(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if size >= length:
            word = f"{size / length:.0f} {unit}"
            break
    else:
        word = f"{size:.0f} s"
    return f"{word} ago" if seconds >= 0 else f"in {word}"


def _milliseconds(at: object) -> float | None:
    """None for what is no time between the years 1 and 9999."""
    try:
        if isinstance(at, str):
            written = datetime.fromisoformat(at)
            return (written if written.tzinfo else written.replace(tzinfo=UTC)).timestamp() * 1000
        if isinstance(at, int | float) and not isinstance(at, bool):
            datetime.fromtimestamp(at / 1000, UTC)
            return at
    except (OverflowError, ValueError, OSError):
        return None
    return None


def number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def pretty(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def reflow(text: str) -> str:
    """An author's wrapped lines as paragraphs; lines that begin a list, a heading or are indented stay lines."""
    return _WRAPPED.sub(" ", text.strip())


def status(word: object) -> tuple[str, str, str]:
    """Tone, sign and words of a status: it is told by more than its colour."""
    return _STATUS.get(str(word), ("wait", "·", str(word)))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., object]] = {
        "session_path": session_path,
        "moment": moment,
        "since": since,
        "number": number,
        "status": status,
        "pretty": pretty,
        "reflow": reflow,
    }
    environment.filters.update(filters)
    environment.globals["file_path"] = file_path  # type: ignore[bad-assignment] - typed as jinja's own globals
    return environment


def page(
    request: Request, template: str, visitor: Visitor | None, *, code: int = 200, **values: Any
) -> Response:
    """A whole page. `visitor` None: nobody is signed in."""
    body = _environment().get_template(template).render(visitor=visitor, path=request.scope["path"], **values)
    response = Response(body, code, HEADERS, "text/html")
    if visitor is not None and visitor.key is None:
        begin_visit(request, response, visitor.seed)
    return response


def see_other(address: str) -> Response:
    """After a form: a reload of the next page sends nothing again."""
    return RedirectResponse(address, 303, HEADERS)


def error_page(request: Request, body: Json, headers: dict[str, str] | None = None) -> Response:
    response = page(request, "error.html", None, code=body["status"], problem=body)
    response.headers.update(headers or {})
    return response


class PageRoute(APIRoute):
    """A route whose errors are pages, and whose visitors are sent to sign in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeeded as needed:
                return see_other(f"/ui/login?next={quote(needed.target, safe='')}")
            except ArchmaxError as error:
                headers = error.headers if isinstance(error, HttpProblem) else None
                return error_page(request, problem_of(error), headers)
            except (RedisError, OSError):
                unreachable = problem(503, "broker-unavailable", "Redis does not answer; try again soon")
                return error_page(request, unreachable, {"retry-after": "2"})

        return handler
