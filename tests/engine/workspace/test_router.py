"""One tree over session files and mounts (05 §1, §9; 03 §22.1; 02 §10.5, §12.6)."""

from __future__ import annotations

import asyncio
import base64

import pytest

from engine.errors import WorkspacePathEscapeError
from engine.workspace.memory_backend import MemoryBackend
from engine.workspace.router import Workspace
from tests.support.workspaces import FailingBackend, SyncBackend, workspace


async def paths(space: Workspace, path: str = "/", hidden: tuple[str, ...] = ()) -> list[str]:
    answer = await space.ls(path, visible=lambda at: at not in hidden)
    return [item["path"] + ("/" if item.get("is_dir") else "") for item in answer.get("files", [])]


async def content(space: Workspace, path: str) -> str | bytes | None:
    return (await space.read_raw(path)).get("data", {}).get("content")


# --- paths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling", ["./skills/x", "//skills/x", "skills/./x", "/skills/x", "a/../skills/x", "skills/x/"]
)
async def test_every_spelling_of_a_path_is_one_path(spelling: str) -> None:
    """05 §1.1."""
    space = await workspace({"/skills/": MemoryBackend({"x": "here"})})
    assert (await space.read(spelling)).get("content") == "here"


@pytest.mark.parametrize("path", ["..", "/..", "a/../../b", "/../../etc/hostname"])
async def test_a_path_above_the_root_raises_before_any_backend_is_asked(path: str) -> None:
    """05 §1.1."""
    space = await workspace({"/m/": MemoryBackend()})
    for call in (
        space.ls(path),
        space.read(path),
        space.read_raw(path),
        space.write(path, ""),
        space.edit(path, "a", "b"),
        space.glob("*", path),
        space.grep("x", path),
        space.delete(path),
        space.download_files([path]),
        space.upload_files([(path, b"")]),
    ):
        with pytest.raises(WorkspacePathEscapeError):
            await call


@pytest.mark.parametrize("path", ["/a\0b", "/a\nb", "/\ud800", "/" + "x" * 256, "/x" * 3_000, "/a\x7f"])
async def test_a_path_no_store_can_hold_is_an_answer_that_can_be_shown(path: str) -> None:
    """H18."""
    space = await workspace()
    for answer in (
        await space.read(path),
        await space.write(path, "x"),
        await space.ls(path),
        await space.grep("x", path),
    ):
        assert answer.get("code") == "invalid_path"
        answer.get("error", "").encode()
        assert "\0" not in answer.get("error", "")


@pytest.mark.parametrize(
    "name", ["notes..v2.md", "[...slug]", "a b", "a+b", "100%", "%20", "é", "e\u0301", "😀", "..."]
)
async def test_legal_names_are_kept_as_they_are(name: str) -> None:
    """H18, H23."""
    space = await workspace()
    await space.write(f"scratchpad/{name}", name)
    assert await paths(space, "scratchpad") == [f"/scratchpad/{name}"]
    assert (await space.read(f"scratchpad/{name}")).get("content") == name


async def test_two_unicode_forms_of_a_name_are_two_files() -> None:
    space = await workspace()
    await space.write("é", "composed")
    await space.write("e\u0301", "decomposed")
    assert (await space.read("é")).get("content") == "composed"


@pytest.mark.parametrize("path", ["", "/", ".", "  ", "a/.."])
async def test_the_root_is_a_folder_however_it_is_spelled(path: str) -> None:
    """02 OP-21."""
    space = await workspace()
    assert (await space.read(path)).get("code") == "is_directory"
    assert (await space.write(path, "x")).get("code") == "is_directory"
    assert "/scratchpad/" in await paths(space, path)


# --- areas ---------------------------------------------------------------------------------------------------------


async def test_the_root_lists_mounts_areas_and_session_files_and_nothing_of_the_runtime() -> None:
    """05 §1, 02 §10.5."""
    space = await workspace(
        {
            "/skills/": MemoryBackend({"a": ""}),
            "/AGENTS.md": MemoryBackend({"AGENTS.md": "p"}),
            "/none.md": MemoryBackend(),
        },
        {
            "trigger.json": "{}",
            "notes/a": "",
            "checkpoints/c": "",
            "artifacts/x": "",
            "_specs/s": "",
            "workflows/w": "",
        },
    )
    assert await paths(space) == [
        "/AGENTS.md",
        "/conversation_history/",
        "/large_tool_results/",
        "/notes/",
        "/scratchpad/",
        "/skills/",
        "/trigger.json",
    ]


