"""The tree of files in memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.workspace.tree import FileTree

_PATHS = st.lists(
    st.tuples(
        st.sampled_from(["set", "remove"]),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join),
    ),
    max_size=25,
)


@given(_PATHS)
def test_it_lists_exactly_what_a_plain_mapping_would(steps: list[tuple[str, str]]) -> None:
    tree: FileTree[int] = FileTree()
    plain: dict[str, int] = {}
    for number, (step, path) in enumerate(steps):
        if step == "remove":
            assert tree.remove(path) is (plain.pop(path, None) is not None)
        else:
            is_folder = any(file.startswith(path + "/") for file in plain)
            below_file = any(path.startswith(file + "/") for file in plain)
            assert (tree.obstacle(path) is None) is not (is_folder or below_file)
            if tree.obstacle(path) is None:
                tree.set(path, number)
                plain[path] = number
    assert dict(tree.files) == plain
    assert list(tree.walk("")) == sorted(plain.items(), key=lambda item: item[0].split("/"))
    for folder in {
        "",
        *("/".join(path.split("/")[:depth]) for path in plain for depth in range(1, path.count("/") + 1)),
    }:
        prefix = folder + "/" if folder else ""
        assert tree.is_folder(folder)
        assert tree.names(folder) == sorted(
            {path[len(prefix) :].partition("/")[0] for path in plain if path.startswith(prefix)}
        )
