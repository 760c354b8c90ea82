"""Loading a workflow: one routine for assembly, `validate` and look-ups of sibling workflows.

Reads, parses, checks the shape (all issues collected), then, if the shape held, the rules across the document and the
lint. Fails closed: `usable_workflow` is the only way to a document that may run.

Contract: 01 §2, §3, §16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from core.jsontext import JsonObject
from engine.errors import UnsupportedRuntimeContractError, WorkflowLoadError
from engine.spec.diagnostics import Diagnostic
from engine.spec.document_rules import check_document
from engine.spec.frontmatter import split_frontmatter
from engine.spec.lint import lint_document
from engine.spec.model import RuntimeContract, Spec
from engine.spec.read_root import read_spec
from engine.spec.report import Report, kind_phrase
from engine.spec.tree import AuthoringTree, DirectoryTree
from engine.spec.yaml12 import YamlDocument, YamlProblem, load_yaml

WORKFLOWS: Final = "workflows"
SPEC_FILE: Final = "workflow.yaml"
PROSE_FILE: Final = "WORKFLOW.md"
SUPPORTED_CONTRACTS: Final = (RuntimeContract().name,)


@dataclass(frozen=True, slots=True)
class LoadedWorkflow:
    """What there is to know about one workflow's files.

    `spec` is the typed document, None when there is none to read; with `issues` it is best-effort (malformed parts
    stand at their defaults) and must not run. `document` is the parsed mapping, kept even when the shape is refused.
    `lint` never blocks. `body` is the text of `WORKFLOW.md`.
    """

    slug: str
    spec: Spec | None
    document: JsonObject | None
    issues: tuple[Diagnostic, ...]
    lint: tuple[Diagnostic, ...]
    body: str
    spec_file: str
    #: the document with the place of every value
    source: YamlDocument | None = None

    @property
    def usable(self) -> bool:
        return self.spec is not None and not self.issues

    @property
    def shape_held(self) -> bool:
        """Whether every value was of the right shape, so that every part of `spec` is as written."""
        return self.spec is not None and not any(
            issue.id.partition(".")[0] in ("schema", "removed") for issue in self.issues
        )


def spec_path(slug: str) -> str:
    """Where a workflow's document lies in the workspace."""
    return f"{WORKFLOWS}/{slug}/{SPEC_FILE}"


def list_workflows(tree: AuthoringTree) -> list[str]:
    """The slugs of all workflows of a workspace: folders of `workflows/` that hold a document."""
    parts = (path.split("/") for path in tree.files(WORKFLOWS))
    return sorted(part[1] for part in parts if len(part) == 3 and part[2] == SPEC_FILE)


def load_workflow(tree: AuthoringTree, slug: str) -> LoadedWorkflow:
    """Load and check one workflow. Never raises for what its files hold."""
    file = spec_path(slug)
    report = Report(file)
    if slug in ("", ".", "..") or "/" in slug:
        report.error("missing", (), f"{slug!r} names no folder of {WORKFLOWS}/")
        return _unreadable(slug, report, "")
    prose, prose_problem = _read_text(tree, f"{WORKFLOWS}/{slug}/{PROSE_FILE}")
    data, problem = read_file(tree, file)
    if data is None and problem is None:
        report.error("missing", (), _missing(tree, file, prose))
        return _unreadable(slug, report, prose)
    try:
        source = load_yaml(data or b"") if problem is None else None
    except YamlProblem as yaml_problem:
        where = f"(line {yaml_problem.line}, column {yaml_problem.column})"
        text = f"a YAML mapping is expected: {yaml_problem.message} {where}"
        issue = Diagnostic(
            "error", "not-a-mapping", f"{file}: {text}", file, None, yaml_problem.line, yaml_problem.column
        )
        return LoadedWorkflow(slug, None, None, (issue,), (), prose, file)
    if source is None:
        report.error(
            "not-a-mapping", (), f"a YAML mapping is expected, but the file cannot be read: {problem}"
        )
        return _unreadable(slug, report, prose)
    if not isinstance(source.value, dict):
        report.error("not-a-mapping", (), f"a YAML mapping is expected, not {kind_phrase(source.value)}")
        return _unreadable(slug, report, prose)
    return _check(slug, file, source, prose, prose_problem)


def _check(
    slug: str, file: str, source: YamlDocument, prose: str, prose_problem: str | None
) -> LoadedWorkflow:
    document: JsonObject = source.value
    issues, lint = Report(file, source), Report(file, source)
    spec = read_spec(issues, slug, document)
    if not issues.found:
        check_document(issues, spec)
        lint_document(lint, spec)
    prose_file = f"{WORKFLOWS}/{slug}/{PROSE_FILE}"
    beside = Report(prose_file)
    if prose_problem is not None:
        beside.error("competing-machines", (), f"it stands beside {file} and cannot be read: {prose_problem}")
    elif split_frontmatter(prose) is not None:
        beside.error(
            "competing-machines",
            (),
            f"its frontmatter competes with {file}: remove the frontmatter, {PROSE_FILE} is prose only",
        )
    return LoadedWorkflow(
        slug, spec, document, (*issues.found, *beside.found), tuple(lint.found), prose, file, source
    )


def _unreadable(slug: str, report: Report, prose: str) -> LoadedWorkflow:
    return LoadedWorkflow(slug, None, None, tuple(report.found), (), prose, report.file)


def _missing(tree: AuthoringTree, file: str, prose: str) -> str:
    obstacle = tree.obstacle(file) if isinstance(tree, DirectoryTree) else None
    if obstacle is not None:
        return f"it is {obstacle}, not a file: put the document in its place"
    text = "the file does not exist"
    if split_frontmatter(prose) is not None:
        return f"{text}: move the frontmatter of {PROSE_FILE} to {SPEC_FILE}, which is the only place for it"
    return text


def read_file(tree: AuthoringTree, path: str) -> tuple[bytes | None, str | None]:
    """The content of a file, None when there is none, and why it cannot be read."""
    try:
        return tree.read(path), None
    except OSError as error:
        return None, error.strerror or str(error)


def _read_text(tree: AuthoringTree, path: str) -> tuple[str, str | None]:
    data, problem = read_file(tree, path)
    return ("" if data is None else data.decode("utf-8", "replace").removeprefix("\ufeff")), problem


def contract_problem(spec: Spec) -> str | None:
    """Why the document's runtime contract is not served here, or None (01 §5.2)."""
    if spec.runtime.name in SUPPORTED_CONTRACTS:
        return None
    return str(UnsupportedRuntimeContractError(spec.runtime.name, SUPPORTED_CONTRACTS))


def usable_workflow(tree: AuthoringTree, slug: str) -> Spec:
    """The document of a workflow that may run.

    Raises: `WorkflowLoadError` naming the first problem, `UnsupportedRuntimeContractError`.
    """
    return usable(load_workflow(tree, slug))


def usable(loaded: LoadedWorkflow) -> Spec:
    """As `usable_workflow`, of a workflow already read."""
    if loaded.spec is None or loaded.issues:
        first = loaded.issues[0]
        more = f" (and {len(loaded.issues) - 1} more)" if len(loaded.issues) > 1 else ""
        raise WorkflowLoadError(loaded.slug, loaded.spec_file, first.message + more)
    if contract_problem(loaded.spec) is not None:
        raise UnsupportedRuntimeContractError(loaded.spec.runtime.name, SUPPORTED_CONTRACTS)
    return loaded.spec
