"""A folder of the host as a backend: links, spelling, bounds (05 §1.1, 02 OP-10, OP-11, known fault H18)."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

import engine.workspace.directory_backend as directory_backend
from engine.workspace.directory_backend import DirectoryBackend


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "root"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.txt").write_text("one\ntwo\nthree\n")
    (inside / "sub" / "b.md").write_text("needle here\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("needle secret")
    return inside


async def test_a_folder_lists_its_files_and_folders_with_sizes(root: Path) -> None:
    files = (await DirectoryBackend(root).ls("/")).get("files", [])
    assert [(item["path"], item.get("is_dir"), item.get("size")) for item in files] == [
        ("/a.txt", False, 14),
        ("/sub", True, None),
    ]
    assert files[0]["modified_at"].endswith("+00:00")


async def test_reads_are_paged_by_lines(root: Path) -> None:
    backend = DirectoryBackend(root)
    assert (await backend.read("/a.txt", 1, 1)).get("content") == "two\n"
    assert (await backend.read("/a.txt", 1, 1)).get("more") is True
    assert (await backend.read("/a.txt")).get("content") == "one\ntwo\nthree\n"


@pytest.mark.parametrize("link_to", ["../outside/secret", "a.txt", "missing", "../outside"])
async def test_no_link_is_followed_wherever_it_leads(root: Path, link_to: str) -> None:
    (root / "link").symlink_to(link_to)
    (root / "a.md").write_text("kept")
    backend = DirectoryBackend(root)
    assert (await backend.read_raw("/link")).get("error") == "is_link"
    assert (await backend.read("/link")).get("error") == "is_link"
    assert (await backend.download_files(["/link"]))[0].get("error") == "is_link"
    assert (await backend.write("/link", "x")).get("error") == "is_link"
    assert (await backend.upload_files([("/link", b"x")]))[0].get("error") == "is_link"
    assert (await backend.edit("/link", "a", "b")).get("error") == "is_link"
    assert (await backend.delete("/link")).get("error") == "is_link"
    assert (root / "link").is_symlink()
    assert (root.parent / "outside" / "secret").read_text() == "needle secret"


async def test_a_path_through_a_linked_folder_reaches_nothing(root: Path) -> None:
    (root / "out").symlink_to(root.parent / "outside")
    (root / "in").symlink_to("sub")
    backend = DirectoryBackend(root)
    for path in ("/out/secret", "/in/b.md"):
        assert (await backend.read_raw(path)).get("error") == "is_link"
    assert (await backend.write("/out/new", "x")).get("error") == "is_link"
    assert (await backend.ls("/out")).get("error") == "is_link"
    assert not (root.parent / "outside" / "new").exists()


async def test_links_are_in_no_listing_and_no_search(root: Path) -> None:
    (root / "out").symlink_to(root.parent / "outside")
    (root / "link.md").symlink_to("sub/b.md")
    backend = DirectoryBackend(root)
    assert [item["path"] for item in (await backend.ls("/")).get("files", [])] == ["/a.txt", "/sub"]
    assert [item["path"] for item in (await backend.glob("**/*")).get("files", [])] == ["/a.txt", "/sub/b.md"]
    assert [match["path"] for match in (await backend.grep("needle")).get("matches", [])] == ["/sub/b.md"]


@pytest.mark.parametrize(
    "path", ["/../outside/secret", "../outside/secret", "/sub/../../outside/secret", "/a\0b"]
)
async def test_a_path_that_climbs_or_holds_nul_is_refused(root: Path, path: str) -> None:
    assert (await DirectoryBackend(root).read_raw(path)).get("error") == "invalid_path"
    assert (await DirectoryBackend(root).write(path, "x")).get("error") == "invalid_path"


@pytest.mark.parametrize(
    "name", ["notes..v2.md", "[...slug].md", "...", "a b+c%20.md", ".hidden", "é", "e\u0301", "😀"]
)
async def test_unusual_legal_names_work(root: Path, name: str) -> None:
    """H18, H23."""
    backend = DirectoryBackend(root)
    assert await backend.write(f"/new/{name}", "x") == {"path": f"/new/{name}"}
    assert (await backend.read(f"/new/{name}")).get("content") == "x"
    assert [item["path"] for item in (await backend.ls("/new")).get("files", [])] == [f"/new/{name}"]


async def test_a_name_stored_in_another_spelling_is_not_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """02 OP-10, on a file system that answers to any case and Unicode form."""
    (root / "vault").mkdir()
    (root / "vault" / "café").write_text("k")
    real = os.stat

    def forgiving(path: object, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if isinstance(path, str) and dir_fd is not None:
            path = {"Vault": "vault", "VAULT": "vault", "cafe\u0301": "café"}.get(path, path)
        return real(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)  # type: ignore[arg-type]

    monkeypatch.setattr(directory_backend.os, "stat", forgiving)
    backend = DirectoryBackend(root)
    assert (await backend.read("/vault/café")).get("content") == "k"
    for path in ("/Vault/café", "/VAULT/café", "/vault/cafe\u0301"):
        assert (await backend.read(path)).get("error") == "file_not_found"
        assert (await backend.write(path, "x")).get("error") == "file_not_found"
    assert (root / "vault" / "café").read_text() == "k"


async def test_a_write_replaces_whole_and_leaves_nothing_else_behind(root: Path) -> None:
    backend = DirectoryBackend(root)
    (root / "a.txt").chmod(0o640)
    await backend.write("/a.txt", "new")
    await backend.write("/deep/er/c.txt", "c")
    assert (root / "a.txt").read_text() == "new"
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o640
    assert sorted(name for _, folders, files in os.walk(root) for name in [*folders, *files]) == [
        "a.txt",
        "b.md",
        "c.txt",
        "deep",
        "er",
        "sub",
    ]


async def test_a_half_written_file_of_a_dead_writer_is_not_offered(root: Path) -> None:
    (root / ".archmax-write-00").write_text("needle half")
    backend = DirectoryBackend(root)
    assert "/.archmax-write-00" not in [item["path"] for item in (await backend.ls("/")).get("files", [])]
    assert [match["path"] for match in (await backend.grep("needle")).get("matches", [])] == ["/sub/b.md"]


async def test_a_binary_typed_path_carries_base64(root: Path) -> None:
    """05 §9.1."""
    backend = DirectoryBackend(root)
    await backend.write("/p.png", base64.b64encode(b"\x89PNG\xff").decode())
    assert (root / "p.png").read_bytes() == b"\x89PNG\xff"
    assert "error" in await backend.write("/q.png", "no base64!")
    assert not (root / "q.png").exists()
    assert (await backend.read_raw("/p.png")).get("data", {}).get("content") == b"\x89PNG\xff"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/sub", "is_directory"),
        ("/", "is_directory"),
        ("/none", "file_not_found"),
        ("/none/x", "file_not_found"),
    ],
)
async def test_only_files_are_read_and_removed(root: Path, path: str, error: str) -> None:
    backend = DirectoryBackend(root)
    assert (await backend.read_raw(path)).get("error") == error
    assert (await backend.delete(path)).get("error") == error


async def test_a_file_is_no_folder(root: Path) -> None:
    backend = DirectoryBackend(root)
    assert (await backend.write("/a.txt/x", "")).get("error") == "not_a_directory"
    assert (await backend.write("/sub", "")).get("error") == "is_directory"


async def test_a_pipe_is_neither_read_nor_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    backend = DirectoryBackend(root)
    assert (await backend.read_raw("/pipe")).get("error") == "failed"
    assert "/pipe" not in [item["path"] for item in (await backend.ls("/")).get("files", [])]


async def test_a_file_beyond_the_bound_is_not_loaded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_backend, "MAX_FILE_BYTES", 10)
    assert (await DirectoryBackend(root).read_raw("/a.txt")).get("error") == "too_large"


async def test_a_walk_stops_at_its_bound_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_backend, "MAX_WALKED_ENTRIES", 2)
    assert (await DirectoryBackend(root).grep("needle")).get("truncated") is True
    assert (await DirectoryBackend(root).glob("*.md")).get("truncated") is True


async def test_an_absent_root_is_empty_until_the_first_write(tmp_path: Path) -> None:
    backend = DirectoryBackend(tmp_path / "none")
    assert (await backend.read_raw("/x")).get("error") == "file_not_found"
    assert (await backend.ls("/")).get("error") == "file_not_found"
    await backend.write("/x", "1")
    assert (tmp_path / "none" / "x").read_text() == "1"


async def test_searches_start_where_they_are_told_and_may_name_one_file(root: Path) -> None:
    backend = DirectoryBackend(root)
    assert [match["path"] for match in (await backend.grep("e", "/sub")).get("matches", [])] == ["/sub/b.md"]
    assert [match["line"] for match in (await backend.grep("t", "/a.txt")).get("matches", [])] == [2, 3]
    assert (await backend.grep("t", glob="*.md")).get("matches") == []
    assert (await backend.grep("e", max_count=1)).get("truncated") is True
    assert (await backend.grep("e", "/none")).get("error") == "file_not_found"
    assert [item["path"] for item in (await backend.glob("sub/*")).get("files", [])] == ["/sub/b.md"]


async def test_an_edit_keeps_line_endings_on_disk(root: Path) -> None:
    """H17."""
    (root / "w.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert (await DirectoryBackend(root).edit("/w.txt", "one\ntwo", "1\n2")).get("occurrences") == 1
    assert (root / "w.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


async def test_a_root_that_is_a_link_is_the_hosts_own_choice(root: Path, tmp_path: Path) -> None:
    (tmp_path / "via").symlink_to(root)
    assert (await DirectoryBackend(tmp_path / "via").read("/a.txt", 0, 1)).get("content") == "one\n"
