"""The file tools as a model and a script call them (05 §10.1, 03 §19.3, §22; 02 §9.2; known faults H13, H18)."""

from __future__ import annotations

import json

import pytest

from engine.governance.names import DEFAULT_TOOLS, SANDBOX_TOOLS
from engine.workspace.images import ImageOptions
from engine.workspace.memory_backend import MemoryBackend
from engine.workspace.tools import FILE_TOOLS, READ_LINES, ToolArgumentsError, ToolContext
from tests.support.workspaces import FailingBackend, run, workspace

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


def test_they_are_the_default_tools_but_the_sandbox() -> None:
    """02 §4.1."""
    assert set(FILE_TOOLS) == set(DEFAULT_TOOLS) - SANDBOX_TOOLS


@pytest.mark.parametrize(
    ("tool", "arguments", "required"),
    [
        ("ls", ["path"], []),
        ("read_file", ["file_path", "offset", "limit"], ["file_path"]),
        ("write_file", ["file_path", "content"], ["file_path", "content"]),
        (
            "edit_file",
            ["file_path", "old_string", "new_string", "replace_all"],
            ["file_path", "old_string", "new_string"],
        ),
        ("glob", ["pattern", "path"], ["pattern"]),
        ("grep", ["pattern", "path", "glob", "output_mode", "max_count"], ["pattern"]),
        ("copy_file", ["source", "destination", "overwrite"], ["source", "destination"]),
        ("move_file", ["source", "destination", "overwrite"], ["source", "destination"]),
        ("remove_file", ["file_path"], ["file_path"]),
        ("write_todos", ["todos"], ["todos"]),
    ],
)
def test_a_tool_is_described_with_its_own_argument_names(
    tool: str, arguments: list[str], required: list[str]
) -> None:
    parameters = FILE_TOOLS[tool].schema()["parameters"]
    assert list(parameters["properties"]) == arguments
    assert parameters.get("required", []) == required
    assert "title" not in json.dumps(parameters) and "$ref" not in json.dumps(parameters)


def test_all_schemas_together_stay_short() -> None:
    assert len(json.dumps([tool.schema() for tool in FILE_TOOLS.values()])) < 4_000


