"""What goes into one evaluation and what comes out of it (03 §9.8, §19)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, Literal

from core.jsontext import Json, JsonObject, text
from sandbox.journal import CallRecord, Deferred, HostAnswer, Journal

DEFAULT_TIMEOUT_MS: Final = 15_000
DEFAULT_MEMORY_LIMIT_BYTES: Final = 64 * 2**20
DEFAULT_MAX_CALLS: Final = 256
DEFAULT_MAX_RESULT_CHARS: Final = 4000

#: tools an error names as meant, and as there are
_MAX_NEAR: Final = 2
_MAX_LISTED: Final = 20
_LINE: Final = re.compile(r":(\d{1,9})(?::\d+)?\)?$", re.MULTILINE)
_WORD_BREAK: Final = re.compile(r"[^A-Za-z0-9]+(.)?")


def camel_case(name: str) -> str:
    """The alias of a tool: `archmax_workflow_check-card` is `archmaxWorkflowCheckCard` (03 §19.3)."""
    return _WORD_BREAK.sub(lambda match: (match[1] or "").upper(), name)


def aliases(tools: Sequence[str]) -> dict[str, str]:
    """camelCase name → own name; of two tools with one alias the first has it."""
    found: dict[str, str] = {}
    for name in tools:
        found.setdefault(camel_case(name), name)
    return found


@dataclass(frozen=True)
class HostCall:
    """A `tools.*` call the host is to answer. `seq` counts from 1 within the evaluation and is the same in a replay."""

    seq: int
    tool: str
    args: JsonObject


async def _no_tools(call: HostCall) -> HostAnswer:
    return HostAnswer.failed("Error", f"{call.tool} is not available")


async def _no_record(records: Sequence[CallRecord]) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation. Limits are those of the workflow's `settings` (03 §19.5)."""

    source: str
    #: `eval`: the value is the completion value, declarations persist in the REPL. `module`: the default export is
    #: called once with `args` plus `tools`; without a default export it is evaluated as `eval` is (OP-8)
    kind: Literal["eval", "module"] = "eval"
    context: Literal["code-state", "ptc"] = "ptc"
    #: the global `args`; its `variables`, if any, are frozen
    args: Json = None
    #: own names of the tools offered now
    tools: Sequence[str] = ()
    #: answers a call. What it raises ends the evaluation and leaves `evaluate` as it is: a tool's error is an answer
    call: Callable[[HostCall], Awaitable[HostAnswer | Deferred]] = _no_tools
    #: awaited with the answers about to be delivered, stamped; a host that must survive a crash commits them here.
    #: Never interrupted by the time limit, its time is not counted
    record: Callable[[Sequence[CallRecord]], Awaitable[None]] = _no_record
    #: gets each console line as it is printed; lines of an earlier attempt are not repeated
    on_console: Callable[[str], None] | None = None
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    #: `None`: unbounded
    max_calls: int | None = DEFAULT_MAX_CALLS
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS
    #: what an earlier attempt left, or a fresh one whose header the caller wants to store first
    journal: Journal | None = None
    #: names the source in stacks
    filename: str = "script.js"
    #: whose script this is; told to a host's own runtime alone
    session_id: str = ""


class Status(StrEnum):
    OK = "ok"  #: the script came to its end
    ERROR = "error"  #: it threw, or exceeded a limit
    SUSPENDED = "suspended"  #: only deferred calls are outstanding; evaluate again with their answers


class Fault(StrEnum):
    """Why an evaluation failed."""

    THROWN = "thrown"  #: the script threw, or is no valid JavaScript
    IMPORT = "import"  #: it imports something other than `@archmax-ai/harness/*`
    TIMEOUT = "timeout"  #: `settings.timeoutMs`
    MEMORY = "memory"  #: `settings.memoryLimitBytes`
    CALLS = "calls"  #: `settings.maxPtcCalls`, or too many bytes of outstanding calls
    DEADLOCK = "deadlock"  #: it waits for what nothing will bring about
    DIVERGED = "diverged"  #: a replay did not do what its journal says
    CRASH = "crash"  #: the process ended by itself


