"""Which content is text: by reported type, by extension, by what the bytes show (03 §22.1).

The decision over bytes is taken on a stream: a character cut by the border of two blocks is still one character.
"""

from __future__ import annotations

import codecs
from typing import Final

_BINARY_TYPES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "heif": "image/heif",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "aiff": "audio/aiff",
    "aac": "audio/aac",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "mpeg": "video/mpeg",
    "mpg": "video/mpeg",
    "mov": "video/quicktime",
    "avi": "video/x-msvideo",
    "flv": "video/x-flv",
    "wmv": "video/x-ms-wmv",
    "3gpp": "video/3gpp",
    "pdf": "application/pdf",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
_TEXT_TYPES: Final = {
    "json": "application/json",
    "js": "application/javascript",
    "mjs": "application/javascript",
    "svg": "image/svg+xml",
    "html": "text/html",
    "css": "text/css",
    "csv": "text/csv",
    "md": "text/markdown",
}
_TEXT_MIMES: Final = frozenset({"application/json", "application/javascript", "image/svg+xml"})
#: what a file is called when only its content showed that it is no text
OCTET_STREAM: Final = "application/octet-stream"


def mime_type(path: str) -> str:
    """The type a path's extension names; an unknown or missing extension is `text/plain`."""
    name = path.rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    return _BINARY_TYPES.get(extension) or _TEXT_TYPES.get(extension, "text/plain")


def is_text_type(mime: str) -> bool:
    bare = mime.partition(";")[0].strip().lower()
    return bare.startswith("text/") or bare in _TEXT_MIMES


def is_binary_path(path: str) -> bool:
    """Whether `write` to this path carries base64 (05 §9.1)."""
    return not is_text_type(mime_type(path))


def binary_type(path: str, reported: str | None, content: str | bytes) -> str | None:
    """The type to name when the content is not served as text, None when it is.

    A reported type beats the extension; bytes that are UTF-8 without NUL count as the text they are.
    """
    named = reported or mime_type(path)
    if not is_text_type(named):
        return named
    if isinstance(content, bytes):
        return None if is_text(content) else OCTET_STREAM
    return OCTET_STREAM if "\0" in content else None


def is_text(data: bytes) -> bool:
    """Whether the bytes are UTF-8 without NUL."""
    probe = TextProbe()
    return probe.feed(data) and probe.end()


class TextProbe:
    """Decides block by block. Once an answer is False it stays so."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._text = True

    def feed(self, block: bytes) -> bool:
        """Whether everything so far can be text."""
        if self._text:
            try:
                self._text = "\0" not in self._decoder.decode(block)
            except UnicodeDecodeError:
                self._text = False
        return self._text

    def end(self) -> bool:
        """Whether the whole was text: no character is left unfinished."""
        if self._text:
            try:
                self._decoder.decode(b"", final=True)
            except UnicodeDecodeError:
                self._text = False
        return self._text


def format_size(size: int) -> str:
    """`512 B`, `24.1 KB`, `3.2 MB`."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KB", "MB", "GB"):
        amount /= 1024
        if round(amount, 1) < 1024 or unit == "GB":
            return f"{amount:.1f} {unit}"
    raise AssertionError("unreachable: the last unit takes every size")


def binary_notice(path: str, mime: str, size: int | None, hint: str = "") -> str:
    """The answer to a text read of a binary file, without the `Error: ` in front. `path` as the agent writes it."""
    details = f"{mime}, {format_size(size)}" if size is not None else mime
    advice = hint or "use copy_file or move_file to place it, or a tool made for this type"
    return f"'{path}' is a binary file ({details}) and was not read; {advice}."