def test_the_read_description_says_that_binary_files_are_not_returned() -> None:
    """03 §22.1."""
    assert "Binary files are not returned" in FILE_TOOLS["read_file"].description


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "a"}),
        ("read_file", {"file_path": None, "path": "a"}),
        ("read_file", {"file_path": "a", "path": "b"}),
        ("ls", {"file_path": "a/.."}),
        ("grep", {"pattern": "x", "file_path": "a"}),
        ("grep", {"pattern": "x", "path": None, "glob": None, "output_mode": None, "max_count": None}),
        ("glob", {"pattern": "a", "path": None}),
        ("write_file", {"path": "a", "content": "x"}),
        ("edit_file", {"path": "a", "old_string": "x", "new_string": "y"}),
        ("remove_file", {"path": "a", "explanation": "no longer needed"}),
    ],
)
async def test_the_other_spelling_of_a_path_is_read_when_the_declared_one_is_absent_or_null(
    tool: str, arguments: dict[str, object]
) -> None:
    space = await workspace(files={"a": "x"})
    answer = (await FILE_TOOLS[tool].call(arguments, ToolContext(space))).text
    assert not answer.startswith("Error") and answer != "No files found"


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("read_file", {}, "file_path"),
        ("read_file", {"file_path": 3}, "file_path"),
        ("read_file", {"file_path": "a", "offset": "x"}, "offset"),
        ("edit_file", {"file_path": "a"}, "old_string"),
        ("grep", {"pattern": "a", "max_count": 0}, "max_count"),
        ("grep", {"pattern": "a", "output_mode": "all"}, "output_mode"),
        ("write_todos", {"todos": [{"content": "a", "status": "someday"}]}, "todos.0.status"),
        ("ls", [1], "arguments"),
        ("ls", None, "arguments"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_by_name_without_repeating_them(
    tool: str, arguments: object, named: str
) -> None:
    space = await workspace(files={"a": "x"})
    with pytest.raises(ToolArgumentsError) as refused:
        await FILE_TOOLS[tool].call(arguments, ToolContext(space))
    assert named in str(refused.value) and "someday" not in str(refused.value)


@pytest.mark.parametrize("path", ["/../../etc/hostname", "/a\x00b", "/none", "workflows/a/workflow.yaml", ""])
async def test_a_path_that_cannot_be_read_is_an_answer_naming_the_virtual_path_only(path: str) -> None:
    """H18."""
    space = await workspace()
    assert (await run(space, "read_file", file_path=path)).startswith("Error: '/")


# --- reading -------------------------------------------------------------------------------------------------------


async def test_a_model_reads_numbered_lines_and_a_script_the_text_as_it_is() -> None:
    space = await workspace(files={"a": "one\r\ntwo\n\nfour"})
    assert await run(space, "read_file", file_path="a") == "     1\tone\n     2\ttwo\n     3\t\n     4\tfour"
    script = ToolContext(space, caller="script")
    assert await run(script, "read_file", file_path="a") == "one\r\ntwo\n\nfour"
    assert await run(script, "read_file", file_path="a", offset=1, limit=1) == "two\n"


async def test_a_script_reads_a_long_file_whole() -> None:
    text = "line\n" * 50_000
    space = await workspace(files={"a": text})
    assert await run(ToolContext(space, caller="script"), "read_file", file_path="a") == text


async def test_what_a_model_was_shown_of_a_crlf_file_can_be_edited() -> None:
    """H17."""
    space = await workspace(files={"a": "one\r\ntwo\r\nthree\r\n"})
    shown = await run(space, "read_file", file_path="a", limit=2)
    copied = "\n".join(row.split("\t", 1)[1] for row in shown.splitlines()[:2])
    assert copied == "one\ntwo"
    answer = await run(space, "edit_file", file_path="a", old_string=copied, new_string="1\n2")
    assert answer == "Replaced 1 instance(s) of the string in '/a'"
    assert await space.files.read("a") == b"1\r\n2\r\nthree\r\n"


async def test_a_page_ends_with_where_to_go_on_and_the_last_one_does_not() -> None:
    space = await workspace(files={"a": "".join(f"l{number}\n" for number in range(5_000))})
    first = await run(space, "read_file", file_path="a")
    assert first.splitlines()[-1] == f"(more lines follow: continue with offset={READ_LINES})"
    assert first.splitlines()[READ_LINES - 1] == f"{READ_LINES:>6}\tl{READ_LINES - 1}"
    last = await run(space, "read_file", file_path="a", offset=4_998)
    assert last == "  4999\tl4998\n  5000\tl4999"


async def test_following_the_pages_reads_every_line_once() -> None:
    lines = [f"{number} " + "x" * 900 for number in range(300)]
    space = await workspace(files={"a": "\n".join(lines)})
    read: list[str] = []
    offset = 0
    while True:
        rows = (await run(space, "read_file", file_path="a", offset=offset)).splitlines()
        more = rows[-1].startswith("(more")
        read += [row.split("\t", 1)[1] for row in (rows[:-1] if more else rows)]
        if not more:
            break
        offset = int(rows[-1].rpartition("=")[2].rstrip(")"))
    assert read == lines


async def test_a_line_too_long_to_show_is_shown_in_part_and_stepped_over() -> None:
    space = await workspace(files={"a": "x" * 500_000 + "\nend\n"})
    answer = await run(space, "read_file", file_path="a")
    assert len(answer) < 90_000
    assert "   1.1\t" in answer and "line 1 is too long" in answer
    assert answer.endswith("(more lines follow: continue with offset=1)")


async def test_an_empty_file_and_an_offset_behind_the_end_are_told_apart() -> None:
    space = await workspace(files={"a": "", "b": "1\n2\n"})
    assert await run(space, "read_file", file_path="a") == "(the file is empty)"
    assert await run(space, "read_file", file_path="b", offset=9) == (
        "Error: line 9 is behind the end: the file has 2 lines."
    )
    assert await run(space, "read_file", file_path="b", offset=-3, limit=1) == (
        "     1\t1\n(more lines follow: continue with offset=1)"
    )


async def test_a_binary_or_missing_file_is_an_error_text_for_scripts_too() -> None:
    """03 §19.3, §22.1."""
    space = await workspace(files={"p.png": PNG})
    for context in (ToolContext(space), ToolContext(space, caller="script")):
        assert (await run(context, "read_file", file_path="p.png")).startswith(
            "Error: '/p.png' is a binary file (image/png, 108 B) and was not read; "
        )
        assert await run(context, "read_file", file_path="none") == "Error: '/none' not found."


async def test_an_image_is_shown_to_a_model_that_takes_images_and_to_no_script() -> None:
    """03 §22.2."""
    space = await workspace(files={"p.png": PNG})
    shown = await FILE_TOOLS["read_file"].call(
        {"file_path": "p.png"}, ToolContext(space, images=ImageOptions())
    )
    assert shown.text == "Image '/p.png' (image/png, 108 B) is shown below."
    assert shown.image is not None and shown.image.to_json() == {"path": "/p.png", "type": "image/png"}
    script = ToolContext(space, caller="script", images=ImageOptions())
    assert "binary file" in await run(script, "read_file", file_path="p.png")


# --- listing and searching -----------------------------------------------------------------------------------------


async def test_listings_are_one_path_a_line_folders_with_a_slash() -> None:
    space = await workspace(files={"scratchpad/b": "", "scratchpad/a/c": ""})
    assert await run(space, "ls", path="scratchpad") == "/scratchpad/a/\n/scratchpad/b"
    assert await run(space, "ls", path="large_tool_results") == "No files found"
    assert await run(space, "glob", pattern="**/*") == "/scratchpad/a/c\n/scratchpad/b"
    assert await run(space, "glob", pattern="*.none") == "No files found"


async def test_grep_answers_in_its_three_forms() -> None:
    space = await workspace(files={"b": "x\ny\nx", "a": "x"})
    assert await run(space, "grep", pattern="x") == "/a\n/b"
    assert await run(space, "grep", pattern="x", output_mode="count") == "/a: 1\n/b: 2"
    assert await run(space, "grep", pattern="x", output_mode="content") == "/a:\n  1: x\n/b:\n  1: x\n  3: x"
    assert await run(space, "grep", pattern="q") == "No matches found"


async def test_grep_takes_literal_text() -> None:
    """Ruling 23."""
    space = await workspace(files={"a": "a.c", "b": "abc"})
    assert await run(space, "grep", pattern="a.c") == "/a"


async def test_a_cut_answer_says_so() -> None:
    space = await workspace(files={"a": "x\n" * 3})
    assert "more lines match" in await run(space, "grep", pattern="x", max_count=2)
    assert "more" not in await run(space, "grep", pattern="x", max_count=3)
    many = await workspace(files={f"d/{number:05}": "" for number in range(1_200)})
    assert "more files match" in await run(many, "glob", pattern="*")


async def test_a_very_long_listing_is_cut_between_lines() -> None:
    space = await workspace(files={f"d/{number:05}-{'n' * 200}": "" for number in range(900)})
    answer = await run(space, "ls", path="d")
    assert len(answer) < 80_000
    assert answer.splitlines()[-1].endswith("more lines left out)")


async def test_a_mount_that_cannot_be_searched_does_not_hide_what_others_found() -> None:
    space = await workspace({"/m/": FailingBackend()}, {"a": "x"})
    assert await run(space, "grep", pattern="x") == (
        "/a\n(not everything was searched: the store behind '/m' failed)"
    )
    assert "/srv" not in await run(space, "glob", pattern="a")


async def test_what_the_state_may_not_see_is_in_no_answer() -> None:
    """02 §11.6, §12.6: scripts as well."""
    space = await workspace({"/skills/": MemoryBackend({"on/s": "k", "off/s": "k"})})
    for caller in ("model", "script"):
        context = ToolContext(space, visible=lambda path: not path.startswith("skills/off"), caller=caller)  # type: ignore[arg-type]
        assert await run(context, "ls", path="skills") == "/skills/on/"
        assert await run(context, "glob", pattern="**") == "/skills/on/s"
        assert await run(context, "grep", pattern="k") == "/skills/on/s"


async def test_writing_answers_with_the_canonical_path() -> None:
    space = await workspace()
    assert await run(space, "write_file", file_path="a//b", content="x") == "Updated file /a/b"


async def test_todos_are_replaced_whole_and_handed_to_the_session() -> None:
    """03 §9.10."""
    space = await workspace()
    todos = [{"content": "look", "status": "completed"}, {"content": "act"}]
    result = await FILE_TOOLS["write_todos"].call({"todos": todos}, ToolContext(space))
    assert result.todos == [
        {"content": "look", "status": "completed"},
        {"content": "act", "status": "pending"},
    ]
    assert "look" in result.text
