"""Oversized tool results, parked by the runtime (05 §1)."""

from __future__ import annotations

import pytest

from engine.workspace.mounts import build_mounts
from engine.workspace.offload import THRESHOLD_CHARS, offload, offload_path
from engine.workspace.router import Workspace
from tests.support.workspaces import memory_session_files, run


async def test_a_large_result_is_a_file_the_agent_pages_through_and_a_preview() -> None:
    files = memory_session_files()
    text = "".join(f"row {number}\n" for number in range(20_000))
    preview = await offload(files, "fetch", "call-1", text)
    assert preview is not None and len(preview) < 4_000
    assert "'/large_tool_results/call-1'" in preview
    assert "row 0\n" in preview and "row 19999" in preview
    space = Workspace(files, build_mounts({}))
    page = await run(space, "read_file", file_path="/large_tool_results/call-1", offset=19_999)
    assert page == " 20000\trow 19999"
    assert await files.read("large_tool_results/call-1") == text.encode()


async def test_a_result_up_to_the_threshold_stays() -> None:
    files = memory_session_files()
    assert await offload(files, "fetch", "c", "x" * THRESHOLD_CHARS) is None
    assert dict(files.entries()) == {}


@pytest.mark.parametrize("tool", ["read_file", "ls", "glob", "grep"])
async def test_tools_that_bound_their_own_answers_are_left_alone(tool: str) -> None:
    assert await offload(memory_session_files(), tool, "c", "x" * 100_000) is None


@pytest.mark.parametrize("call_id", ["../../checkpoints/x", "a/b", "", "x" * 500, "é\ud800", "ptc:1"])
async def test_no_call_id_leads_out_of_the_area(call_id: str) -> None:
    files = memory_session_files()
    assert await offload(files, "t", call_id, "x" * 100_000) is not None
    (path,) = files.entries()
    assert path == offload_path(call_id)
    assert path.startswith("large_tool_results/") and path.count("/") == 1 and len(path) < 150


def test_two_call_ids_have_two_files() -> None:
    assert len({offload_path(call_id) for call_id in ("a:b", "a/b", "a_b", "a b")}) == 4