@pytest.mark.parametrize("area", ["checkpoints", "artifacts", "_specs"])
async def test_no_operation_reaches_the_runtimes_own_areas(area: str) -> None:
    space = await workspace(files={f"{area}/x": "secret"})
    path = f"scratchpad/../{area}/x"
    for answer in (
        await space.ls(area),
        await space.read(path),
        await space.read_raw(path),
        await space.write(path, "y"),
        await space.edit(path, "secret", "y"),
        await space.delete(path),
        await space.grep("secret", area),
        await space.glob("*", area),
    ):
        assert answer.get("code") == "permission_denied"
    assert (await space.download_files([path]))[0].get("error") == "permission_denied"
    assert (await space.upload_files([(path, b"")]))[0].get("error") == "permission_denied"
    assert await space.files.read(f"{area}/x") == b"secret"
    assert (await space.grep("secret")).get("matches") == []
    assert (await space.glob("x")).get("files") == []


@pytest.mark.parametrize("area", ["large_tool_results", "conversation_history"])
async def test_offload_areas_are_read_and_listed_but_not_written(area: str) -> None:
    space = await workspace(files={f"{area}/r": "parked"})
    assert (await space.read(f"{area}/r")).get("content") == "parked"
    assert await paths(space, area) == [f"/{area}/r"]
    for answer in (
        await space.write(f"{area}/r", "x"),
        await space.delete(f"{area}/r"),
        await space.edit(f"{area}/r", "p", "q"),
    ):
        assert answer.get("code") == "permission_denied"
        assert "scratchpad/" in answer.get("error", "")


async def test_the_authoring_plane_has_no_route() -> None:
    """02 §13."""
    space = await workspace(files={"workflows/a/workflow.yaml": "states:"})
    assert (await space.read("workflows/a/workflow.yaml")).get("code") == "file_not_found"
    assert (await space.write("workflows/a/workflow.yaml", "x")).get("code") == "permission_denied"
    assert (await space.grep("states")).get("matches") == []
    assert (await space.glob("*.yaml")).get("files") == []


# --- mounts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/skills/a", "/skills/new", "/AGENTS.md"])
async def test_a_read_only_mount_refuses_every_change_naming_the_workspace_path(path: str) -> None:
    """05 §9.2."""
    backend = MemoryBackend({"a": "old", "AGENTS.md": "old"})
    space = await workspace({"/skills/": backend, "/AGENTS.md": backend})
    for answer in (
        await space.write(path, "x"),
        await space.edit(path, "old", "x"),
        await space.delete(path),
    ):
        assert answer.get("code") == "permission_denied"
        assert path in answer.get("error", "") and "scratchpad/" in answer.get("error", "")
    assert (await space.upload_files([(path, b"x")]))[0].get("error") == "permission_denied"
    assert dict(backend.files) == {"a": b"old", "AGENTS.md": b"old"}


async def test_a_writable_mount_is_written_through_under_its_own_paths() -> None:
    backend = MemoryBackend()
    space = await workspace({"/ledger/": {"backend": backend, "read_only": False}})
    assert await space.write("/ledger/a/b.txt", "x") == {"path": "/ledger/a/b.txt"}
    assert await space.edit("/ledger/a/b.txt", "x", "y") == {"path": "/ledger/a/b.txt", "occurrences": 1}
    assert dict(backend.files) == {"a/b.txt": b"y"}
    assert await space.delete("/ledger/a/b.txt") == {"path": "/ledger/a/b.txt"}
    assert dict(backend.files) == {}
    assert dict(space.files.entries()) == {}


async def test_a_file_mount_is_that_path_alone() -> None:
    space = await workspace(
        {"/AGENTS.md": MemoryBackend({"AGENTS.md": "p", "AGENTS.md.bak": "hidden", "secret": "s"})},
        {"AGENTS.md.bak": "mine"},
    )
    assert (await space.read("AGENTS.md")).get("content") == "p"
    assert (await space.read("AGENTS.md.bak")).get("content") == "mine"
    assert (await space.read("secret")).get("code") == "file_not_found"
    assert (await space.write("AGENTS.md/x", "")).get("code") == "not_a_directory"
    assert (await space.ls("AGENTS.md")).get("code") == "not_a_directory"


