"""The file tools as models and scripts call them: names and arguments of Deep Agents' tools, short descriptions.

An operation that fails is an answer that begins with `Error: `, never an exception: a path that leaves the workspace,
a missing or binary file, a string that is not there. Governance is not here; a tool runs after the kernel allowed it.
A model reads numbered lines, a page at a time; a script gets the file's text as it is, whole unless it asks for lines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import Json, JsonObject, text, well_formed
from engine.errors import WorkspacePathEscapeError
from engine.workspace.backend import FileEntry, GrepMatch
from engine.workspace.images import ImageOptions, ShownImage, image_answer
from engine.workspace.paging import count_lines, numbered
from engine.workspace.places import Visible, everything
from engine.workspace.router import Workspace
from engine.workspace.transfer import copy_file, move_file, remove_file

#: lines a model's read returns unless it asks for another number, and the characters it returns at most
READ_LINES: Final = 2_000
READ_CHARS: Final = 76_000
#: characters of a listing or a search's answer
LISTING_CHARS: Final = 76_000

Arguments = TypeVar("Arguments", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a call comes from. `visible` hides entries of listings and searches; `images` None: pictures are off."""

    workspace: Workspace
    visible: Visible = everything
    caller: Literal["model", "script"] = "model"
    images: ImageOptions | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """`text` answers the caller. `image`: to be recorded on the tool message. `todos`: the session's new list."""

    text: str
    image: ShownImage | None = None
    todos: list[JsonObject] | None = None


class ToolArgumentsError(ArchmaxError):
    """A call's arguments do not fit the tool; the caller corrects them and calls again."""

    code: ClassVar[str] = "tool-arguments"

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(tool, problem)
        self.tool, self.problem = tool, problem

    @override
    def __str__(self) -> str:
        return f"{self.tool}: {self.problem}"


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    #: declared argument → its other spelling, read when the declared one is absent or null (02 §9.2)
    other_spelling: ClassVar[tuple[str, str] | None] = None

    @model_validator(mode="before")
    @classmethod
    def _read_other_spelling(cls, given: Json) -> Json:
        if cls.other_spelling is None or not isinstance(given, Mapping):
            return given
        name, other = cls.other_spelling
        if given.get(name) is None and given.get(other) is not None:
            return {**given, name: given[other]}
        return given


class _FilePath(_Arguments):
    other_spelling = ("file_path", "path")
    file_path: str


class _Path(_Arguments):
    other_spelling = ("path", "file_path")


class LsArguments(_Path):
    path: str = "/"

    @model_validator(mode="before")
    @classmethod
    def _null_is_the_root(cls, given: Json) -> Json:
        return _without_nulls(given, "path")


class ReadFileArguments(_FilePath):
    offset: int = Field(0, description="first line, from 0")
    limit: int | None = Field(None, description=f"lines, default {READ_LINES}")


class WriteFileArguments(_FilePath):
    content: str


class EditFileArguments(_FilePath):
    old_string: str
    new_string: str
    replace_all: bool = False


class GlobArguments(_Path):
    pattern: str
    path: str = "/"

    @model_validator(mode="before")
    @classmethod
    def _null_is_the_root(cls, given: Json) -> Json:
        return _without_nulls(given, "path")


class GrepArguments(_Path):
    pattern: str = Field(description="literal text")
    path: str = "/"
    glob: str | None = Field(None, description="only files matching")
    output_mode: Literal["files_with_matches", "content", "count"] = "files_with_matches"
    max_count: int | None = Field(None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _null_is_the_root(cls, given: Json) -> Json:
        return _without_nulls(given, "path", "output_mode")


class TransferArguments(_Arguments):
    source: str
    destination: str
    overwrite: bool = False


class RemoveFileArguments(_FilePath):
    pass


class Todo(_Arguments):
    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class WriteTodosArguments(_Arguments):
    todos: list[Todo]


def _without_nulls(given: Json, *names: str) -> Json:
    """Models send null for what they leave out."""
    if not isinstance(given, Mapping):
        return given
    return {key: value for key, value in given.items() if key not in names or value is not None}


@dataclass(frozen=True)
class FileTool(Generic[Arguments]):
    """One tool: what a model is told of it, and what a call does."""

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Arguments, ToolContext], Awaitable[ToolResult]] = field(repr=False)

    def schema(self) -> JsonObject:
        """`{name, description, parameters}`: what is handed to a model, without anything it does not need."""
        parameters = _lean(self.arguments.model_json_schema())
        return {"name": self.name, "description": self.description, "parameters": parameters}

    async def call(self, arguments: Json, context: ToolContext) -> ToolResult:
        """Raises: `ToolArgumentsError`. A path that leaves the workspace is an answer (05 §1.1)."""
        try:
            parsed = self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise ToolArgumentsError(self.name, _problems(error)) from None
        try:
            return await self.run(parsed, context)
        except WorkspacePathEscapeError as error:
            return ToolResult(f"Error: {error}.")


