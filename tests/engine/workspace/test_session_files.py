"""Session files as part of the fold: 05 §1, the design's Files; growth as in known fault H15."""

from __future__ import annotations

import json

import pytest

from core.jsontext import JsonObject
from engine.workspace.session_files import (
    INLINE_BYTES,
    BlobMissingError,
    FileRef,
    FoldedSessionFiles,
    SessionFileError,
)
from tests.support.workspaces import MemoryBlobs, memory_session_files


class Opened:
    """An open session: its blobs, and every change it recorded."""

    def __init__(self, entries: dict[str, FileRef] | None = None) -> None:
        self.blobs = MemoryBlobs()
        self.changes: list[JsonObject] = []
        self.now = 1_000
        self.files = FoldedSessionFiles(
            entries or {},
            put_blob=self.blobs.put,
            get_blob=self.blobs.get,
            record=self.changes.append,
            clock=lambda: self.now,
        )

    def refolded(self) -> FoldedSessionFiles:
        """The same session, opened again from what was recorded and survived JSON."""
        fold: dict[str, JsonObject] = {}
        for change in json.loads(json.dumps(self.changes)):
            for path, ref in change["set"].items():
                if ref is None:
                    fold.pop(path, None)
                else:
                    fold[path] = ref
        return FoldedSessionFiles.from_json(
            fold, put_blob=self.blobs.put, get_blob=self.blobs.get, record=lambda _change: None
        )


async def test_small_text_stands_in_the_change_itself() -> None:
    session = Opened()
    await session.files.write("scratchpad/a", "grüße\r\n".encode())
    assert session.changes == [
        {"t": "files", "set": {"scratchpad/a": {"size": 9, "modified": 1_000, "text": "grüße\r\n"}}}
    ]
    assert session.blobs.bodies == {}


async def test_small_bytes_that_are_no_text_stand_in_the_change_as_base64() -> None:
    session = Opened()
    await session.files.write("a.bin", b"\xff\x00")
    assert session.changes[0]["set"]["a.bin"] == {"size": 2, "modified": 1_000, "data": "/wA="}


async def test_content_over_the_inline_size_is_a_blob_named_by_its_digest() -> None:
    session = Opened()
    await session.files.write("edge", b"x" * INLINE_BYTES)
    await session.files.write("big", b"x" * (INLINE_BYTES + 1))
    first, second = (next(iter(change["set"].values())) for change in session.changes)
    assert "text" in first
    assert second["blob"] in session.blobs.bodies


async def test_what_was_written_is_read_again_after_the_session_is_opened_from_its_records() -> None:
    session = Opened()
    contents = {"a": b"text", "b": b"\xff\xfe", "c/d": b"y" * 20_000, "empty": b""}
    for path, data in contents.items():
        await session.files.write(path, data)
    await session.files.remove("a")
    reopened = session.refolded()
    assert await reopened.read("a") is None
    assert {path: await reopened.read(path) for path in ("b", "c/d", "empty")} == {
        path: contents[path] for path in ("b", "c/d", "empty")
    }


async def test_a_copy_stores_no_content_again() -> None:
    """05 §10.1; H15: bytes stored stay near the unique content."""
    session = Opened()
    await session.files.write("big", b"z" * 1_000_000)
    for number in range(50):
        await session.files.copy("big", f"copies/{number}")
    assert len(session.blobs.bodies) == 1
    assert sum(len(json.dumps(change)) for change in session.changes) < 20_000
    assert await session.files.read("copies/49") == b"z" * 1_000_000


async def test_a_copy_is_not_changed_when_its_source_is() -> None:
    files = memory_session_files()
    await files.write("a", b"1")
    await files.copy("a", "b")
    await files.write("a", b"2")
    assert await files.read("b") == b"1"


async def test_removing_tells_whether_there_was_a_file_and_records_only_then() -> None:
    session = Opened()
    assert await session.files.remove("a") is False
    assert session.changes == []
    await session.files.write("a", b"")
    assert await session.files.remove("a") is True
    assert session.changes[-1] == {"t": "files", "set": {"a": None}}


async def test_a_file_and_a_folder_cannot_share_a_path() -> None:
    files = memory_session_files()
    await files.write("a/b", b"")
    with pytest.raises(SessionFileError) as folder:
        await files.write("a", b"")
    with pytest.raises(SessionFileError) as below:
        await files.write("a/b/c", b"")
    assert (folder.value.problem, below.value.problem) == ("is_directory", "not_a_directory")
    await files.remove("a/b")
    await files.write("a", b"")  # the folder went with its last file


async def test_missing_content_is_damage_and_not_an_absent_file() -> None:
    session = Opened()
    await session.files.write("big", b"x" * 10_000)
    session.blobs.bodies.clear()
    with pytest.raises(BlobMissingError):
        await session.files.read("big")


@pytest.mark.parametrize(
    "body", [None, [], {}, {"size": 1, "modified": 1}, {"size": "1", "modified": 1, "text": ""}]
)
async def test_a_malformed_reference_reads_as_absent(body: object) -> None:
    """05 §7.1."""
    blobs = MemoryBlobs()
    files = FoldedSessionFiles.from_json(
        {"a": body, "b": {"size": 0, "modified": 0, "text": ""}},
        put_blob=blobs.put,
        get_blob=blobs.get,
        record=lambda _change: None,
    )
    assert list(files.entries()) == ["b"]


@pytest.mark.parametrize(
    "ref",
    [
        FileRef(1, 2, text="x"),
        FileRef(1, 2, data=b"\xff"),
        FileRef(9_000, 2, blob="ab"),
        FileRef(0, 2, text=""),
    ],
)
def test_a_reference_survives_json(ref: FileRef) -> None:
    assert FileRef.from_json(json.loads(json.dumps(ref.to_json()))) == ref