async def test_mounts_are_listed_at_every_folder_above_them() -> None:
    backend = MemoryBackend({"x": ""})
    space = await workspace(
        {"/data/reports/y/": backend, "/data/f.md": MemoryBackend({"data/f.md": "1"})}, {"data/own": ""}
    )
    assert "/data/" in await paths(space)
    assert await paths(space, "data") == ["/data/f.md", "/data/own", "/data/reports/"]
    assert await paths(space, "data/reports") == ["/data/reports/y/"]
    assert await paths(space, "data/reports/y") == ["/data/reports/y/x"]
    assert (await space.write("data/reports", "x")).get("code") == "is_directory"


async def test_a_deeper_mount_hides_what_the_outer_one_has_there() -> None:
    outer = MemoryBackend({"a": "k outer", "private/a": "k shadowed"})
    inner = MemoryBackend({"b": "k inner"})
    space = await workspace({"/skills/": outer, "/skills/private/": inner})
    assert await paths(space, "skills") == ["/skills/a", "/skills/private/"]
    assert await paths(space, "skills/private") == ["/skills/private/b"]
    assert (await space.read("skills/private/a")).get("code") == "file_not_found"
    assert [item["path"] for item in (await space.glob("**/*", "skills")).get("files", [])] == [
        "/skills/a",
        "/skills/private/b",
    ]
    assert sorted(match["text"] for match in (await space.grep("k")).get("matches", [])) == [
        "k inner",
        "k outer",
    ]


async def test_an_absent_mounted_folder_is_an_empty_one() -> None:
    space = await workspace({"/skills/": SyncBackend()})
    assert (await space.ls("skills")).get("files") == []
    assert (await space.grep("x")).get("matches") == []


async def test_listing_what_is_not_there_is_an_error_and_a_file_is_no_folder() -> None:
    space = await workspace({"/m/": MemoryBackend({"f": ""})}, {"a/f": ""})
    assert (await space.ls("none")).get("code") == "file_not_found"
    assert (await space.ls("a/f")).get("code") == "not_a_directory"
    assert (await space.ls("m/f")).get("code") == "not_a_directory"
    assert (await space.ls("m/none")).get("code") == "file_not_found"


# --- hosts' backends -----------------------------------------------------------------------------------------------


async def test_a_synchronous_backend_with_the_required_methods_alone_serves_everything() -> None:
    backend = SyncBackend({"a.txt": "needle"})
    space = await workspace({"/m/": {"backend": backend, "read_only": False}})
    assert (await space.read("m/a.txt")).get("content") == "needle"
    assert await paths(space, "m") == ["/m/a.txt"]
    assert await space.write("m/b.txt", "x") == {"path": "/m/b.txt"}
    assert (await space.edit("m/b.txt", "x", "y")).get("occurrences") == 1
    assert [match["path"] for match in (await space.grep("needle")).get("matches", [])] == ["/m/a.txt"]


async def test_a_hosts_words_never_reach_the_answer() -> None:
    """05 §9.1."""
    space = await workspace({"/m/": SyncBackend(), "/n/": {"backend": FailingBackend(), "read_only": False}})
    answers = [
        await space.read("m/none"),
        await space.read("n/x"),
        await space.ls("n"),
        await space.edit("n/x", "a", "b"),
        await space.grep("x"),
        await space.glob("*"),
        await space.grep("x", "n"),
    ]
    assert answers[0].get("error") == "'/m/none' not found"
    for answer in answers:
        assert answer.get("error")
        assert "/srv" not in answer["error"] and "10.0.0.7" not in answer["error"]


async def test_download_falls_back_to_the_raw_read_and_refuses_mended_text() -> None:
    """05 §9.1."""
    space = await workspace({"/m/": SyncBackend({"t": "é", "b": b"\xff", "mended": "a\ufffdb"})})
    assert await space.download_files(["m/t", "m/b", "m/mended", "m/none"]) == [
        {"path": "m/t", "content": "é".encode(), "error": None},
        {"path": "m/b", "content": b"\xff", "error": None},
        {"path": "m/mended", "content": None, "error": "permission_denied"},
        {"path": "m/none", "content": None, "error": "file_not_found"},
    ]


