"""Checks of sub-workflow calls: the targets a workflow names, and the chains it can reach (01 §19.3, 04 §13)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from engine.governance.names import DELEGATION_PREFIX
from engine.spec.diagnostics import shown
from engine.spec.document_rules import MANUAL
from engine.spec.loader import LoadedWorkflow, contract_problem, list_workflows, load_workflow
from engine.spec.model import Spec
from engine.spec.paths import slug_ok
from engine.spec.report import Report
from engine.spec.tree import AuthoringTree
from engine.spec.yaml12 import Path

MAX_DEPTH: Final = 3
_LONGEST_CHAIN_SHOWN: Final = 8
_FIELD: Final[Path] = ("states",)


def reachable_states(spec: Spec) -> frozenset[str]:
    """The closure from all start states over transitions and `on_error` (01 §14)."""
    todo = [slug for slug, state in spec.states.items() if state.triggers]
    seen = set(todo)
    while todo:
        state = spec.states[todo.pop()]
        for target in (*(edge.to for edge in state.transitions), state.on_error):
            if target is not None and target in spec.states and target not in seen:
                seen.add(target)
                todo.append(target)
    return frozenset(seen)


def delegation_targets(spec: Spec) -> dict[str, Path]:
    """The workflows this one may call → where it first says so: `allow_always` and reachable states' allow lists."""
    found: dict[str, Path] = {}
    for path, tool in _granted(spec):
        if tool.startswith(DELEGATION_PREFIX):
            found.setdefault(tool.removeprefix(DELEGATION_PREFIX), path)
    return found


def _granted(spec: Spec) -> Iterator[tuple[Path, str]]:
    for index, entry in enumerate(spec.tools_allow_always or ()):
        yield ("tools", "allow_always", index), entry.tool
    reachable = reachable_states(spec)
    for slug, state in spec.states.items():
        if slug in reachable:
            for index, entry in enumerate(state.tools_allow):
                yield ("states", slug, "tools", "allow", index), entry.tool


def check_delegations(report: Report, tree: AuthoringTree, spec: Spec) -> None:
    """Every target named here, then the chains over what each workflow may call."""
    siblings = _Siblings(tree, spec)
    targets = delegation_targets(spec)
    for slug, at in targets.items():
        name = shown(slug)
        if not slug_ok(slug):
            text = f"'{DELEGATION_PREFIX}{name}' names no workflow: a slug is words of a-z 0-9 joined by '-'"
            report.add("error", "delegation.slug", _FIELD, text, at=at)
        elif slug != spec.slug:
            _check_target(report, siblings, slug, at)
    _check_chains(report, spec, siblings, targets)


def _check_target(report: Report, siblings: _Siblings, slug: str, at: Path) -> None:
    target, name = siblings.load(slug), shown(slug)
    if target.spec is None or target.issues:
        text = f"sub-workflow '{name}' cannot be used: {target.issues[0].message}"
        if target.issues[0].id == "missing":
            text += f"; {report.meant(slug, siblings.known, 'workflows')}"
        report.add("error", "delegation.missing", _FIELD, text, at=at)
        return
    problem = contract_problem(target.spec)
    if problem is not None:
        report.add(
            "error", "delegation.missing", _FIELD, f"sub-workflow '{name}' cannot be used: {problem}", at=at
        )
    if target.spec.trigger(MANUAL) is None:
        text = f"sub-workflow '{name}' declares no trigger '{MANUAL}', by which it would be called"
        report.add("error", "delegation.no-manual", _FIELD, text, at=at)
    if target.spec.disabled:
        text = f"sub-workflow '{name}' is disabled: calls of it are refused"
        report.add("warning", "delegation.disabled-target", _FIELD, text, at=at)


class _Siblings:
    """Workflows of the workspace, each loaded once."""

    def __init__(self, tree: AuthoringTree, spec: Spec) -> None:
        self._tree = tree
        self._loaded: dict[str, LoadedWorkflow] = {}
        self._calls: dict[str, list[str]] = {
            spec.slug: [slug for slug in delegation_targets(spec) if slug_ok(slug)]
        }

    @cached_property
    def known(self) -> list[str]:
        """The workflows there are."""
        return list_workflows(self._tree)

    def load(self, slug: str) -> LoadedWorkflow:
        if slug not in self._loaded:
            self._loaded[slug] = load_workflow(self._tree, slug)
        return self._loaded[slug]

    def calls(self, slug: str) -> list[str]:
        """The workflows `slug` may call; none when it cannot be used."""
        if slug not in self._calls:
            loaded = self.load(slug)
            targets = delegation_targets(loaded.spec) if loaded.spec is not None and loaded.usable else {}
            self._calls[slug] = [target for target in targets if slug_ok(target)]
        return self._calls[slug]


def _check_chains(report: Report, spec: Spec, siblings: _Siblings, targets: dict[str, Path]) -> None:
    """Walk what can be called, once per workflow: a call back into the chain is a cycle, the longest way is the depth."""
    below: dict[str, list[str]] = {}  # workflow → its longest chain of calls
    chain: dict[str, Iterator[str]] = {spec.slug: iter(siblings.calls(spec.slug))}
    best: dict[str, list[str]] = {spec.slug: []}
    while chain:
        at = next(reversed(chain))
        target = next(chain[at], None)
        if target is None:
            below[at] = best[at]
            del chain[at]
            if chain:
                _keep_longer(best, next(reversed(chain)), at, below[at])
        elif target in chain:
            whole = [*chain, target]
            report.add(
                "error",
                "delegation.cycle",
                _FIELD,
                f"the calls {_arrows(whole[whole.index(target) :])} go round: a workflow of the chain is not called again",
                at=targets.get(whole[1], _FIELD),
            )
        elif target in below:
            _keep_longer(best, at, target, below[target])
        else:
            chain[target] = iter(siblings.calls(target))
            best[target] = []
    longest = below[spec.slug]
    if len(longest) > MAX_DEPTH:
        report.add(
            "error",
            "delegation.depth",
            _FIELD,
            f"the calls {_arrows([spec.slug, *longest])} are {len(longest)} deep: at most {MAX_DEPTH} are allowed",
            at=targets.get(longest[0], _FIELD),
        )


def _keep_longer(best: dict[str, list[str]], at: str, target: str, rest: list[str]) -> None:
    if len(rest) + 1 > len(best[at]):
        best[at] = [target, *rest]


def _arrows(slugs: list[str]) -> str:
    """A chain of calls, its middle left out when it is long."""
    shortened = slugs if len(slugs) <= _LONGEST_CHAIN_SHOWN else [*slugs[:6], "…", slugs[-1]]
    return " → ".join(shown(slug) for slug in shortened)
