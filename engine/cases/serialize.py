"""Writing a case document back as YAML: `parse(serialize(doc)) == doc` (06 §13). Comments are lost."""

from __future__ import annotations

from typing import Any, Final

import yaml
from typing_extensions import override

from core.jsontext import Json, JsonObject
from engine.cases.document import (
    BlockedTool,
    CalledTool,
    CaseDocument,
    Decide,
    Deliver,
    FixtureRef,
    Grade,
    NotCalledTool,
    Parked,
    Raised,
    RanWorkflow,
    ReachedState,
    Reply,
    Send,
    Step,
    TrailCount,
    TriggerArrival,
    Variables,
)
from engine.spec.yaml12 import YamlProblem, load_yaml

#: longer than any line: nothing is folded
_WIDTH: Final = 1 << 30
#: line breaks to PyYAML, ordinary characters to YAML 1.2: only escaped do they survive its indentation
_OLD_BREAKS: Final = "\x85\u2028\u2029"


def serialize_case_document(doc: CaseDocument) -> str:
    """Keys in the contract's order; absent parts are left out; regex tokens keep their `/p/f` spelling."""
    body: JsonObject = {"title": doc.title, "description": doc.description}
    if doc.skip is not None:
        body["skip"] = doc.skip
    if doc.trigger is not None:
        body["trigger"] = {"id": doc.trigger}
    if doc.variables:
        body["variables"] = doc.variables
    if doc.workspace:
        body["workspace"] = {path: _entry(content) for path, content in doc.workspace.items()}
    if doc.mocks:
        body["mocks"] = [
            {"tool": mock.tool, **_given(whenInput=mock.when_input), "result": mock.result}
            for mock in doc.mocks
        ]
    if doc.clock is not None:
        body["clock"] = doc.clock
    if doc.steps:
        body["steps"] = [{step.key: _step_value(step)} for step in doc.steps]
    return yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


def _entry(content: Json | FixtureRef) -> Json:
    return {"from": content.path} if isinstance(content, FixtureRef) else content


def _given(**fields: Json) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not None}


def _step_value(step: Step) -> Json:
    match step:
        case Send(text):
            return text
        case Decide(to, comment):
            return {"to": to, **_given(comment=comment)}
        case Deliver(trigger, variables):
            return {"trigger": trigger, **({"variables": variables} if variables else {})}
        case Parked(channel, state):
            return _given(channel=channel, state=state) or True
        case Raised(code, reason):
            return _given(code=code, reason=reason) or True
        case ReachedState(state):
            return state
        case TrailCount(count, to, kind, reason):
            return {**_given(to=to, kind=kind, reason=reason), "count": count}
        case TriggerArrival(trigger):
            return trigger
        case Reply(includes, excludes):
            return {
                key: list(tokens)
                for key, tokens in (("includes", includes), ("excludes", excludes))
                if tokens
            }
        case CalledTool(name, given) | NotCalledTool(name, given) | BlockedTool(name, given):
            return {"name": name, **_given(input=given)}
        case RanWorkflow(workflow, status, count):
            return {"workflow": workflow, "status": status, **_given(count=count)}
        case Variables(expect, path, locked):
            return {
                "expect": expect,
                **({"path": path} if path else {}),
                **({"locked": locked} if locked else {}),
            }
        case Grade(closed_qa, at_least):
            return {"closedQA": closed_qa, "atLeast": at_least}
        case _:
            return True


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.2 would read as something else than text: PyYAML thinks in YAML 1.1."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True

    @override
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(char in text for char in _OLD_BREAKS):
        style = '"'
    elif text[:1] in tuple("+-.0123456789") and not _stays_text(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _stays_text(text: str) -> bool:
    try:
        return isinstance(load_yaml(text).value, str)
    except YamlProblem:
        return False


_Dumper.add_representer(str, _text)