@dataclass(frozen=True)
class ScriptError:
    """The error of a failed evaluation, as the script's author reads it."""

    fault: Fault
    name: str
    message: str
    #: the script's own frames, one a line, innermost first
    stack: str = ""

    def __str__(self) -> str:
        head = f"{self.name}: {self.message}" if self.message else self.name
        return f"{head}\n{self.stack}" if self.stack else head


def missing_tool(name: str, offered: Sequence[str]) -> str:
    """What is wrong with a call of `tools.<name>`: `offered` are the own names of the tools there are."""
    names = aliases(offered)
    own = {name: alias for alias, name in names.items()}
    known = {alias: alias for alias in names} | {name: own.get(name, name) for name in offered}
    folded = {camel_case(each).lower(): each for each in known.values()}
    same = folded.get(camel_case(name).lower())
    close = [same] if same is not None else get_close_matches(name, known, n=_MAX_NEAR)
    near = list(dict.fromkeys(known[each] for each in close))
    if near:
        hint = f"did you mean {' or '.join(_member(each) for each in near)}?"
    elif offered:
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        hint = f"it offers {', '.join(list(names)[:_MAX_LISTED])}{more}"
    else:
        hint = "it offers no tool"
    return f"there is no {_member(name)} here: {hint}"


def calls_missing_tool(report: Report, source: str) -> bool:
    """Whether a script failed by calling what `tools` has not: the interpreter names no callee, but tells the line."""
    if report.missed is None or (report.name, report.message) != ("TypeError", "not a function"):
        return False
    at = _LINE.search(report.stack)
    line = "".join(source.split("\n")[int(at[1]) - 1 : int(at[1])]) if at else ""
    return report.missed in line or "tools" in line


def _member(name: str) -> str:
    return f"tools.{name}" if name.isidentifier() else f"tools[{text(name)}]"


def forbidden_error(specifiers: Sequence[str]) -> ScriptError:
    """What a script that imports `specifiers` fails with (03 §19.4)."""
    names = ", ".join(repr(item) for item in specifiers)
    message = f"import of {names} is not available; only '@archmax-ai/harness/*' types are"
    return ScriptError(Fault.IMPORT, "ForbiddenSandboxImportError", message)


@dataclass(frozen=True, kw_only=True)
class Result:
    """How an evaluation ended."""

    status: Status
    #: every call and answer; complete unless suspended, failed or stopped with calls outstanding
    journal: Journal
    #: the value, JSON; `None` also when there is none (`has_value`: it was not `undefined`)
    value: Json = None
    has_value: bool = False
    error: ScriptError | None = None
    logs: tuple[str, ...] = ()
    #: console lines and the last expression or the error, at most `max_result_chars`
    formatted: str = ""
    #: imports that were refused (`Fault.IMPORT`)
    forbidden: tuple[str, ...] = ()
    #: the REPL's state is gone: its next evaluation starts from nothing unless the earlier ones are replayed first
    lost_state: bool = False

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        return self.journal.calls


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the interpreter says of a script that came to its end."""

    ok: bool
    value_text: str = "null"
    has_value: bool = False
    shown: str = ""
    name: str = "Error"
    message: str = ""
    stack: str = ""
    #: what the script asked `tools` for last, when no such tool was offered
    missed: str | None = None
    #: hardly any heap is left
    exhausted: bool = False
    forbidden: tuple[str, ...] = ()


def truncated(content: str, limit: int) -> str:
    """`content` in at most `limit` characters: the start and the end, and between them how much is missing."""
    if len(content) <= limit:
        return content
    notice = f"\n… [{len(content)} characters, shortened to {limit}] …\n"
    room = limit - len(notice)
    if room <= 0:
        return notice.strip()[:limit]
    tail = room // 4
    return content[: room - tail] + notice + content[len(content) - tail :]


def formatted(logs: Sequence[str], last: str, limit: int) -> str:
    """Console lines and the last expression (or error) as one text (03 §9.8)."""
    return truncated("\n".join([*logs, last] if last else logs), limit) or "(no output)"


def arguments_text(args: JsonObject) -> str:
    """One spelling of equal arguments, for comparing a replay with its journal."""
    return text(sort_keys(args))


def sort_keys(value: Json) -> Json:
    """`value` with mappings in key order, at every depth."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [sort_keys(item) for item in value]
    return value