def _lean(schema: Json) -> Json:
    """A JSON schema without titles, descriptions of classes, indirections and spelled-out nulls."""
    definitions = schema.get("$defs", {})

    def walk(node: Json, *, named: bool = False) -> Json:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, dict):
            return node
        if named:
            return {name: walk(item) for name, item in node.items()}
        if "$ref" in node:
            return walk(definitions[node["$ref"].rpartition("/")[2]])
        if "anyOf" in node:
            given = [option for option in node["anyOf"] if option.get("type") != "null"]
            if len(given) == 1:
                node = {**{key: item for key, item in node.items() if key != "anyOf"}, **given[0]}
        return {
            key: walk(item, named=key == "properties")
            for key, item in node.items()
            if key not in ("title", "$defs") and not (key == "default" and item is None)
        }

    return walk(schema)


def _problems(error: ValidationError) -> str:
    """Each argument and what is wrong with it, without the values."""
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:5]
    )


# --- what each does ------------------------------------------------------------------------------------------------


async def _ls(arguments: LsArguments, context: ToolContext) -> ToolResult:
    answer = await context.workspace.ls(arguments.path, visible=context.visible)
    if "error" in answer:
        return _error(answer["error"])
    return ToolResult(_listing(answer.get("files", [])))


async def _read_file(arguments: ReadFileArguments, context: ToolContext) -> ToolResult:
    workspace, path = context.workspace, arguments.file_path
    if context.caller == "script":
        answer = await workspace.read(path, arguments.offset, arguments.limit)
        return _error(answer["error"]) if "error" in answer else ToolResult(answer.get("content", ""))
    if context.images is not None and (shown := await image_answer(workspace, path, context.images)):
        line, image = shown
        return ToolResult(line, image=image)
    offset = max(arguments.offset, 0)
    limit = max(READ_LINES if arguments.limit is None else arguments.limit, 1)
    answer = await workspace.read(path, offset, limit)
    if "error" in answer:
        return _error(answer["error"])
    page, more = answer.get("content", ""), answer.get("more", False)
    if not page:
        if offset == 0:
            return ToolResult("(the file is empty)")
        whole = await workspace.read(path)
        return _error(
            f"line {offset} is behind the end: the file has {count_lines(whole.get('content', ''))} lines"
        )
    rows, lines, cut = numbered(page, offset + 1, READ_CHARS)
    if cut:
        rows += f"\n(line {offset + lines + 1} is too long to show whole; search it with grep or read it in a script)"
        lines += 1
    if more or lines < count_lines(page):
        rows += f"\n(more lines follow: continue with offset={offset + lines})"
    return ToolResult(rows)


async def _write_file(arguments: WriteFileArguments, context: ToolContext) -> ToolResult:
    answer = await context.workspace.write(arguments.file_path, arguments.content)
    return _error(answer["error"]) if "error" in answer else ToolResult(f"Updated file {answer.get('path')}")


async def _edit_file(arguments: EditFileArguments, context: ToolContext) -> ToolResult:
    answer = await context.workspace.edit(
        arguments.file_path, arguments.old_string, arguments.new_string, arguments.replace_all
    )
    if "error" in answer:
        return _error(answer["error"])
    return ToolResult(
        f"Replaced {answer.get('occurrences')} instance(s) of the string in '{answer.get('path')}'"
    )


async def _glob(arguments: GlobArguments, context: ToolContext) -> ToolResult:
    answer = await context.workspace.glob(arguments.pattern, arguments.path, visible=context.visible)
    if "error" in answer and "files" not in answer:
        return _error(answer["error"])
    notes = ["(more files match: narrow the pattern or the path)"] if answer.get("truncated") else []
    if "error" in answer:
        notes.append(f"(not everything was searched: {answer['error']})")
    return ToolResult("\n".join([_listing(answer.get("files", [])), *notes]))


