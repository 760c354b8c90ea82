"""Text or binary (03 §22.1)."""

from __future__ import annotations

import pytest

from engine.workspace.binary import (
    TextProbe,
    binary_notice,
    binary_type,
    format_size,
    is_text,
    is_text_type,
    mime_type,
)

BINARY = [
    "png",
    "jpg",
    "jpeg",
    "gif",
    "webp",
    "heic",
    "heif",
    "mp3",
    "wav",
    "aiff",
    "aac",
    "ogg",
    "flac",
    "mp4",
    "webm",
    "mpeg",
    "mpg",
    "mov",
    "avi",
    "flv",
    "wmv",
    "3gpp",
    "pdf",
    "ppt",
    "pptx",
]


@pytest.mark.parametrize("extension", BINARY)
def test_every_listed_extension_is_binary_in_any_case(extension: str) -> None:
    assert not is_text_type(mime_type(f"a/b.{extension}"))
    assert not is_text_type(mime_type(f"a/b.{extension.upper()}"))


@pytest.mark.parametrize(
    "name", ["a.json", "a.js", "a.svg", "a.md", "a.csv", "a.unknown", "a", ".env", "a.tar.gz", "png"]
)
def test_text_extensions_and_unknown_ones_count_as_text(name: str) -> None:
    assert is_text_type(mime_type(name))


@pytest.mark.parametrize(
    ("mime", "text"),
    [
        ("text/plain", True),
        ("text/x-anything; charset=utf-8", True),
        ("application/json", True),
        ("application/javascript", True),
        ("image/svg+xml", True),
        ("application/xml", False),
        ("image/png", False),
        ("application/octet-stream", False),
    ],
)
def test_text_types_are_the_listed_ones(mime: str, text: bool) -> None:
    assert is_text_type(mime) is text


@pytest.mark.parametrize(
    ("path", "reported", "content", "named"),
    [
        ("a.txt", None, b"plain", None),
        ("a.txt", None, "plain", None),
        ("a.txt", None, b"nul\0", "application/octet-stream"),
        ("a.txt", None, "nul\0", "application/octet-stream"),
        ("a.txt", None, b"caf\xe9", "application/octet-stream"),
        ("a.pdf", None, "text", "application/pdf"),
        ("a.pdf", "text/plain", "text", None),
        ("a.txt", "image/png", "text", "image/png"),
    ],
)
def test_the_reported_type_beats_the_extension_and_content_decides_last(
    path: str, reported: str | None, content: str | bytes, named: str | None
) -> None:
    assert binary_type(path, reported, content) == named


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_character_cut_by_a_block_border_is_still_text(cut: int) -> None:
    data = "aé漢😀z".encode()
    probe = TextProbe()
    assert probe.feed(data[:cut])
    assert probe.feed(data[cut:])
    assert probe.end()


def test_a_text_that_ends_inside_a_character_is_none() -> None:
    assert not is_text("é".encode()[:1])
    assert is_text("é".encode())
    assert is_text(b"")


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (24_678, "24.1 KB"),
        (3_355_443, "3.2 MB"),
        (1_048_575, "1.0 MB"),
        (5 * 1024**4, "5120.0 GB"),
    ],
)
def test_sizes_are_shown_as_people_write_them(size: int, shown: str) -> None:
    assert format_size(size) == shown


def test_the_notice_names_path_type_and_size_when_known() -> None:
    assert binary_notice("/a.png", "image/png", 512).startswith(
        "'/a.png' is a binary file (image/png, 512 B) and was not read; "
    )
    assert "(image/png) and" in binary_notice("/a.png", "image/png", None)
