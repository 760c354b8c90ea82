"""Every registered identifier, with a workflow that draws it and a neighbouring one that does not.

The forms sub-workflows had before are among them (04 §14).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from engine.spec.reference import diagnostics_by_id
from tests.support.spec import SPEC, found, validate

MANUAL = "triggers: { manual: }"


class Pair(NamedTuple):
    field: str | None
    bad: str | Mapping[str, str]
    good: str | Mapping[str, str]
    words: str = ""
    slug: str = "shop"


def state(text: str, root: str = "") -> str:
    """One state `a` with a trigger and the keys given."""
    return f"{root}\nstates:\n  a: {{ {MANUAL}, instructions: Do., {text} }}\n  b: {{ instructions: End. }}\n"


def root(text: str) -> str:
    return f"{text}\nstates: {{ a: {{ {MANUAL} }} }}\n"


def trigger(text: str) -> str:
    return f"states: {{ a: {{ triggers: {{ manual: {{ {text} }} }} }} }}\n"


def code(text: str) -> str:
    return f"states: {{ a: {{ {MANUAL}, type: code, {text} }}, b: {{ instructions: End. }} }}\n"


def human(text: str) -> str:
    return f"states: {{ a: {{ {MANUAL}, instructions: Do. }}, h: {{ type: human, {text} }}, b: {{ }}, c: {{ }} }}\n"


def grader(text: str) -> str:
    return f"states: {{ a: {{ {MANUAL}, instructions: Do. }}, g: {{ type: grader, {text} }} }}\n"


def allow(entry: str, more: str = "", at_root: str = "") -> str:
    return state(f"tools: {{ allow: [{entry}] }}{more}", at_root)


def many_guards(count: int) -> str:
    """`count` guards below as many denials."""
    guards = ", ".join(f"a/{index}" for index in range(count))
    denials = ", ".join(f"b/{index}" for index in range(count))
    return allow(
        f"{{ tool: read_file, paths: [{guards}] }}",
        at_root=f'tools: {{ forbid_always: [{{ tool: "*", paths: [{denials}] }}] }}',
    )


def sibling(text: str) -> dict[str, str]:
    return {
        SPEC: allow("archmax_workflow_other"),
        "workflows/other/workflow.yaml": text,
    }


def chain(*slugs: str) -> dict[str, str]:
    files = {SPEC: allow(f"archmax_workflow_{slugs[0]}")}
    for slug, following in zip(slugs, [*slugs[1:], None], strict=True):
        tools = f", tools: {{ allow: [archmax_workflow_{following}] }}" if following else ""
        files[f"workflows/{slug}/workflow.yaml"] = f"states: {{ a: {{ {MANUAL}{tools} }} }}\n"
    return files


def case(text: str) -> dict[str, str]:
    return {
        SPEC: state(""),
        "workflows/shop/tests/a.test.yaml": f"title: A case\ndescription: It does.\n{text}\n",
    }


GOOD = state("")
DECIDE = "transitions: [{ to: b, description: Yes. }]"
REVIEW = f"instructions: Decide., {DECIDE}"
JUDGE = "instructions: Be strict., transitions: [{ to: a, description: Bad. }]"
SCRIPT = {"workflows/shop/scripts/a.js": "export default () => {}"}

PAIRS: dict[str, Pair] = {
    "missing": Pair(None, {}, GOOD),
    "not-a-mapping": Pair(None, "- a", GOOD),
    "competing-machines": Pair(
        None,
        {SPEC: GOOD, "workflows/shop/WORKFLOW.md": "---\na: 1\n---\nText"},
        {SPEC: GOOD, "workflows/shop/WORKFLOW.md": "# Text"},
    ),
    "schema.unknown-key": Pair("states.a", state("instrutions: x"), GOOD, 'Unrecognized key: "instrutions"'),
    "schema.type": Pair("title", root("title: null"), root("title: Shop")),
    "schema.states": Pair("states", "states: {}", GOOD, "Machine spec is missing or has empty 'states'"),
    "schema.instructions": Pair("instructions", root('instructions: " "'), root("instructions: x")),
    "schema.disabled": Pair("disabled", root("disabled: null"), root("disabled: false"), "disabled"),
    "schema.state-type": Pair("states.a.type", state("type: robot"), state("type: agent"), "grader"),
    "schema.blank": Pair("states.a.title", state('title: " "'), state("title: x")),
    "schema.model": Pair(
        "states.a.model", state("model: { id: x }"), state("model: x"), "host configuration"
    ),
    "schema.script-missing": Pair(
        "states.a.script", code("title: x"), {SPEC: code("script: scripts/a.js"), **SCRIPT}
    ),
    "schema.script-misplaced": Pair(
        "states.a.script", state("script: scripts/a.js"), {SPEC: code("script: scripts/a.js"), **SCRIPT}
    ),
    "schema.script-path": Pair(
        "states.a.script", code("script: scripts/../a.js"), {SPEC: code("script: scripts/a.js"), **SCRIPT}
    ),
    "schema.transition-type": Pair(
        "states.a.transitions.0.type",
        state("transitions: [{ to: b, type: ok }]"),
        state("transitions: [{ to: b, type: none }]"),
    ),
    "schema.description-type": Pair(
        "states.a.transitions.0.description",
        state("transitions: [{ to: b, description: null }]"),
        state("transitions: [{ to: b }]"),
    ),
    "schema.budget": Pair(
        "states.a.budget.maxTurns",
        state("budget: { maxTurns: true }"),
        state("budget: { maxTurns: 2.0 }"),
        "must be a positive number",
    ),
    "schema.number": Pair(
        "settings.timeoutMs", root("settings: { timeoutMs: 1.5 }"), root("settings: { timeoutMs: 1 }")
    ),
    "schema.prompt-cache-ttl": Pair(
        "settings.prompt_cache.ttl",
        root("settings: { prompt_cache: { ttl: 2h } }"),
        root("settings: { prompt_cache: { ttl: 1h } }"),
    ),
    "schema.variable-name": Pair(
        "states.a.requires.0", state("requires: [orderId]"), state("requires: [order_id]")
    ),
    "schema.variable-list": Pair("states.a.locks", state("locks: verdict"), state("locks: [verdict]")),
    "schema.skill-slug": Pair(
        "states.a.skills.allow.0",
        state("skills: { allow: [skills/fees] }"),
        state("skills: { allow: [fees] }"),
    ),
    "schema.mount-name": Pair(
        "mounts.allow_always.0",
        root("mounts: { allow_always: [/ledger/] }"),
        root("mounts: { allow_always: [a/ledger] }"),
    ),
    "schema.mount-access": Pair(
        "states.a.mounts.allow.0",
        state("mounts: { allow: [{ mount: ledger, access: rw }] }"),
        state("mounts: { allow: [{ mount: ledger, access: read }] }"),
    ),
    "schema.mount-entry": Pair(
        "states.a.mounts.forbid.0",
        state("mounts: { forbid: [{ mount: ledger }] }"),
        state("mounts: { forbid: [ledger] }"),
    ),
    "schema.tool-entry": Pair(
        "states.a.tools.allow.0",
        allow("{ tool: grep, args: { path: a }, paths: [a] }"),
        allow("{ tool: grep, paths: a }"),
    ),
    "schema.triggers": Pair("states.a.triggers", "states: { a: { triggers: [manual] } }", GOOD),
    "schema.trigger-path": Pair(
        "states.a.triggers.manual.session",
        trigger('session: "${{a.b}}"'),
        trigger("session: a.-1.b"),
        "without",
    ),
    "schema.trigger-connection": Pair(
        "states.a.triggers.manual.connection", trigger("connection: 1"), trigger("connection: mail")
    ),
    "schema.trigger-description": Pair(
        "states.a.triggers.manual.description", trigger('description: ""'), trigger("description: x")
    ),
    "schema.trigger-refused-key": Pair(
        "states.a.triggers.manual.entry", trigger("entry: a"), trigger("session: a"), "'manual'"
    ),
    "schema.signature-list": Pair(
        "states.a.triggers.manual.requires", trigger("requires: { a: string }"), trigger("requires: [a]")
    ),
    "schema.signature-entry": Pair(
        "states.a.triggers.manual.requires.0",
        trigger("requires: [{ name: a, type: int }]"),
        trigger("requires: [{ name: a, type: integer }]"),
        "date-time",
    ),
    "schema.signature-duplicate": Pair(
        "states.a.triggers.manual.requires.1",
        trigger("requires: [a, { name: a }]"),
        trigger("requires: [a, b]"),
    ),
    "schema.signature-reserved": Pair(
        "states.a.triggers.manual.returns.0",
        trigger("returns: [title]"),
        trigger("requires: [title, trigger]"),
    ),
    "doc.undefined-target": Pair(
        "states.a.transitions.0.to",
        state("transitions: [{ to: anwser }]"),
        state("transitions: [{ to: b }]"),
        "undefined state 'anwser'",
    ),
    "doc.undefined-on-error": Pair(
        "states.a.on_error", state("on_error: nobody"), state("on_error: b"), "nobody"
    ),
    "doc.undescribed-edge": Pair(
        "states.a.transitions.0.description",
        state("transitions: [{ to: g }]").replace("b: {", "g: { type: grader,"),
        state("transitions: [{ to: b }]"),
    ),
    "doc.wildcard-grant": Pair("states.a.tools.allow.0", allow('"*"'), state('tools: { forbid: ["*"] }')),
    "doc.guard-reference": Pair(
        "states.a.tools.allow.0",
        allow('{ tool: grep, paths: ["${{A}}"] }'),
        allow('{ tool: grep, paths: ["$${{A}}"] }'),
        "A",
    ),
    "doc.guard-glob": Pair(
        "tools.forbid_always.0",
        root('tools: { forbid_always: [{ tool: ls, paths: "!a" }] }'),
        root('tools: { forbid_always: [{ tool: ls, paths: "a{b,c}" }] }'),
    ),
    "doc.duplicate-trigger": Pair(
        "states", f"states: {{ a: {{ {MANUAL} }}, b: {{ {MANUAL} }} }}", GOOD, "'a'"
    ),
    "doc.no-start-state": Pair("states", "states: { a: }", GOOD, "Workflow has no start state"),
    "doc.sub-workflow-trigger": Pair(
        "states.a.triggers.sub-workflow", "states: { a: { triggers: { sub-workflow: } } }", GOOD, "manual"
    ),
    "doc.lock-reserved": Pair("states.a.locks.0", state("locks: [title]"), state("locks: [verdict]")),
    "doc.lock-human": Pair("states.h.locks", human(f"{REVIEW}, locks: [x]"), human(REVIEW)),
    "doc.lock-owner": Pair(
        "states.b.locks.0",
        state("locks: [x]").replace("b: {", "b: { locks: [x],"),
        state("locks: [x]"),
        "'a'",
    ),
    "doc.max-concurrency": Pair(
        "tests.maxConcurrency", root("tests: { maxConcurrency: 2 }"), root("tests: { maxConcurrency: 1 }")
    ),
    "contract.unsupported": Pair(
        "runtime", root('runtime: { version: "2" }'), root("runtime: { version: 3.0 }"), "archmax-harness@2"
    ),
    "removed.state-before": Pair("states.a", state("before: x"), GOOD, "states.a.before"),
    "removed.state-after": Pair("states.a", state("after: x"), GOOD, "states.a.after"),
    "removed.iterations": Pair("states.a", state("max_iterations: 3"), GOOD, "max_iterations"),
    "removed.extensions": Pair(None, root("extensions: 1"), GOOD, "code state"),
    "removed.rubrics": Pair(None, root("rubrics: 1"), GOOD, "grader"),
    "removed.editor": Pair(None, root("editor: 1"), GOOD, "metadata"),
    "removed.name": Pair(None, root("name: 1"), GOOD, "title"),
    "removed.description": Pair(None, root("description: 1"), GOOD, "instructions"),
    "removed.policy": Pair(None, root("policy: 1"), GOOD, "forbid_always"),
    "removed.root-triggers": Pair(None, root("triggers: 1"), GOOD, "state"),
    "removed.root-budget": Pair(None, root("budget: 1"), GOOD, "recursion limit"),
    "removed.variables": Pair(None, root("variables: 1"), GOOD, "set"),
    "removed.skills-ceiling": Pair(
        "skills", root("skills: { allow: [] }"), root("skills: { allow_always: [] }"), "skills.allow"
    ),
    "removed.mounts-ceiling": Pair(
        "mounts", root("mounts: { allow: [] }"), root("mounts: { allow_always: [] }"), "mounts.allow"
    ),
    "removed.settings": Pair(
        "settings", root("settings: { sub_workflows: 1 }"), root("settings: {}"), "dispatcher"
    ),
    "removed.reporters": Pair(
        "tests", root("tests: { reporters: [] }"), root("tests: {}"), "tests.reporters"
    ),
    "removed.state-trigger": Pair("states.a", state("trigger: x"), GOOD, "triggers"),
    "removed.type-wait": Pair("states.a.type", state("type: wait"), GOOD, "archmax_wait"),
    "removed.type-trigger": Pair("states.a.type", state("type: trigger"), GOOD, "triggers"),
    "removed.type-workflow": Pair("states.a.type", state("type: workflow"), GOOD, "archmax_workflow_"),
    "removed.params": Pair("states.a", state("for_each: x"), GOOD, "states.a.for_each"),
    "removed.parallel": Pair("states.a", state("join: x"), GOOD, "states.a.join"),
    "removed.transition-on": Pair(
        "states.a.transitions.0",
        state("transitions: [{ to: b, on: x }]"),
        state("transitions: [{ to: b }]"),
        "on",
    ),
    "removed.hooks-dir": Pair(None, {SPEC: GOOD, "workflows/shop/hooks/a.js": ""}, {SPEC: GOOD, **SCRIPT}),
    "removed.tests-config-js": Pair(
        None,
        {SPEC: GOOD, "workflows/shop/tests/tests.config.js": ""},
        {SPEC: GOOD, "workflows/shop/tests/old.test.js": ""},
    ),
    "workflow-slug.missing": Pair("workflow", GOOD, GOOD, slug=""),
    "workflow-slug.shape": Pair("workflow", {"workflows/My Shop/workflow.yaml": GOOD}, GOOD, slug="My Shop"),
    "state-slug.empty": Pair("states", f'states: {{ "": {{ {MANUAL} }} }}', GOOD),
    "state-slug.shape": Pair("states.A_1", f"states: {{ A_1: {{ {MANUAL} }} }}", GOOD),
    "human.instructions": Pair("states.h.instructions", human(DECIDE), human(REVIEW)),
    "human.transitions": Pair("states.h.transitions", human("instructions: Decide."), human(REVIEW)),
    "human.self-edge": Pair(
        "states.h.transitions.0.to",
        human("instructions: x, transitions: [{ to: h, description: Again. }]"),
        human(REVIEW),
    ),
    "human.duplicate-type": Pair(
        "states.h.transitions",
        human(
            "instructions: x, transitions: [{ to: b, type: reject, description: x }, { to: c, type: reject, description: y }]"
        ),
        human("instructions: x, transitions: [{ to: b, description: x }, { to: c, description: y }]"),
    ),
    "grader.instructions": Pair(
        "states.g.instructions", grader("transitions: [{ to: a, description: x }]"), grader(JUDGE)
    ),
    "grader.transitions": Pair("states.g.transitions", grader("instructions: x"), grader(JUDGE)),
    "grader.key": Pair(
        "states.g.budget.maxParks",
        grader(f"{JUDGE}, budget: {{ maxParks: 1 }}"),
        grader(f"{JUDGE}, budget: {{ maxTurns: 1 }}"),
    ),
    "code.key": Pair(
        "states.a.budget", code("script: scripts/a.js, budget: {}"), code("script: scripts/a.js, title: x")
    ),
    "automated.tool": Pair(
        "states.g.tools.allow",
        grader(f"{JUDGE}, tools: {{ allow: [archmax_eval] }}"),
        grader(f"{JUDGE}, tools: {{ allow: [ls] }}"),
    ),
    "history.tool": Pair(
        "states.a.tools.allow",
        allow("archmax_get_history"),
        grader(f"{JUDGE}, tools: {{ allow: [archmax_get_history] }}"),
    ),
    "code.script-not-found": Pair(
        "states.a.script", code("script: scripts/a.js"), {SPEC: code("script: scripts/a.js"), **SCRIPT}
    ),
    "code.foreign-import": Pair(
        "states.a.script",
        {SPEC: code("script: scripts/a.js"), "workflows/shop/scripts/a.js": "import fs from 'node:fs'"},
        {
            SPEC: code("script: scripts/a.js"),
            "workflows/shop/scripts/a.js": "import type { A } from '@archmax-ai/harness/code'",
        },
        "node:fs",
    ),
    "tools.ungrantable": Pair("states.a.tools.allow", allow("task"), allow("ls")),
    "tools.forbid-advance": Pair(
        "tools.forbid_always",
        state("transitions: [{ to: b }]", "tools: { forbid_always: [archmax_advance] }"),
        state("", "tools: { forbid_always: [archmax_advance] }"),
    ),
    "tools.run-outside-skills": Pair(
        "states.a.tools.allow",
        allow('{ tool: archmax_run, paths: ["scratchpad/**"] }', ", skills: { allow: [fees] }"),
        allow('{ tool: archmax_run, paths: ["skills/fees/**"] }', ", skills: { allow: [fees] }"),
    ),
    "tools.authoring-plane": Pair(
        "states.a.tools.allow",
        allow('{ tool: ls, paths: ["./workflows/x/**"] }'),
        allow('{ tool: ls, paths: ["workflow/**"] }'),
    ),
    "tools.runtime-area": Pair(
        "states.a.tools.allow",
        allow('{ tool: move_file, args: { source: "checkpoints/*" } }'),
        allow('{ tool: read_file, paths: ["large_tool_results/*"] }'),
    ),
    "tools.read-only": Pair(
        "states.a.tools.allow",
        allow("{ tool: write_file, paths: [AGENTS.md] }"),
        allow("{ tool: read_file, paths: [AGENTS.md] }"),
    ),
    "tools.denied": Pair(
        "states.a.tools.allow",
        allow(
            "{ tool: read_file, paths: [vault/key] }",
            at_root='tools: { forbid_always: [{ tool: "*", paths: ["vault/**"] }] }',
        ),
        allow(
            "{ tool: read_file, paths: [vault/key] }",
            at_root='tools: { forbid_always: [{ tool: "*", paths: ["vault/${{trigger}}/**"] }] }',
        ),
    ),
    "tools.disabled-skill": Pair(
        "states.a.tools.allow",
        allow('{ tool: read_file, paths: ["skills/fees/**"] }', ", skills: { allow: [tides] }"),
        allow('{ tool: read_file, paths: ["skills/fees/**"] }', ", skills: { allow: [fees] }"),
    ),
    "skills.unknown": Pair(
        "states.a.skills.forbid",
        state("skills: { forbid: [fee] }"),
        state("skills: { forbid: [fees] }"),
        "fees, tides",
    ),
    "skills.name-mismatch": Pair(
        "skills",
        {SPEC: GOOD, "skills/x/SKILL.md": "---\nname: y\ndescription: d\n---\n"},
        {SPEC: GOOD, "skills/x/SKILL.md": "---\nname: x\ndescription: d\n---\n"},
    ),
    "skills.non-slug-dir": Pair(
        "skills", {SPEC: GOOD, "skills/X y/SKILL.md": "---\ndescription: d\n---\n"}, GOOD
    ),
    "mounts.unknown": Pair(
        "mounts.forbid_always",
        root("mounts: { forbid_always: [leger] }"),
        root("mounts: { forbid_always: [ledger] }"),
        "ledger",
    ),
    "delegation.slug": Pair("states", allow("archmax_workflow_Fee_Check"), chain("other")),
    "delegation.cycle": Pair(
        "states",
        {**chain("x", "y"), "workflows/y/workflow.yaml": allow("archmax_workflow_x")},
        chain("x", "y"),
    ),
    "delegation.missing": Pair("states", allow("archmax_workflow_none"), chain("other"), "none"),
    "delegation.no-manual": Pair("states", sibling("states: { a: { triggers: { mail: } } }"), chain("other")),
    "delegation.depth": Pair("states", chain("w", "x", "y", "z"), chain("w", "x", "y")),
    "evidence.path": Pair(
        "states.h.evidence.0",
        human(f"{REVIEW}, evidence: [artifacts/x]"),
        human(f"{REVIEW}, evidence: [scratchpad/x]"),
    ),
    "trigger.schedule": Pair(
        "states.a.triggers.manual.schedule",
        trigger("schedule: { cron: '61 * * * *' }"),
        trigger("schedule: { every: 15m }"),
    ),
    "instructions.absent": Pair("instructions", GOOD, root("instructions: x")),
    "workflow.disabled": Pair("disabled", root("disabled: true"), root("disabled: false")),
    "state.model-redundant": Pair(
        "states.a.model",
        state("model: x", "settings: { model: x }"),
        state("model: y", "settings: { model: x }"),
    ),
    "state.routing-instructions": Pair(
        "states.a.instructions",
        state("transitions: [{ to: b }, { to: a }]")
        .replace("instructions: Do.,", "instructions: '',")
        .replace("{ to: a }", "{ to: a, description: x }"),
        state("transitions: [{ to: b }, { to: a }]"),
    ),
    "state.requires-duplicate": Pair(
        "states.a.requires", state("requires: [x, x]"), state("requires: [x, y]")
    ),
    "trigger.unknown-key": Pair(
        "states.a.triggers.manual", trigger("descripton: x"), trigger("schedule: { every: 1h }"), "connection"
    ),
    "trigger.whitespace": Pair(
        "states.a.triggers.new mail", 'states: { a: { triggers: { "new mail": } } }', GOOD
    ),
    "guard.unguaranteed": Pair(
        "states.a.tools.allow",
        allow('{ tool: ls, paths: ["${{berth}}/**"] }'),
        allow('{ tool: ls, paths: ["${{berth}}/${{trigger}}"] }', ", requires: [berth]"),
        "berth",
    ),
    "guard.empty": Pair(
        "states.a.tools.allow.0", allow("{ tool: ls, paths: [] }"), allow("{ tool: ls, paths: [a] }")
    ),
    "tools.scratchpad-guard": Pair(
        "states.a.tools.allow",
        allow('{ tool: edit_file, paths: ["scratchpad/**"] }'),
        allow('{ tool: copy_file, args: { destination: "scratchpad/**" } }'),
    ),
    "tools.untried": Pair("tools.forbid_always", many_guards(450), many_guards(200)),
    "tools.allow-and-forbid": Pair(
        "states.a.tools.allow",
        state("tools: { allow: [ls], forbid: [ls] }"),
        state("tools: { allow: [ls], forbid: [grep] }"),
    ),
    "tools.forbid-nothing": Pair(
        "states.a.tools.forbid",
        state("tools: { forbid: [post_notice] }"),
        state("tools: { forbid: [grep, archmax_wait] }"),
    ),
    "tools.advance-target": Pair(
        "states.a.transitions",
        allow("{ tool: archmax_advance, args: { to: a } }", ", transitions: [{ to: b }]"),
        allow("{ tool: archmax_advance, args: { to: b } }", ", transitions: [{ to: b }]"),
    ),
    "tools.control-denied": Pair(
        "states.g.tools.forbid",
        grader(f"{JUDGE}, tools: {{ forbid: [archmax_advance] }}"),
        state("tools: { forbid: [archmax_advance] }"),
    ),
    "skills.redundant": Pair(
        "states.a.skills.allow",
        state("skills: { allow: [fees] }", "skills: { allow_always: [fees] }"),
        state("skills: { allow: [fees] }"),
    ),
    "skills.empty-allow": Pair(
        "states.a.skills.allow",
        state("skills: { allow: [] }", "skills: { allow_always: [fees] }"),
        state("skills: { allow: [] }"),
    ),
    "skills.allow-and-forbid": Pair(
        "states.a.skills.allow",
        state("skills: { allow: [fees], forbid: [fees] }"),
        state("skills: { allow: [fees] }"),
    ),
    "skills.forbid-nothing": Pair(
        "states.a.skills.forbid",
        state("skills: { forbid: [fees] }"),
        state("skills: { forbid: [fees] }", "skills: { allow_always: [fees] }"),
    ),
    "skills.forbid-always-cancels": Pair(
        "skills.forbid_always",
        state("skills: { allow: [fees] }", "skills: { forbid_always: [fees] }"),
        state("skills: { allow: [fees] }", "skills: { forbid_always: [tides] }"),
    ),
    "skills.no-root-block": Pair("skills", GOOD, root("skills: {}"), "fees, tides"),
    "skills.unloadable": Pair("skills", {SPEC: GOOD, "skills/x/SKILL.md": "no"}, GOOD),
    "skills.shadowed": Pair("skills", {SPEC: GOOD, "more/fees/SKILL.md": "---\ndescription: d\n---\n"}, GOOD),
    "mounts.redundant": Pair(
        "states.a.mounts.allow",
        state("mounts: { allow: [ledger] }", "mounts: { allow_always: [ledger] }"),
        state(
            "mounts: { allow: [{ mount: ledger, access: read_write }] }", "mounts: { allow_always: [ledger] }"
        ),
    ),
    "mounts.empty-allow": Pair(
        "states.a.mounts.allow",
        state("mounts: { allow: [] }", "mounts: { allow_always: [ledger] }"),
        state("mounts: { allow: [] }"),
    ),
    "mounts.allow-and-forbid": Pair(
        "states.a.mounts.allow",
        state("mounts: { allow: [ledger], forbid: [ledger] }"),
        state("mounts: { allow: [ledger] }"),
    ),
    "mounts.forbid-nothing": Pair(
        "states.a.mounts.forbid", state("mounts: { forbid: [ledger] }"), state("mounts: { forbid: [skills] }")
    ),
    "mounts.forbid-always-cancels": Pair(
        "mounts.forbid_always",
        state("mounts: { allow: [ledger] }", "mounts: { forbid_always: [ledger] }"),
        state("", "mounts: { forbid_always: [ledger] }"),
    ),
    "mounts.no-root-block": Pair("mounts", GOOD, root("mounts: {}"), "ledger"),
    "mounts.ungoverned-grant": Pair(
        "mounts.allow_always",
        root("mounts: { allow_always: [skills] }"),
        root("mounts: { allow_always: [ledger] }"),
    ),
    "mounts.ceiling": Pair(
        "mounts.allow_always",
        root("mounts: { allow_always: [{ mount: archive, access: read_write }] }"),
        root("mounts: { allow_always: [{ mount: ledger, access: read_write }] }"),
    ),
    "mounts.unreachable-path": Pair(
        "states.a.tools.allow",
        allow('{ tool: read_file, paths: ["ledger/**"] }'),
        allow('{ tool: read_file, paths: ["ledger/**"] }', ", mounts: { allow: [ledger] }"),
    ),
    "delegation.disabled-target": Pair("states", sibling(f"disabled: true\n{GOOD}"), sibling(GOOD)),
    "automated.no-on-error": Pair("states.g.on_error", grader(JUDGE), grader(f"{JUDGE}, on_error: a")),
    "human.requires": Pair("states.h.requires", human(f"{REVIEW}, requires: [x]"), human(REVIEW)),
    "transition.duplicate-target": Pair(
        "states.a.transitions.1.to",
        state("transitions: [{ to: b }, { to: b }]"),
        state("transitions: [{ to: b }, { to: a }]"),
    ),
    "on-error.loop": Pair("states.a.on_error", state("on_error: a"), state("on_error: b")),
    "instructions.authoring-plane": Pair(
        "states.b.instructions",
        GOOD.replace("End.", "Read workflows/shop/notes.md"),
        GOOD.replace("End.", "Read my-workflows/notes.md"),
    ),
    "case.schema": Pair(None, case("foo: 1"), case("")),
    "case.unknown-trigger": Pair(
        "trigger", case("trigger: { id: mail }"), case("trigger: { id: manual }"), "manual"
    ),
    "case.fixture-path": Pair(
        "workspace", case("workspace: { a.md: { from: ../x } }"), case("workspace: { a.md: text }")
    ),
    "case.fixture-missing": Pair(
        "workspace",
        case("workspace: { a.md: { from: x.md } }"),
        {**case("workspace: { a.md: { from: x.md } }"), "workflows/shop/tests/x.md": ""},
    ),
    "case.workspace-path": Pair(
        "workspace", case("workspace: { workflows/x: text }"), case("workspace: { x: text }")
    ),
    "case.mock-control-tool": Pair(
        "mocks.0",
        case("mocks: [{ tool: archmax_advance, result: x }]"),
        case("mocks: [{ tool: ls, result: x }]"),
    ),
    "locks.duplicate": Pair("states.a.locks", state("locks: [x, x]"), state("locks: [x]")),
    "locks.input": Pair(
        "states.a.locks", trigger("requires: [x]").replace("a: {", "a: { locks: [x],"), state("locks: [x]")
    ),
}

#: reported under another identifier
ELSEWHERE = {id_ for id_, entry in diagnostics_by_id().items() if entry.reported_as}


def test_every_registered_identifier_has_a_case_that_draws_it_and_one_that_does_not():
    """01 §19."""
    assert set(PAIRS) == set(diagnostics_by_id()) - ELSEWHERE


@pytest.mark.parametrize("id_", PAIRS)
def test_a_workflow_with_the_fault_draws_the_diagnostic_at_its_place(id_: str):
    """01 §19.2 to §19.5."""
    pair = PAIRS[id_]
    drawn = found(validate(pair.bad, slug=pair.slug).diagnostics, id_)
    assert drawn, [item.message for item in validate(pair.bad, slug=pair.slug).diagnostics]
    assert drawn[0].field == pair.field
    assert drawn[0].severity == diagnostics_by_id()[id_].severity
    assert pair.words in drawn[0].message


@pytest.mark.parametrize("id_", PAIRS)
def test_a_workflow_without_the_fault_does_not_draw_the_diagnostic(id_: str):
    """01 §19.2 to §19.5."""
    result = validate(PAIRS[id_].good)
    assert not found(result.diagnostics, id_)
    assert all(item.id in diagnostics_by_id() for item in result.diagnostics)


def test_contracts_1_and_2_are_reported_as_unsupported():
    """01 §19.4, `removed.runtime-version`."""
    for version in ("1", "2", '"1"', "2.0"):
        assert found(validate(root(f"runtime: {{ version: {version} }}")).diagnostics, "contract.unsupported")


def test_a_machine_in_workflow_md_alone_is_missing_with_a_hint():
    """01 §19.4, `removed.single-file`."""
    result = validate({"workflows/shop/WORKFLOW.md": "---\nstates: {}\n---\n"})
    assert [item.id for item in result.diagnostics] == ["missing"]
    assert "move the frontmatter" in result.diagnostics[0].message