async def test_upload_refuses_the_files_of_a_mount_without_it_and_takes_the_others() -> None:
    space = await workspace({"/m/": {"backend": SyncBackend(), "read_only": False}})
    answers = await space.upload_files([("m/a", b"\xff"), ("scratchpad/a", b"\xff")])
    assert [answer.get("error") for answer in answers] == ["permission_denied", None]
    assert await space.files.read("scratchpad/a") == b"\xff"


async def test_deleting_on_a_mount_without_it_is_an_answer() -> None:
    space = await workspace({"/m/": {"backend": SyncBackend({"a": ""}), "read_only": False}})
    assert (await space.delete("m/a")).get("code") == "unsupported"


async def test_a_create_only_store_is_replaced_through_edit() -> None:
    """05 OP-5."""

    class CreateOnly(SyncBackend):
        def write(self, path: str, content: str) -> dict[str, object]:
            if path in self.files:
                return {"error": f"Cannot write to {path} because it already exists"}
            return super().write(path, content)

    backend = CreateOnly({"a": "old"})
    space = await workspace({"/m/": {"backend": backend, "read_only": False}})
    assert "error" not in await space.write("m/a", "new")
    assert backend.files["/a"] == "new"


async def test_entries_a_backend_names_outside_its_mount_are_dropped() -> None:
    class Climbing(SyncBackend):
        def ls(self, path: str) -> dict[str, object]:
            return {
                "files": [{"path": "/../../etc"}, {"path": "/deep/er"}, {"path": "ok"}, {"nopath": 1}, None]
            }

    space = await workspace({"/m/": Climbing()})
    assert await paths(space, "m") == ["/m/ok"]


async def test_cancelling_a_call_cancels_the_backend_and_is_no_answer() -> None:
    entered = asyncio.Event()

    class Hanging(MemoryBackend):
        async def read_raw(self, path: str) -> object:  # type: ignore[override]
            entered.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    space = await workspace({"/m/": Hanging()})
    reading = asyncio.create_task(space.read("m/a.txt"))
    await entered.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


# --- reading and writing -------------------------------------------------------------------------------------------


async def test_reads_serve_text_only_on_every_route() -> None:
    """03 §22.1."""
    backend = MemoryBackend({"p.png": b"\x89PNG", "t.txt": b"a\0b"})
    space = await workspace(
        {"/m/": backend}, {"p.png": b"\x89PNG", "t.txt": b"\xff" * 2_000, "ok.txt": "fine"}
    )
    for path, said in {
        "p.png": "'/p.png' is a binary file (image/png, 4 B) and was not read; ",
        "t.txt": "'/t.txt' is a binary file (application/octet-stream, 2.0 KB) and was not read; ",
        "m/p.png": "'/m/p.png' is a binary file (image/png, 4 B) and was not read; ",
        "m/t.txt": "'/m/t.txt' is a binary file (application/octet-stream, 3 B) and was not read; ",
    }.items():
        answer = await space.read(path)
        assert answer.get("error", "").startswith(said)
        assert "content" not in answer
    assert await content(space, "p.png") == b"\x89PNG"
    assert (await space.read("ok.txt")).get("content") == "fine"
    assert (await space.read("none.png")).get("code") == "file_not_found"
    assert (await space.read("m/none.png")).get("code") == "file_not_found"


async def test_a_type_the_backend_reports_beats_the_extension() -> None:
    class Reporting(SyncBackend):
        def read_raw(self, path: str) -> dict[str, object]:
            return {"data": {"content": "x", "mime_type": "application/x-thing"}}

    space = await workspace({"/m/": Reporting()})
    assert "(application/x-thing, 1 B)" in (await space.read("m/a.txt")).get("error", "")


async def test_a_binary_typed_path_is_written_from_base64() -> None:
    space = await workspace()
    assert "error" not in await space.write("a.png", base64.b64encode(b"\x89\xff").decode())
    assert await space.files.read("a.png") == b"\x89\xff"
    assert "base64" in (await space.write("a.png", "plain words")).get("error", "")


