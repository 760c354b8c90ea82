"""A tree of files kept in memory: path → value, with folders that exist exactly as long as something lies in them.

Paths are canonical text without leading slash (`core.paths`). Every operation costs the depth of its path or the size
of its answer, never the size of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class FileTree(Generic[T]):
    """`children[folder]` holds the names directly in it; the root is the empty text."""

    def __init__(self, files: Mapping[str, T] | None = None) -> None:
        self._files: dict[str, T] = {}
        self._children: dict[str, set[str]] = {"": set()}
        for path, value in (files or {}).items():
            self.set(path, value)

    @property
    def files(self) -> Mapping[str, T]:
        return self._files

    def get(self, path: str) -> T | None:
        return self._files.get(path)

    def is_folder(self, path: str) -> bool:
        return path in self._children

    def obstacle(self, path: str) -> str | None:
        """Why no file can be put at `path`: `is_directory`, or `not_a_directory` when a parent is a file."""
        if path in self._children:
            return "is_directory"
        parent = path.rpartition("/")[0]
        while parent:
            if parent in self._files:
                return "not_a_directory"
            parent = parent.rpartition("/")[0]
        return None

    def set(self, path: str, value: T) -> None:
        """Put a file, creating its folders. The caller asked `obstacle` first."""
        self._files[path] = value
        child = path
        while child:
            parent, _, name = child.rpartition("/")
            names = self._children.get(parent)
            if names is None:
                names = self._children[parent] = set()
            elif name in names:
                break
            names.add(name)
            child = parent

    def remove(self, path: str) -> bool:
        """Take a file out, and with it the folders that are empty then. False when there is none."""
        if self._files.pop(path, None) is None:
            return False
        child = path
        while child:
            parent, _, name = child.rpartition("/")
            names = self._children[parent]
            names.discard(name)
            if names or not parent:
                break
            del self._children[parent]
            child = parent
        return True

    def names(self, folder: str) -> list[str]:
        """The names directly in `folder`, sorted; empty when it is no folder."""
        return sorted(self._children.get(folder, ()))

    def walk(self, folder: str) -> Iterator[tuple[str, T]]:
        """Every file at or below `folder`, sorted segment by segment."""
        if (value := self._files.get(folder)) is not None:
            yield folder, value
            return
        waiting = [folder]
        while waiting:
            at = waiting.pop()
            if (value := self._files.get(at)) is not None:
                yield at, value
                continue
            names = sorted(self._children.get(at, ()), reverse=True)
            waiting.extend(f"{at}/{name}" if at else name for name in names)
