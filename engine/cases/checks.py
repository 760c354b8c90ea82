"""Static checks of a workflow's cases: what `validate` says about them (06 §12)."""

from __future__ import annotations

from collections.abc import Iterator

from engine.cases.discovery import DiscoveredCase, cases_folder, discover
from engine.cases.document import CaseDocument, FixtureRef
from engine.cases.regex import RegexEngine
from engine.cases.workspace import DEFAULT_MOUNTS, fixture_path, seed_problem
from engine.governance.names import CONTROL_TOOLS
from engine.governance.zones import MountPrefixes
from engine.spec.diagnostics import Diagnostic, Severity, shown
from engine.spec.model import Spec
from engine.spec.tree import AuthoringTree


def check_cases(
    tree: AuthoringTree,
    slug: str,
    spec: Spec | None,
    *,
    mounts: MountPrefixes = DEFAULT_MOUNTS,
    engine: RegexEngine | None = None,
) -> list[Diagnostic]:
    """The diagnostics of every discovered file, in its order. Without a spec the trigger is not judged."""
    folder = cases_folder(slug)
    files = frozenset(tree.files(folder))
    found: list[Diagnostic] = []
    for case in discover(tree, folder, engine=engine):
        found.extend(_of_case(case, spec, mounts, folder, files))
    return found


def _of_case(
    case: DiscoveredCase, spec: Spec | None, mounts: MountPrefixes, folder: str, files: frozenset[str]
) -> Iterator[Diagnostic]:
    if case.doc is None:
        yield Diagnostic("error", "case.schema", case.parse_error or case.file, file=case.file)
        return
    yield from _trigger(case.doc, spec)
    for path, content in case.doc.workspace.items():
        problem = seed_problem(path, mounts)
        if problem is not None:
            yield _diagnostic(
                case.doc, "case.workspace-path", "workspace", f"{shown(path)!r} cannot be seeded: {problem}"
            )
        if isinstance(content, FixtureRef):
            yield from _fixture(case.doc, content, folder, files)
    for at, mock in enumerate(case.doc.mocks):
        if mock.tool in CONTROL_TOOLS:
            text = f"{mock.tool} is a control tool: it is never mocked, and this entry has no effect"
            yield _diagnostic(case.doc, "case.mock-control-tool", f"mocks.{at}", text, "warning")


def _trigger(doc: CaseDocument, spec: Spec | None) -> Iterator[Diagnostic]:
    if spec is None or doc.trigger in (None, "manual") or doc.trigger in spec.trigger_ids:
        return
    declared = ", ".join(spec.trigger_ids) or "none"
    text = f"no state declares the trigger {shown(doc.trigger)!r} (declared: {declared})"
    yield _diagnostic(doc, "case.unknown-trigger", "trigger", text)


def _fixture(doc: CaseDocument, ref: FixtureRef, folder: str, files: frozenset[str]) -> Iterator[Diagnostic]:
    path = fixture_path(ref.path, folder)
    if path is None:
        text = f"from: {shown(ref.path)!r} must be a relative path below tests/"
        yield _diagnostic(doc, "case.fixture-path", "workspace", text)
    elif path not in files:
        yield _diagnostic(
            doc, "case.fixture-missing", "workspace", f"the fixture {shown(path)} does not exist"
        )


def _diagnostic(
    doc: CaseDocument, id: str, field: str, text: str, severity: Severity = "error"
) -> Diagnostic:
    return Diagnostic(severity, id, f"{doc.file}: '{field}': {text}", file=doc.file, field=field)
