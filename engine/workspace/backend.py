"""What a mount is served by: the backend protocol, its answers, and one safe way to call any of them.

A backend's paths are absolute within it (`/…`). It answers errors as `{"error": …}` or raises; its words may hold
host paths, so what leaves here is one of a few codes (05 §9.1). Host backends may be synchronous: they then run in a
thread, never on the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    Protocol,
    TypeAlias,
    TypedDict,
    cast,
    get_args,
)

from core.errors import ArchmaxError

#: why an operation on a path failed
ErrorCode: TypeAlias = Literal[
    "file_not_found",
    "is_directory",
    "not_a_directory",
    "is_link",
    "permission_denied",
    "invalid_path",
    "already_exists",
    "too_large",
    "unsupported",
    "failed",
]
ERROR_CODES: Final[frozenset[str]] = frozenset(get_args(ErrorCode))

#: the longest file any operation takes whole
MAX_FILE_BYTES: Final = 64 * 1024 * 1024


class FileEntry(TypedDict):
    """One listed file or folder. `size` in bytes, `modified_at` RFC 3339 or as the backend has it."""

    path: str
    is_dir: NotRequired[bool]
    size: NotRequired[int]
    modified_at: NotRequired[str]


class Failed(TypedDict, total=False):
    """`error` is the backend's own text from a backend, a sentence naming the virtual path from the workspace."""

    error: str
    code: ErrorCode


class LsResult(Failed, total=False):
    files: list[FileEntry]


class ReadResult(Failed, total=False):
    content: str
    mime_type: str
    #: more lines follow the ones returned
    more: bool


class RawData(TypedDict):
    content: str | bytes
    mime_type: NotRequired[str]
    modified_at: NotRequired[str]


class RawResult(Failed, total=False):
    data: RawData


class WriteResult(Failed, total=False):
    path: str


class EditResult(Failed, total=False):
    path: str
    occurrences: int


class GlobResult(Failed, total=False):
    files: list[FileEntry]
    truncated: bool


class GrepMatch(TypedDict):
    """`line` counts from 1."""

    path: str
    line: int
    text: str


class GrepResult(Failed, total=False):
    matches: list[GrepMatch]
    truncated: bool


class UploadAnswer(TypedDict):
    path: str
    error: NotRequired[str | None]


class DownloadAnswer(TypedDict):
    path: str
    content: NotRequired[bytes | None]
    error: NotRequired[str | None]


class DeleteResult(Failed, total=False):
    path: str


class Backend(Protocol):
    """The methods every backend has. Optional ones: `upload_files`, `download_files`, `delete` (05 §9.1)."""

    async def ls(self, path: str) -> LsResult: ...
    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> ReadResult: ...
    async def read_raw(self, path: str) -> RawResult: ...
    async def write(self, path: str, content: str) -> WriteResult: ...
    async def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult: ...
    async def glob(self, pattern: str, path: str = "/") -> GlobResult: ...
    async def grep(
        self, pattern: str, path: str = "/", glob: str | None = None, max_count: int | None = None
    ) -> GrepResult: ...


#: a backend as a host hands it in: the methods above, each sync or async
AnyBackend: TypeAlias = Any

OptionalMethod: TypeAlias = Literal["upload_files", "download_files", "delete"]


class BackendError(ArchmaxError):
    """What our own backends raise inside one call; `problem` is an `ErrorCode`."""

    def __init__(self, problem: ErrorCode) -> None:
        super().__init__(problem)
        self.problem: ErrorCode = problem


_WORDING: Final[tuple[tuple[re.Pattern[str], ErrorCode], ...]] = (
    (re.compile(r"is.a.directory|is.directory|isadirectory|not a file", re.IGNORECASE), "is_directory"),
    (re.compile(r"not.a.directory|notadirectory", re.IGNORECASE), "not_a_directory"),
    (re.compile(r"symlink|symbolic link|too many levels", re.IGNORECASE), "is_link"),
    (re.compile(r"not implemented|not support|unsupported", re.IGNORECASE), "unsupported"),
    (re.compile(r"already.exist|file exists", re.IGNORECASE), "already_exists"),
    (re.compile(r"not.found|no such|does not exist|doesn't exist|missing", re.IGNORECASE), "file_not_found"),
    (
        re.compile(r"denied|read.?only|forbidden|not permitted|not allowed", re.IGNORECASE),
        "permission_denied",
    ),
    (re.compile(r"too.large|too.big|exceeds", re.IGNORECASE), "too_large"),
    (re.compile(r"invalid.path|traversal|outside|null byte|name too long", re.IGNORECASE), "invalid_path"),
)


