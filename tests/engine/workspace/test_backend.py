"""Calling any backend, and what its errors become (05 §9.1)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.workspace.backend import (
    ERROR_CODES,
    BackendError,
    accepts_max_count,
    ask,
    ask_many,
    classify,
    explain,
)
from engine.workspace.memory_backend import MemoryBackend
from tests.support.workspaces import SyncBackend


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileNotFoundError(2, "No such file or directory", "/srv/x"), "file_not_found"),
        (IsADirectoryError(21, "Is a directory"), "is_directory"),
        (NotADirectoryError(20, "Not a directory"), "not_a_directory"),
        (PermissionError(13, "Permission denied"), "permission_denied"),
        (FileExistsError(17, "File exists"), "already_exists"),
        (OSError(40, "Too many levels of symbolic links"), "is_link"),
        (OSError(36, "File name too long"), "invalid_path"),
        (OSError(5, "Input/output error"), "failed"),
        (NotImplementedError(), "unsupported"),
        (BackendError("too_large"), "too_large"),
        (ValueError("Path traversal not allowed"), "permission_denied"),
        ("File '/srv/x' not found", "file_not_found"),
        ("Path '/none': path_not_found", "file_not_found"),
        ("Path '/f': not_a_directory", "not_a_directory"),
        ("ENOENT: no such file or directory, open '/srv/x'", "file_not_found"),
        ("Cannot write to /x because it already exists", "already_exists"),
        ("file_not_found", "file_not_found"),
        ("anything else", "failed"),
    ],
)
def test_an_error_becomes_one_of_a_few_codes(error: str | BaseException, code: str) -> None:
    assert classify(error) == code


@pytest.mark.parametrize("code", sorted(ERROR_CODES))
def test_every_code_has_a_sentence_with_the_virtual_path(code: str) -> None:
    assert "'/a/b'" in explain(code, "/a/b")  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [None, "text", [], 3])
async def test_an_answer_of_no_known_shape_is_a_failure(answer: object) -> None:
    assert await ask(lambda: answer) == ({}, "failed")


def no_answer(_batch: Sequence[object]) -> list[object]:
    return []


def shapeless_answers(batch: Sequence[object]) -> list[object]:
    return [None for _ in batch]


def takes_anything(*_args: object, **_rest: object) -> None:
    return None


async def test_several_answers_must_be_one_for_each_file() -> None:
    assert await ask_many(no_answer, ["/a"]) == ([], "failed")
    assert await ask_many(shapeless_answers, ["/a"]) == ([{"error": "failed"}], None)


async def test_a_function_that_returns_an_awaitable_is_awaited() -> None:
    backend = MemoryBackend({"a": "x"})

    def read(path: str) -> object:
        return backend.read(path)

    answer, code = await ask(read, "/a")
    assert (answer["content"], code) == ("x", None)


def test_whether_a_search_takes_the_cap_is_read_off_its_signature() -> None:
    assert accepts_max_count(MemoryBackend().grep)
    assert not accepts_max_count(SyncBackend().grep)
    assert accepts_max_count(takes_anything)
