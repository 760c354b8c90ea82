"""Keys of older contracts: load errors that say what to use now (01 §19.4)."""

from __future__ import annotations

from typing import Final

from engine.spec.catalog.entry import Entry


def _removed(id_: str, field: str, key: str, example: str, cure: str) -> Entry:
    meaning = f"{key} belongs to an older contract and is refused rather than ignored."
    return Entry(id_, "error", field, f"Removed: {key}", meaning, example, cure)


REMOVED: Final = (
    _removed(
        "removed.state-before",
        "states.S",
        "before",
        "before: { script: check.js }",
        "Put a code state ahead of this one (as the trigger's entry, or between it and its predecessor) that advances to the work or to a declining state.",
    ),
    _removed(
        "removed.state-after",
        "states.S",
        "after",
        "after: { rubric: tone }",
        "A script: a code state behind this one with an edge onward and one back. A rubric: a grader state behind it, its criteria the instructions.",
    ),
    _removed(
        "removed.iterations",
        "the mapping that holds the key",
        "max_iterations, max_corrections",
        "max_iterations: 3",
        "Count send-backs in the trail and raise.",
    ),
    _removed(
        "removed.extensions",
        "the root",
        "extensions",
        "extensions: {}",
        "Write a custom check as a code state.",
    ),
    _removed("removed.rubrics", "the root", "rubrics", "rubrics: {}", "Use a grader state."),
    _removed("removed.editor", "the root", "editor", "editor: {}", "Keep editor data in metadata."),
    _removed(
        "removed.name", "the root", "name", "name: shop", "Use title; the directory's name is the identity."
    ),
    _removed(
        "removed.description",
        "the root",
        "description",
        "description: A shop.",
        "Use instructions, reread as direction.",
    ),
    _removed(
        "removed.policy",
        "the root",
        "policy",
        "policy: {}",
        "Use tools.forbid_always and skills.forbid_always.",
    ),
    _removed(
        "removed.root-triggers",
        "the root",
        "triggers",
        "triggers: { manual: }",
        "Declare triggers on the state they enter.",
    ),
    _removed(
        "removed.root-budget",
        "the root",
        "budget",
        "budget: { maxTurns: 9 }",
        "Delete it; bound a state, or let the host set the recursion limit.",
    ),
    _removed(
        "removed.variables",
        "the root",
        "variables",
        "variables: { a: 1 }",
        "Delete it: a variable exists once it is set.",
    ),
    _removed(
        "removed.skills-ceiling",
        "skills",
        "skills.allow at the root",
        "skills: { allow: [] }",
        "Use skills.allow_always: [] and lists on the states.",
    ),
    _removed(
        "removed.mounts-ceiling",
        "mounts",
        "mounts.allow at the root",
        "mounts: { allow: [] }",
        "Use mounts.allow_always and lists on the states.",
    ),
    _removed(
        "removed.settings",
        "settings",
        "settings.sub_workflows, settings.prompt",
        "settings: { prompt: x }",
        "Configure the dispatcher or the host.",
    ),
    _removed("removed.reporters", "tests", "tests.reporters", "tests: { reporters: [] }", "Delete it."),
    _removed("removed.state-trigger", "states.S", "trigger", "trigger: manual", "Use the triggers mapping."),
    _removed(
        "removed.type-wait",
        "states.S.type",
        "type: wait",
        "type: wait",
        "Call archmax_wait in the state that needs the answer.",
    ),
    _removed(
        "removed.type-trigger",
        "states.S.type",
        "type: trigger",
        "type: trigger",
        "Declare triggers on the state it routed to.",
    ),
    _removed(
        "removed.type-workflow",
        "states.S.type, states.S",
        "type: workflow, workflow",
        "type: workflow",
        "Use an agent state that allows archmax_workflow_<slug>.",
    ),
    _removed(
        "removed.params",
        "states.S",
        "params, for_each, result",
        "params: { a: 1 }",
        "Give arguments to the call, one call per entry; take the tool's result, secured by requires.",
    ),
    _removed(
        "removed.parallel", "states.S", "parallel, join", "parallel: [a, b]", "Put the states in sequence."
    ),
    _removed(
        "removed.transition-on",
        "states.S.transitions.i",
        "on",
        "{ to: done, on: reply }",
        "Delete it: a resumed state picks its own edge.",
    ),
    Entry(
        "removed.runtime-version",
        "error",
        "runtime",
        "Removed: contracts 1 and 2",
        "Documents of contracts 1 and 2 are not run.",
        "runtime: { version: 2 }",
        'Adapt the document and write "3", or leave runtime out.',
        "contract.unsupported",
    ),
    Entry(
        "removed.single-file",
        "error",
        "the file",
        "Removed: the machine in WORKFLOW.md",
        "WORKFLOW.md with frontmatter and no workflow.yaml is no workflow.",
        "WORKFLOW.md opening with ---",
        "Move the frontmatter to workflow.yaml.",
        "missing",
    ),
    Entry(
        "removed.hooks-dir",
        "warning",
        "the folder",
        "Removed: hooks",
        "Files under the workflow's hooks/ are not run.",
        "workflows/shop/hooks/after.js",
        "Move them to scripts/ and rewrite them as code states.",
    ),
    Entry(
        "removed.tests-config-js",
        "error",
        "the file",
        "Removed: tests.config.js",
        "Settings of tests are the workflow's tests block.",
        "workflows/shop/tests/tests.config.js",
        "Move the settings and delete the file.",
    ),
)
