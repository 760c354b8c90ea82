"""The workspace's workflows as one assembly reads them: specs loaded once and read again when their files change."""

from __future__ import annotations

import time
from dataclasses import dataclass

from engine.errors import UnsupportedRuntimeContractError, WorkflowLoadError
from engine.spec.loader import LoadedWorkflow, load_workflow, read_file, spec_path, usable
from engine.spec.model import Spec
from engine.spec.spec_hash import spec_hash
from engine.spec.tree import AuthoringTree

#: a workflow's files are looked at again at most this often
FRESH_SECONDS = 1.0


@dataclass
class _Held:
    looked: float
    content: tuple[bytes | None, str | None]
    loaded: LoadedWorkflow


class WorkflowLibrary:
    """Specs by slug over one authoring tree. Cheap to ask: a file is read at most once a second."""

    def __init__(self, tree: AuthoringTree) -> None:
        self.tree = tree
        self._held: dict[str, _Held] = {}

    def load(self, slug: str) -> LoadedWorkflow:
        now = time.monotonic()
        held = self._held.get(slug)
        if held is not None and now - held.looked < FRESH_SECONDS:
            return held.loaded
        content = read_file(self.tree, spec_path(slug))
        if held is None or held.content != content:
            held = _Held(now, content, load_workflow(self.tree, slug))
            self._held[slug] = held
        held.looked = now
        return held.loaded

    def require(self, slug: str) -> Spec:
        """Raises: `WorkflowLoadError`, `UnsupportedRuntimeContractError`."""
        return usable(self.load(slug))

    def usable(self, slug: str) -> Spec | None:
        """The spec of a workflow that may run, or None."""
        try:
            return self.require(slug) if self.load(slug).usable else None
        except (WorkflowLoadError, UnsupportedRuntimeContractError):
            return None

    def body(self, slug: str) -> str:
        return self.load(slug).body

    def hash(self, spec: Spec) -> str:
        return spec_hash(spec.document)
