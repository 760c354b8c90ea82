"""Finding a workflow's cases and the model scripts beside them (06 §1, 09 §1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.cases.document import CASE_SUFFIXES, CaseDocument, CaseSchemaError, case_id, is_case_file
from engine.cases.parse import parse_case_document
from engine.cases.regex import RegexEngine
from engine.models.script import ModelScript
from engine.spec.tree import AuthoringTree

#: a leftover of an older format: its presence is an error wherever cases are looked for
CONFIG_FILE: Final = "tests.config.js"


@dataclass(frozen=True, slots=True)
class DiscoveredCase:
    """A case file: its document, or why it is none."""

    file: str
    id: str
    doc: CaseDocument | None = None
    parse_error: str | None = None

    def selected(self, wanted: str | None) -> bool:
        """Whether a filter lets the case through: a plain part of its id, case-sensitive."""
        return wanted is None or wanted in self.id


def cases_folder(workflow: str) -> str:
    return f"workflows/{workflow}/tests"


def has_config_file(tree: AuthoringTree, workflow: str) -> bool:
    return tree.read(f"{cases_folder(workflow)}/{CONFIG_FILE}") is not None


def discover(tree: AuthoringTree, folder: str, *, engine: RegexEngine | None = None) -> list[DiscoveredCase]:
    """Every case below `folder`, in code-point order of its path. One that cannot be read is told, never raised."""
    return [
        _discovered(tree, path, folder, engine) for path in sorted(tree.files(folder)) if is_case_file(path)
    ]


def _discovered(tree: AuthoringTree, path: str, folder: str, engine: RegexEngine | None) -> DiscoveredCase:
    identity = case_id(path, folder)
    try:
        source = tree.read(path)
        if source is None:
            return DiscoveredCase(path, identity, parse_error=f"{path}: the file cannot be read")
        return DiscoveredCase(path, identity, parse_case_document(path, source, folder, engine=engine))
    except CaseSchemaError as error:
        return DiscoveredCase(path, identity, parse_error=str(error))
    except OSError as error:
        return DiscoveredCase(
            path, identity, parse_error=f"{path}: the file cannot be read: {error.strerror or error}"
        )


def script_path(case_file: str) -> str:
    """Where a case's model script lies: beside it, named like it (ruling 19)."""
    for suffix in CASE_SUFFIXES:
        if case_file.endswith(suffix):
            return case_file.removesuffix(suffix) + ".model.yaml"
    return case_file + ".model.yaml"


def case_script(tree: AuthoringTree, case_file: str) -> ModelScript | None:
    """A case's own model script. Raises: `ModelScriptError`; its case fails as an unparseable one does."""
    path = script_path(case_file)
    source = tree.read(path)
    return None if source is None else ModelScript.parse(path, source)