async def test_half_a_surrogate_pair_is_written_as_a_replacement_character() -> None:
    """H20."""
    space = await workspace()
    await space.write("a", "x\ud800y")
    assert (await space.read("a")).get("content") == "x\ufffdy"


async def test_an_existing_file_is_replaced() -> None:
    """05 OP-5."""
    space = await workspace(files={"a": "old"})
    await space.write("a", "new")
    assert (await space.read("a")).get("content") == "new"


async def test_concurrent_edits_of_one_file_all_land() -> None:
    space = await workspace(
        files={"a": "\n".join(f"line-{number}." for number in range(40)) + "\n" + "x" * 9_000}
    )
    answers = await asyncio.gather(
        *(space.edit("a", f"line-{number}.", f"done-{number}.") for number in range(40))
    )
    assert all("error" not in answer for answer in answers)
    text = (await space.read("a")).get("content", "")
    assert all(f"done-{number}." in text for number in range(40))


async def test_an_edit_of_a_mount_keeps_line_endings() -> None:
    """H17."""
    backend = MemoryBackend({"a": "one\r\ntwo\r\nthree\r\n"})
    space = await workspace({"/m/": {"backend": backend, "read_only": False}})
    await space.edit("m/a", "one\ntwo", "1\n2")
    assert backend.files["a"] == b"1\r\n2\r\nthree\r\n"


async def test_an_edit_that_finds_nothing_changes_nothing() -> None:
    space = await workspace(files={"a": "x", "b.png": b"\x89"})
    assert "not found" in (await space.edit("a", "q", "r")).get("error", "")
    assert (await space.edit("none", "q", "r")).get("code") == "file_not_found"
    assert "binary" in (await space.edit("b.png", "q", "r")).get("error", "")


# --- searching -----------------------------------------------------------------------------------------------------


async def test_a_search_from_above_skips_an_unsearchable_mount_without_calling_it() -> None:
    """05 §9.3."""
    hidden, open_to_search = SyncBackend({"a.md": "needle"}), SyncBackend({"b.md": "needle"})
    space = await workspace(
        {"/data/slow/": {"backend": hidden, "searchable": False}, "/data/fast/": open_to_search},
        {"data/c.md": "needle"},
    )
    for root in ("/", "data"):
        assert sorted(match["path"] for match in (await space.grep("needle", root)).get("matches", [])) == [
            "/data/c.md",
            "/data/fast/b.md",
        ]
        assert [item["path"] for item in (await space.glob("*.md", root)).get("files", [])] == [
            "/data/c.md",
            "/data/fast/b.md",
        ]
    assert hidden.asked == []


@pytest.mark.parametrize("path", ["data/slow", "data/slow/sub"])
async def test_a_search_addressed_at_an_unsearchable_mount_is_answered_in_its_words(path: str) -> None:
    class Words(SyncBackend):
        def grep(self, pattern: str, path: str = "/", glob: str | None = None) -> dict[str, object]:
            if pattern == "no":
                return {"error": "searching /index needs at least 3 letters"}
            return {
                "matches": [
                    {"path": path.rstrip("/") + "/x", "line": n, "text": glob or "-"} for n in range(1, 5_000)
                ]
            }

    space = await workspace({"/data/slow/": {"backend": Words(), "searchable": False}})
    assert (await space.grep("no", path)).get("error") == "searching /index needs at least 3 letters"
    answer = await space.grep("yes", path, "[odd(glob", 7)
    assert answer.get("matches", [])[0] == {"path": f"/{path}/x", "line": 1, "text": "[odd(glob"}
    assert (len(answer.get("matches", [])), answer.get("truncated")) == (7, True)


async def test_searchable_is_ignored_on_a_file_mount() -> None:
    space = await workspace(
        {"/AGENTS.md": {"backend": MemoryBackend({"AGENTS.md": "needle"}), "searchable": False}}
    )
    assert [match["path"] for match in (await space.grep("needle")).get("matches", [])] == ["/AGENTS.md"]
    assert [item["path"] for item in (await space.glob("*.md")).get("files", [])] == ["/AGENTS.md"]