def classify(error: str | BaseException) -> ErrorCode:
    """The code behind a backend's error, text or exception; `failed` when nothing fits."""
    match error:
        case BackendError():
            return error.problem
        case FileNotFoundError():
            return "file_not_found"
        case IsADirectoryError():
            return "is_directory"
        case NotADirectoryError():
            return "not_a_directory"
        case FileExistsError():
            return "already_exists"
        case PermissionError():
            return "permission_denied"
        case NotImplementedError():
            return "unsupported"
        case _:
            text = str(error)
    if text in ERROR_CODES:
        return cast("ErrorCode", text)
    for pattern, code in _WORDING:
        if pattern.search(text):
            return code
    return "failed"


def explain(code: ErrorCode, path: str) -> str:
    """The sentence for a model or user. `path` is the virtual path, with its leading slash."""
    match code:
        case "file_not_found":
            return f"'{path}' not found"
        case "is_directory":
            return f"'{path}' is a directory"
        case "not_a_directory":
            return f"'{path}' cannot exist: a part of it is a file"
        case "is_link":
            return f"'{path}' is or passes through a link, and links are not followed"
        case "permission_denied":
            return f"'{path}' cannot be written or read here: permission denied"
        case "invalid_path":
            return f"'{path}' is not a usable path"
        case "already_exists":
            return f"'{path}' already.exists"
        case "too_large":
            return f"'{path}' is too large for this"
        case "unsupported":
            return f"the store behind '{path}' cannot do that"
        case "failed":
            return f"the store behind '{path}' failed"


class Failure(NamedTuple):
    """Why something was not done at a path: the code for programs, the sentence for whoever asked."""

    code: ErrorCode
    error: str

    def answer(self) -> Any:
        """As any of the workspace's answers; each of them may be an error and its code alone."""
        return {"error": self.error, "code": self.code}


def failure(code: ErrorCode, path: str, sentence: str | None = None) -> Failure:
    return Failure(code, sentence or explain(code, path))


def lacks(backend: AnyBackend, method: OptionalMethod) -> bool:
    return not callable(getattr(backend, method, None))


async def call(method: Callable[..., object], *args: object, **kwargs: object) -> object:
    """Call a backend method, sync (in a thread) or async. What it raises comes out as raised."""
    if inspect.iscoroutinefunction(method):
        answer: object = await method(*args, **kwargs)
    else:
        answer = await asyncio.to_thread(method, *args, **kwargs)
    if inspect.isawaitable(answer):
        answer = await cast("Awaitable[object]", answer)
    return answer


async def ask(
    method: Callable[..., object], *args: object, **kwargs: object
) -> tuple[Mapping[str, Any], ErrorCode | None]:
    """One call that answers a mapping: `(answer, None)`, or the answer as far as there is one and its error's code.

    A backend that raises is no reason for a turn to end; cancellation passes through.
    """
    try:
        answer = await call(method, *args, **kwargs)
    except Exception as error:  # whatever a host's backend raises is its failed answer
        return {}, classify(error)
    if not isinstance(answer, Mapping):
        return {}, "failed"
    error_text = answer.get("error")
    return answer, classify(str(error_text)) if error_text else None


async def ask_many(
    method: Callable[..., object], batch: Sequence[object]
) -> tuple[list[Mapping[str, Any]], ErrorCode | None]:
    """`upload_files` or `download_files`: one answer per item, in order, or why there are none."""
    try:
        answers = await call(method, list(batch))
    except Exception as error:
        return [], classify(error)
    if not isinstance(answers, Sequence) or len(answers) != len(batch):
        return [], "failed"
    return [answer if isinstance(answer, Mapping) else {"error": "failed"} for answer in answers], None


def accepts_max_count(method: Callable[..., object]) -> bool:
    """Whether a host's `grep` takes the cap itself; the workspace caps it in any case."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "max_count" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
