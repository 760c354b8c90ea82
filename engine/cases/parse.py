"""Reading a case file: every rule of 06 §2, §3, §6 and §14, all issues of a document at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.jsontext import Json, JsonObject, clean
from engine.cases.clock import clock_ms
from engine.cases.document import (
    ACTIONS,
    ASSERTIONS,
    CASE_DESCRIPTION_MAX_LENGTH,
    CASE_TITLE_MAX_LENGTH,
    CaseDocument,
    CaseSchemaError,
    FixtureRef,
    Mock,
    Step,
    case_id,
)
from engine.cases.issues import Issues, Path
from engine.cases.parse_steps import STEP_READERS
from engine.cases.regex import RegexEngine, regex_engine
from engine.spec.yaml12 import YamlProblem, load_yaml

KEYS: Final = ("title", "description", "skip", "trigger", "variables", "workspace", "mocks", "clock", "steps")
MOCK_KEYS: Final = ("tool", "whenInput", "result")


def parse_case_document(
    file: str, source: str | bytes, tests_dir: str, *, engine: RegexEngine | None = None
) -> CaseDocument:
    """The document of a case file; `file` and `tests_dir` are workspace-relative. Raises: `CaseSchemaError`."""
    try:
        value = load_yaml(source).value
    except YamlProblem as problem:
        raise CaseSchemaError(file, (f"not YAML: {problem}",)) from None
    if not isinstance(value, dict):
        raise CaseSchemaError(file, ("a case must be a mapping",))
    issues = Issues()
    document = _document(clean(value), issues, file, case_id(file, tests_dir))
    issues.check_regexes(engine or regex_engine())
    if issues.found:
        raise CaseSchemaError(file, tuple(issues.found))
    return document


def _document(value: JsonObject, issues: Issues, file: str, identity: str) -> CaseDocument:
    issues.known_keys(value, (), KEYS, listed=True)
    return CaseDocument(
        title=_title(value, issues),
        description=_description(value, issues),
        skip=_skip(value, issues),
        trigger=_trigger(value, issues),
        variables=issues.variables(value, ("variables",)),
        workspace=_workspace(value, issues),
        mocks=tuple(
            _mock(entry, ("mocks", at), issues) for at, entry in enumerate(_list(value, "mocks", issues))
        ),
        clock=_clock(value, issues),
        steps=_steps(_list(value, "steps", issues), issues),
        file=file,
        id=identity,
    )


def _required_text(value: JsonObject, key: str, issues: Issues) -> str:
    text = value.get(key)
    if not isinstance(text, str) or not text.strip():
        issues.add((), f"{key} is required: a string that is not blank")
        return ""
    return text


def _title(value: JsonObject, issues: Issues) -> str:
    text = _required_text(value, "title", issues)
    if len(text.strip().splitlines()) > 1:
        issues.add(("title",), "a title must be a single line")
    return _measured(text, "title", CASE_TITLE_MAX_LENGTH, issues)


def _description(value: JsonObject, issues: Issues) -> str:
    return _measured(
        _required_text(value, "description", issues), "description", CASE_DESCRIPTION_MAX_LENGTH, issues
    )


def _measured(text: str, key: str, limit: int, issues: Issues) -> str:
    collapsed = " ".join(text.split())
    if len(collapsed) > limit:
        issues.add((key,), f"a {key} has at most {limit} characters, this one {len(collapsed)}")
    return collapsed


def _skip(value: JsonObject, issues: Issues) -> str | None:
    if "skip" not in value:
        return None
    reason = value["skip"]
    if not isinstance(reason, str) or not reason:
        issues.add(("skip",), "skip takes the reason as a non-empty string")
        return None
    return reason


def _trigger(value: JsonObject, issues: Issues) -> str | None:
    if "trigger" not in value:
        return None
    trigger = value["trigger"]
    if not isinstance(trigger, dict):
        issues.add(("trigger",), "must be a mapping { id }")
        return None
    issues.known_keys(trigger, ("trigger",), ("id",))
    return issues.text(trigger.get("id"), ("trigger", "id"), "a trigger's id must be a non-empty string")


def _workspace(value: JsonObject, issues: Issues) -> dict[str, Json | FixtureRef]:
    if "workspace" not in value:
        return {}
    workspace = value["workspace"]
    if not isinstance(workspace, dict):
        issues.add(("workspace",), "must be a mapping of paths to contents")
        return {}
    entries: dict[str, Json | FixtureRef] = {}
    for path, content in workspace.items():
        if not path:
            issues.add(("workspace",), "a path must not be empty")
        elif isinstance(content, dict) and list(content) == ["from"]:
            place: Path = ("workspace", path)
            source = issues.text(
                content["from"], place, "from must be a non-empty string: a path below tests/"
            )
            entries[path] = FixtureRef(source or "")
        else:
            entries[path] = content
    return entries


def _list(value: JsonObject, key: str, issues: Issues) -> list[Json]:
    entries = value.get(key, [])
    if not isinstance(entries, list):
        issues.add((), f"{key} must be a list")
        return []
    return entries


def _mock(value: Json, path: Path, issues: Issues) -> Mock:
    if not isinstance(value, dict):
        issues.add(path, "a mock must be a mapping { tool, whenInput?, result }")
        return Mock("")
    issues.known_keys(value, path, MOCK_KEYS)
    tool = issues.text(value.get("tool"), (*path, "tool"), "tool must be a non-empty string")
    when = issues.tool_input(value, "whenInput", path)
    return Mock(tool or "", when, value.get("result"))


def _clock(value: JsonObject, issues: Issues) -> str | None:
    if "clock" not in value:
        return None
    clock = value["clock"]
    if not isinstance(clock, str) or clock_ms(clock) is None:
        issues.add(("clock",), "must be a date (YYYY-MM-DD) or an RFC 3339 date-time with Z or ±hh:mm")
        return None
    return clock


def _steps(entries: Sequence[Json], issues: Issues) -> tuple[Step, ...]:
    steps: list[Step] = []
    acted = False
    for at, entry in enumerate(entries):
        path: Path = ("steps", at)
        if not isinstance(entry, dict):
            issues.add(path, "a step must be a single-key mapping")
            continue
        if len(entry) != 1:
            named = ", ".join(entry) or "none"
            issues.add(path, f"a step has exactly one key, this one has: {named}")
            acted = acted or any(key in ACTIONS for key in entry)
            continue
        ((key, value),) = entry.items()
        reader = STEP_READERS.get(key)
        if reader is None:
            issues.add(path, _unknown_step(key))
            continue
        if key in ACTIONS:
            acted = True
        elif not acted:
            issues.add(path, f"{key} has no preceding action to look at")
        steps.append(reader(value, (*path, key), issues))
    return tuple(steps)


def _unknown_step(key: str) -> str:
    hint = "; assertions are steps themselves, not entries of expect" if key == "expect" else ""
    return f"unknown step {key!r} (actions: {', '.join(ACTIONS)}; assertions: {', '.join(ASSERTIONS)}){hint}"
