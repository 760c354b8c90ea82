"""Validating a workflow: everything that can be known without running it, in the contract's order (01 §19.1, §20).

Reads files only. Malformed values never stop it: what loads at all is judged as far as it can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from core.jsontext import JsonObject
from engine.governance.tool_paths import ToolPaths
from engine.governance.zones import MountPrefixes
from engine.spec.delegation_checks import check_delegations
from engine.spec.diagnostics import Diagnostic, message_at, shown
from engine.spec.list_checks import check_mounts, check_skills
from engine.spec.loader import WORKFLOWS, LoadedWorkflow, contract_problem, load_workflow
from engine.spec.model import RuntimeContract, Spec, State
from engine.spec.paths import slug_ok
from engine.spec.report import Report
from engine.spec.skills import SkillRegistry
from engine.spec.tool_checks import Probing, check_root_tools, check_state_tools
from engine.spec.tree import AuthoringTree
from sandbox.rewrite import forbidden_imports

#: the cases room's part: the findings about a workflow's cases
CaseChecks: TypeAlias = Callable[[AuthoringTree, str, Spec], Sequence[Diagnostic]]

_TESTS_CONFIG: Final = "tests/tests.config.js"
_HOOKS: Final = "hooks"


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """`valid` means no error; warnings fail nothing."""

    workflow: str
    valid: bool
    diagnostics: tuple[Diagnostic, ...]

    @property
    def errors(self) -> int:
        return sum(diagnostic.severity == "error" for diagnostic in self.diagnostics)

    @property
    def warnings(self) -> int:
        return len(self.diagnostics) - self.errors

    def to_json(self) -> JsonObject:
        """The object `validate --json` prints."""
        return {
            "workflow": self.workflow,
            "valid": self.valid,
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
        }


def validate_workflow(
    tree: AuthoringTree,
    slug: str,
    *,
    skills: SkillRegistry | None = None,
    mounts: MountPrefixes | None = None,
    case_checks: CaseChecks | None = None,
    tool_paths: ToolPaths | None = None,
    essential_tools: Sequence[str] = (),
) -> ValidationResult:
    """Check one workflow in full, a disabled one too.

    `skills` are the bundles of the workspace (none given: none exist), `mounts` the host's table: without one mount
    checks are silent. `tool_paths` are its tools' paths, `essential_tools` those no list needs to grant.
    """
    slug_findings = _check_slug(slug)
    loaded = load_workflow(tree, slug)
    found = [*slug_findings, *loaded.issues, *loaded.lint]
    if loaded.spec is not None:
        spec = loaded.spec
        report = Report(loaded.spec_file, loaded.source)
        registry = skills or SkillRegistry()
        _check_contract(report, spec)
        check_skills(report, spec, registry)
        if mounts is not None:
            check_mounts(report, spec, mounts)
        probing = Probing(spec, registry, mounts, tool_paths, tuple(essential_tools))
        for state in spec.states.values():
            check_state_tools(report, spec, probing, state.slug)
            _check_script(report, tree, slug, state)
        check_root_tools(report, spec, probing)
        check_delegations(report, tree, spec)
        found.extend(_not_yet_said(report.found, loaded))
        found.extend(_check_folders(tree, slug))
        found.extend(case_checks(tree, slug, spec) if case_checks is not None else ())
    return ValidationResult(slug, not any(item.severity == "error" for item in found), tuple(found))


def _check_slug(slug: str) -> list[Diagnostic]:
    if not slug:
        text = "no workflow is named"
        return [Diagnostic("error", "workflow-slug.missing", f"'workflow': {text}", field="workflow")]
    if not slug_ok(slug):
        text = f"'{shown(slug)}' is no slug: the folder's name is words of a-z 0-9 joined by '-'"
        return [Diagnostic("error", "workflow-slug.shape", f"'workflow': {text}", field="workflow")]
    return []


def _not_yet_said(findings: Sequence[Diagnostic], loaded: LoadedWorkflow) -> list[Diagnostic]:
    """Without what the shape check already said: a malformed value is read as absent, and its absence is no news."""
    if loaded.shape_held:
        return list(findings)
    malformed = {issue.field for issue in loaded.issues if issue.field and issue.id != "schema.unknown-key"}
    return [finding for finding in findings if finding.field not in malformed]


def _check_contract(report: Report, spec: Spec) -> None:
    problem = contract_problem(spec)
    if problem is not None:
        hint = f'write version: "{RuntimeContract().version}", or leave runtime out'
        report.error("contract.unsupported", ("runtime",), f"{problem}; {hint}")


def _check_script(report: Report, tree: AuthoringTree, slug: str, state: State) -> None:
    if state.type != "code" or state.script is None:
        return
    path = f"{WORKFLOWS}/{slug}/{state.script}"
    field = ("states", state.slug, "script")
    try:
        data = tree.read(path)
    except OSError as error:
        report.add("error", "code.script-not-found", field, f"the script cannot be read: {error}", file=path)
        return
    if data is None:
        near = report.perhaps(state.script, _scripts(tree, slug))
        report.add("error", "code.script-not-found", field, f"the script does not exist{near}", file=path)
        return
    for specifier in dict.fromkeys(forbidden_imports(data.decode("utf-8", "replace"))):
        report.add(
            "error",
            "code.foreign-import",
            field,
            f"import of '{shown(specifier)}': only types from '@archmax-ai/harness/*' can be imported",
            file=path,
        )


def _scripts(tree: AuthoringTree, slug: str) -> list[str]:
    """What a code state of the workflow could name."""
    folder = f"{WORKFLOWS}/{slug}/"
    try:
        return [path.removeprefix(folder) for path in tree.files(f"{folder}scripts")]
    except OSError:
        return []


def _check_folders(tree: AuthoringTree, slug: str) -> list[Diagnostic]:
    """Leftovers of older contracts in the workflow's folder."""
    found: list[Diagnostic] = []
    config = f"{WORKFLOWS}/{slug}/{_TESTS_CONFIG}"
    if _exists(tree, config):
        text = "this file is no longer read: settings of tests are the workflow's tests block; delete it"
        found.append(
            Diagnostic("error", "removed.tests-config-js", message_at(config, None, text, None, None), config)
        )
    try:
        hooks = tree.files(f"{WORKFLOWS}/{slug}/{_HOOKS}")
    except OSError:
        return found
    if hooks:
        text = f"hooks are no longer run ({len(hooks)} files): move them to scripts/ and rewrite them as code states"
        folder = f"{WORKFLOWS}/{slug}/{_HOOKS}/"
        found.append(
            Diagnostic("warning", "removed.hooks-dir", message_at(folder, None, text, None, None), folder)
        )
    return found


def _exists(tree: AuthoringTree, path: str) -> bool:
    try:
        return tree.read(path) is not None
    except OSError:
        return True
