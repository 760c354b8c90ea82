"""Images a model is shown (03 §22.2): one line in the conversation, the picture in the request only.

The record of a read keeps path and type. On each later request the image is read again from the workspace and added
as a user message after its batch of tool results, so that no history, checkpoint, event or script ever holds it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from core.jsontext import JsonObject
from engine.workspace.backend import Failure
from engine.workspace.binary import format_size, mime_type
from engine.workspace.places import Content
from engine.workspace.router import Workspace

_OPENINGS: Final[dict[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """`max_bytes` of one image; `keep`: how many of the newest are shown, None for all."""

    max_bytes: int = 10 * 1024 * 1024
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class ShownImage:
    """What a tool message records of an image: `path` with leading slash, `mime` its type."""

    path: str
    mime: str

    def to_json(self) -> JsonObject:
        return {"path": self.path, "type": self.mime}


async def image_answer(
    workspace: Workspace, path: str, options: ImageOptions
) -> tuple[str, ShownImage | None] | None:
    """The line that answers a model's read of an image, and what to record.

    None: this is none of the four types, or no such image, and the ordinary answer stands.
    """
    mime = mime_type(path)
    place = workspace.readable(path)
    if mime not in _OPENINGS or isinstance(place, Failure):
        return None
    content = await workspace.content(place)
    if isinstance(content, Failure) or not _is(mime, content.data):
        return None
    size = len(content.data)
    if size > options.max_bytes:
        limit = format_size(options.max_bytes)
        return (
            f"Image '{place.shown}' ({mime}, {format_size(size)}) is larger than {limit} and is not shown.",
            None,
        )
    return f"Image '{place.shown}' ({mime}, {format_size(size)}) is shown below.", ShownImage(
        place.shown, mime
    )


async def image_messages(
    workspace: Workspace, batches: Sequence[Sequence[ShownImage]], options: ImageOptions
) -> list[list[JsonObject]]:
    """Content blocks of the user message that follows each batch of tool results; an empty list for none.

    `batches` holds the recorded images of a conversation, oldest first. Those beyond `keep`, and those gone, grown or
    changed into something else since, are named in text.
    """
    total = sum(len(batch) for batch in batches)
    hidden = 0 if options.keep is None else max(total - options.keep, 0)
    messages: list[list[JsonObject]] = []
    seen = 0
    for batch in batches:
        blocks: list[JsonObject] = []
        for image in batch:
            seen += 1
            if seen <= hidden:
                blocks.append(
                    _text(f"Image '{image.path}' ({image.mime}) was shown earlier and is left out here.")
                )
            else:
                blocks += await _shown(workspace, image, options)
        messages.append(blocks)
    return messages


async def _shown(workspace: Workspace, image: ShownImage, options: ImageOptions) -> list[JsonObject]:
    place = workspace.readable(image.path)
    content = place if isinstance(place, Failure) else await workspace.content(place)
    if not isinstance(content, Content) or not _is(image.mime, content.data):
        return [_text(f"Image '{image.path}' ({image.mime}) can no longer be read.")]
    if len(content.data) > options.max_bytes:
        limit = format_size(options.max_bytes)
        return [_text(f"Image '{image.path}' ({image.mime}) is now larger than {limit} and is not shown.")]
    url = f"data:{image.mime};base64,{base64.b64encode(content.data).decode('ascii')}"
    return [_text(f"Image '{image.path}':"), {"type": "image_url", "image_url": {"url": url}}]


def _is(mime: str, data: bytes) -> bool:
    if not data.startswith(_OPENINGS[mime]):
        return False
    return mime != "image/webp" or data[8:12] == b"WEBP"


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}
