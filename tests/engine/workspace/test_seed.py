"""Seeding a session with files (05 §7, OP-10; 06 §7.3)."""

from __future__ import annotations

import pytest

from engine.workspace.memory_backend import MemoryBackend
from engine.workspace.mounts import MountTable, build_mounts
from engine.workspace.seed import SeedPathError, seed_content, seed_files, seedable_problem
from tests.support.workspaces import memory_session_files


@pytest.fixture
def mounts() -> MountTable:
    backend = MemoryBackend()
    return build_mounts(
        {"/skills/": backend, "/AGENTS.md": backend, "/data/out/": {"backend": backend, "read_only": False}}
    )


@pytest.mark.parametrize(
    "path", ["trigger.json", "/trigger.json", "a/b/c", "scratchpad/x", "data/in", "AGENTS.md.bak"]
)
def test_session_paths_and_the_scratchpad_are_seedable(path: str, mounts: MountTable) -> None:
    assert seedable_problem(path, mounts) is None


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "root"),
        ("/", "root"),
        ("a/..", "root"),
        ("../x", "escapes"),
        ("a/../../x", "escapes"),
        ("skills/a", "authored"),
        ("skills", "authored"),
        ("AGENTS.md", "authored"),
        ("./AGENTS.md", "authored"),
        ("AGENTS.md/x", "below a file"),
        ("data/out/x", "mount 'data/out'"),
        ("data", "folder of the mount"),
        ("workflows/a/workflow.yaml", "authoring plane"),
        ("workflows", "authoring plane"),
        ("checkpoints/x", "run-internal"),
        ("artifacts/x", "run-internal"),
        ("_specs/x", "run-internal"),
        ("large_tool_results/x", "run-offload"),
        ("conversation_history/x", "run-offload"),
        ("scratchpad", "folder"),
        ("a/", "folder"),
        ("a\0b", "usable"),
    ],
)
async def test_other_paths_are_refused_by_name_and_zone_and_nothing_is_written(
    path: str, said: str, mounts: MountTable
) -> None:
    files = memory_session_files()
    with pytest.raises(SeedPathError, match=said) as refused:
        await seed_files(files, {"good.txt": "x", path: "y"}, mounts)
    assert refused.value.problems[0][0] == path
    assert dict(files.entries()) == {}


async def test_every_bad_path_is_named_at_once(mounts: MountTable) -> None:
    with pytest.raises(SeedPathError) as refused:
        await seed_files(memory_session_files(), {"skills/a": "", "../b": "", "ok": ""}, mounts)
    assert [path for path, _ in refused.value.problems] == ["skills/a", "../b"]


@pytest.mark.parametrize(
    "seeds", [{"a": "", "./a": ""}, {"a": "", "a/b": ""}, {"a/b": "", "a": ""}, {"old/x": ""}]
)
async def test_two_seeds_that_cannot_both_be_there_write_nothing(
    seeds: dict[str, str], mounts: MountTable
) -> None:
    files = memory_session_files()
    await files.write("old", b"")
    with pytest.raises(SeedPathError):
        await seed_files(files, seeds, mounts)
    assert list(files.entries()) == ["old"]


async def test_an_existing_file_is_replaced(mounts: MountTable) -> None:
    files = memory_session_files()
    await seed_files(files, {"a": "1"}, mounts)
    await seed_files(files, {"/a": "2"}, mounts)
    assert await files.read("a") == b"2"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("verbatim\r\n", b"verbatim\r\n"),
        ("", b""),
        (b"\xff\0", b"\xff\0"),
        ({"b": 1, "a": ["é"]}, '{\n  "b": 1,\n  "a": [\n    "é"\n  ]\n}\n'.encode()),
        ([], b"[]\n"),
        (None, b"null\n"),
        (True, b"true\n"),
        (1.5, b"1.5\n"),
        (float("nan"), b"null\n"),
        ({"from": "x", "other": 1}, b'{\n  "from": "x",\n  "other": 1\n}\n'),
    ],
)
def test_strings_are_verbatim_and_everything_else_is_indented_json(value: object, stored: bytes) -> None:
    assert seed_content(value) == stored
