"""Images a model is shown (03 §22.2)."""

from __future__ import annotations

import base64

import pytest

from engine.workspace.images import ImageOptions, ShownImage, image_answer, image_messages
from engine.workspace.memory_backend import MemoryBackend
from tests.support.workspaces import workspace

PICTURES = {
    "a.png": (b"\x89PNG\r\n\x1a\n...", "image/png"),
    "b.jpg": (b"\xff\xd8\xff...", "image/jpeg"),
    "b.JPEG": (b"\xff\xd8\xff...", "image/jpeg"),
    "c.gif": (b"GIF89a...", "image/gif"),
    "d.webp": (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
}
PNG = PICTURES["a.png"][0]
SHOWN = ShownImage("/a.png", "image/png")


@pytest.mark.parametrize("name", PICTURES)
async def test_the_four_types_are_answered_in_one_line_from_session_and_mount(name: str) -> None:
    data, mime = PICTURES[name]
    space = await workspace({"/m/": MemoryBackend({name: data})}, {name: data})
    for path in (f"/{name}", f"/m/{name}"):
        answer = await image_answer(space, path, ImageOptions())
        assert answer == (f"Image '{path}' ({mime}, {len(data)} B) is shown below.", ShownImage(path, mime))


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("a.heic", b"heic"),
        ("a.pdf", b"%PDF"),
        ("a.txt", b"text"),
        ("a.png", b"no picture at all"),
        ("a.webp", b"RIFF\0\0\0\0WAVE"),
        ("checkpoints/a.png", PNG),
    ],
)
async def test_everything_else_keeps_its_ordinary_answer(path: str, data: bytes) -> None:
    space = await workspace(files={path: data})
    assert await image_answer(space, path, ImageOptions()) is None
    assert await image_answer(space, "missing.png", ImageOptions()) is None


async def test_an_image_over_the_bound_is_answered_with_a_line_saying_so() -> None:
    space = await workspace(files={"a.png": PNG})
    answer = await image_answer(space, "a.png", ImageOptions(max_bytes=5))
    assert answer is not None and answer[1] is None
    assert "larger than 5 B" in answer[0]


async def test_the_picture_is_read_again_for_each_request() -> None:
    space = await workspace(files={"a.png": PNG})
    first = await image_messages(space, [[SHOWN]], ImageOptions())
    assert first[0][-1]["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()
    await space.files.write("a.png", PNG + b"changed")
    second = await image_messages(space, [[SHOWN]], ImageOptions())
    assert second[0][-1]["image_url"]["url"].endswith(base64.b64encode(PNG + b"changed").decode())


async def test_older_images_than_are_kept_are_named_in_text() -> None:
    space = await workspace(files={"a.png": PNG})
    messages = await image_messages(space, [[SHOWN, SHOWN], [], [SHOWN]], ImageOptions(keep=1))
    assert [[block["type"] for block in blocks] for blocks in messages] == [
        ["text", "text"],
        [],
        ["text", "image_url"],
    ]
    none = await image_messages(space, [[SHOWN]], ImageOptions(keep=0))
    assert [block["type"] for block in none[0]] == ["text"]


@pytest.mark.parametrize("now", [None, b"text now", PNG + b"x" * 100])
async def test_a_deleted_changed_or_grown_image_is_named_and_the_call_goes_on(now: bytes | None) -> None:
    space = await workspace(files={} if now is None else {"a.png": now})
    (blocks,) = await image_messages(space, [[SHOWN]], ImageOptions(max_bytes=50))
    assert [block["type"] for block in blocks] == ["text"]
    assert "'/a.png'" in blocks[0]["text"]