async def test_the_cap_reaches_the_store_and_a_store_that_ignores_it_is_capped() -> None:
    """05 §9.1."""
    asked: list[int | None] = []

    class Capped(MemoryBackend):
        async def grep(
            self, pattern: str, path: str = "/", glob: str | None = None, max_count: int | None = None
        ):  # type: ignore[no-untyped-def]
            asked.append(max_count)
            return await super().grep(pattern, path, glob, max_count)

    text = "x\n" * 3_000
    space = await workspace({"/a/": Capped({"f": text}), "/b/": SyncBackend({"f": text})})
    for path in ("a", "b", "/"):
        answer = await space.grep("x", path)
        assert (len(answer.get("matches", [])), answer.get("truncated")) == (1_000, True)
    assert asked[0] == 1_001
    assert (await space.grep("x", "b", None, 5)).get("truncated") is True


async def test_exactly_the_cap_over_several_sources_is_complete() -> None:
    space = await workspace(
        {"/a/": MemoryBackend({"f": "x\nx"}), "/b/": MemoryBackend({"f": "y"})}, {"s": "x"}
    )
    assert (await space.grep("x", max_count=3)).get("truncated") is False
    assert (await space.grep("x", max_count=2)).get("truncated") is True


async def test_globs_mean_paths_from_where_the_search_starts_in_mounts_too() -> None:
    space = await workspace({"/data/m/": MemoryBackend({"a/x.md": "k", "y.md": "k"})}, {"data/z.md": "k"})
    for pattern, start, expected in (
        ("data/**/*.md", "/", ["/data/m/a/x.md", "/data/m/y.md", "/data/z.md"]),
        ("m/*.md", "data", ["/data/m/y.md"]),
        ("/*.md", "data", ["/data/z.md"]),
        ("a/*.md", "data/m", ["/data/m/a/x.md"]),
        ("{m/a,q}/*.md", "data", ["/data/m/a/x.md"]),
        ("*.md", "data/m/y.md", ["/data/m/y.md"]),
    ):
        assert [item["path"] for item in (await space.glob(pattern, start)).get("files", [])] == expected
        matches = (await space.grep("k", start, pattern)).get("matches", [])
        assert sorted(match["path"] for match in matches) == expected


async def test_hidden_entries_are_in_no_listing_and_no_search() -> None:
    """02 §11.6, §12.6."""
    space = await workspace(
        {"/skills/": MemoryBackend({"on/s": "k", "off/s": "k"}), "/gone/": MemoryBackend({"s": "k"})},
        {"vault/s": "k"},
    )

    def visible(path: str) -> bool:
        return not path.startswith(("skills/off", "gone", "vault"))

    assert [item["path"] for item in (await space.ls("/", visible=visible)).get("files", [])] == [
        "/conversation_history",
        "/large_tool_results",
        "/scratchpad",
        "/skills",
    ]
    assert [item["path"] for item in (await space.ls("skills", visible=visible)).get("files", [])] == [
        "/skills/on"
    ]
    assert [item["path"] for item in (await space.glob("**/*", visible=visible)).get("files", [])] == [
        "/skills/on/s"
    ]
    assert [match["path"] for match in (await space.grep("k", visible=visible)).get("matches", [])] == [
        "/skills/on/s"
    ]


async def test_large_session_files_are_searched() -> None:
    space = await workspace(
        files={f"scratchpad/{number}": "pad\n" * 100_000 + f"needle-{number}" for number in range(10)}
    )
    assert len((await space.grep("needle")).get("matches", [])) == 10


@pytest.mark.parametrize(("needle", "glob"), [("", None), ("a\nb", None), ("a", "../x")])
async def test_a_search_that_cannot_be_meant_is_refused(needle: str, glob: str | None) -> None:
    space = await workspace()
    assert (await space.grep(needle, "/", glob)).get("error")


async def test_a_search_in_the_scratchpad_sees_only_it() -> None:
    space = await workspace({"/m/": MemoryBackend({"a": "k"})}, {"scratchpad/a": "k", "b": "k"})
    assert [match["path"] for match in (await space.grep("k", "scratchpad")).get("matches", [])] == [
        "/scratchpad/a"
    ]
    assert [match["path"] for match in (await space.grep("k", "scratchpad/a")).get("matches", [])] == [
        "/scratchpad/a"
    ]
