"""Session ids (05 §2, OP-1, OP-2; 01 §1 rule 7; 04 §5.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import SessionStoreIdError
from engine.governance.zones import MountPrefixes
from engine.workspace.session_id import (
    child_session_id,
    is_child_session_of,
    mint_session_id,
    new_session_id_rejection,
    normal_session_id,
    parent_session_id,
    require_session_id,
    session_id_rejection,
)

MOUNTS = MountPrefixes(dirs=("skills", "data/reports"), files=("AGENTS.md",))


@pytest.mark.parametrize(
    "session_id",
    [
        "a",
        "/a",
        "a/b",
        "a b",
        "a+b",
        "100%",
        "%20",
        "é",
        "😀",
        "a//b",
        "skills2",
        "a/skills",
        "a.b..c",
        "~",
        "1",
    ],
)
def test_ids_a_host_may_use(session_id: str) -> None:
    assert session_id_rejection(session_id, MOUNTS) is None
    assert require_session_id(session_id, MOUNTS) == session_id.lstrip("/")


@pytest.mark.parametrize(
    "session_id",
    [
        "",
        "/",
        "///",
        "..",
        "../x",
        "a/../b",
        "a\\..\\b",
        "a/..",
        "scratchpad",
        "/scratchpad/x",
        "large_tool_results",
        "conversation_history/x",
        "checkpoints",
        "artifacts",
        "_specs/x",
        "workflows",
        "workflows/a",
        "skills",
        "skills/x",
        "data",
        "AGENTS.md",
        "scratchpad\\x",
        "a\\b",
        "a\nb",
        "a\0",
        "a\x7f",
        "\ud800",
        "x" * 201,
    ],
)
def test_ids_that_are_refused(session_id: str) -> None:
    assert session_id_rejection(session_id, MOUNTS) is not None
    with pytest.raises(SessionStoreIdError) as refused:
        require_session_id(session_id, MOUNTS)
    assert refused.value.session_id == session_id and refused.value.reason


def test_mount_names_are_free_where_no_mount_has_them() -> None:
    assert session_id_rejection("skills") is None


@pytest.mark.parametrize("session_id", ["tenant~7", "a~1~2", "x/y~0"])
def test_a_new_session_may_not_be_named_like_a_child(session_id: str) -> None:
    assert session_id_rejection(session_id) is None
    assert new_session_id_rejection(session_id) is not None
    with pytest.raises(SessionStoreIdError):
        require_session_id(session_id, new=True)


@pytest.mark.parametrize("session_id", ["tenant~", "tenant~x", "tenant~7a", "~7"])
def test_what_only_resembles_a_childs_id_is_no_childs(session_id: str) -> None:
    assert parent_session_id(session_id) is None
    assert new_session_id_rejection(session_id) is None


def test_a_childs_id_names_its_parents_at_any_depth() -> None:
    child = child_session_id(child_session_id("p", 2), 1)
    assert child == "p~2~1"
    assert parent_session_id(child) == "p~2"
    assert parent_session_id("p") is None
    assert is_child_session_of(child, "p~2") and is_child_session_of(child, "p")
    assert not is_child_session_of(child, child)
    assert not is_child_session_of("p", "p~2")
    assert not is_child_session_of("pq~1", "p")


def test_minted_ids_are_distinct_and_usable() -> None:
    first, second = mint_session_id(), mint_session_id()
    assert first != second and first.startswith("session-")
    assert new_session_id_rejection(first, MOUNTS) is None


@given(st.text(min_size=1, max_size=30), st.integers(1, 10**9))
def test_a_child_always_finds_its_parent(parent: str, number: int) -> None:
    assert parent_session_id(child_session_id(parent, number)) == parent


@given(st.text(max_size=40))
def test_an_accepted_id_is_kept_unchanged(session_id: str) -> None:
    if session_id_rejection(session_id) is None:
        kept = normal_session_id(session_id)
        assert session_id_rejection(kept) is None and normal_session_id(kept) == kept
        kept.encode()