async def _grep(arguments: GrepArguments, context: ToolContext) -> ToolResult:
    answer = await context.workspace.grep(
        arguments.pattern, arguments.path, arguments.glob, arguments.max_count, visible=context.visible
    )
    if "error" in answer and "matches" not in answer:
        return _error(answer["error"])
    notes = ["(more lines match: narrow the text, the glob or the path)"] if answer.get("truncated") else []
    if "error" in answer:
        notes.append(f"(not everything was searched: {answer['error']})")
    found = _matches(answer.get("matches", []), arguments.output_mode)
    return ToolResult("\n".join([_bounded_lines(found) or "No matches found", *notes]))


async def _copy_file(arguments: TransferArguments, context: ToolContext) -> ToolResult:
    line = await copy_file(
        context.workspace, arguments.source, arguments.destination, overwrite=arguments.overwrite
    )
    return ToolResult(line)


async def _move_file(arguments: TransferArguments, context: ToolContext) -> ToolResult:
    line = await move_file(
        context.workspace, arguments.source, arguments.destination, overwrite=arguments.overwrite
    )
    return ToolResult(line)


async def _remove_file(arguments: RemoveFileArguments, context: ToolContext) -> ToolResult:
    return ToolResult(await remove_file(context.workspace, arguments.file_path))


async def _write_todos(arguments: WriteTodosArguments, _context: ToolContext) -> ToolResult:
    todos: list[JsonObject] = [
        {"content": well_formed(todo.content), "status": todo.status} for todo in arguments.todos
    ]
    return ToolResult(f"Updated todo list to {text(todos)}", todos=todos)


def _error(problem: str) -> ToolResult:
    return ToolResult(f"Error: {problem}" + ("" if problem.endswith((".", "!", "?")) else "."))


def _listing(files: list[FileEntry]) -> str:
    lines = [entry["path"] + ("/" if entry.get("is_dir") else "") for entry in files]
    return _bounded_lines(lines) or "No files found"


def _matches(matches: list[GrepMatch], mode: str) -> list[str]:
    by_file: dict[str, list[GrepMatch]] = {}
    for match in matches:
        by_file.setdefault(match["path"], []).append(match)
    lines: list[str] = []
    for path in sorted(by_file):
        match mode:
            case "content":
                lines.append(f"{path}:")
                lines += [f"  {found['line']}: {found['text']}" for found in by_file[path]]
            case "count":
                lines.append(f"{path}: {len(by_file[path])}")
            case _:
                lines.append(path)
    return lines


def _bounded_lines(lines: list[str]) -> str:
    used = 0
    for at, line in enumerate(lines):
        used += len(line) + 1
        if used > LISTING_CHARS:
            return "\n".join([*lines[:at], f"({len(lines) - at} more lines left out)"])
    return "\n".join(lines)


FILE_TOOLS: Final[Mapping[str, FileTool[Any]]] = {
    tool.name: tool
    for tool in (
        FileTool("ls", "List a folder.", LsArguments, _ls),
        FileTool(
            "read_file",
            "Read a text file. Lines come numbered (number, tab, text); the number is no part of the file. "
            "Page long files with offset and limit. Binary files are not returned.",
            ReadFileArguments,
            _read_file,
        ),
        FileTool("write_file", "Create or replace a text file.", WriteFileArguments, _write_file),
        FileTool(
            "edit_file",
            "Replace exact text in a file, without line numbers. old_string must occur once unless replace_all.",
            EditFileArguments,
            _edit_file,
        ),
        FileTool(
            "copy_file",
            "Copy one file of any type, byte for byte, without reading it.",
            TransferArguments,
            _copy_file,
        ),
        FileTool("move_file", "Move or rename one file of any type.", TransferArguments, _move_file),
        FileTool("remove_file", "Remove one file.", RemoveFileArguments, _remove_file),
        FileTool(
            "glob",
            "Find files by name: *.md at any depth, a/**/*.md below path.",
            GlobArguments,
            _glob,
        ),
        FileTool("grep", "Find literal text (no regex) in files.", GrepArguments, _grep),
        FileTool(
            "write_todos",
            "Replace your list of steps for work of three or more.",
            WriteTodosArguments,
            _write_todos,
        ),
    )
}
