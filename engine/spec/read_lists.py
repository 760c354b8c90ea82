"""Reading the lists of a workflow document: tool entries, skills, mounts, variables, signatures (01 §5.5, §8.3, §9)."""

from __future__ import annotations

from typing import Final, Literal

from core.jsontext import Json
from engine.spec.diagnostics import shown
from engine.spec.model import Access, MountGrant, SignatureEntry, ToolEntry
from engine.spec.paths import is_blank, slug_ok, variable_name_ok
from engine.spec.report import Report, kind_phrase
from engine.spec.signatures import SIGNATURE_TYPES
from engine.spec.yaml12 import Path

TOOL_ENTRY_KEYS: Final = ("tool", "args", "paths", "connection", "source")
SIGNATURE_KEYS: Final = ("name", "type", "description")
#: a guard is asked at every call, and judged whole at load: longer ones are refused
MAX_GLOB_CHARS: Final = 1_024
_GLOBS = f"a glob of at most {MAX_GLOB_CHARS} characters or a list of globs"
_TOOL_FORMS = "a tool name, { tool, args: { name: glob } } or { tool, paths: [glob] }"
_MOUNT_FORMS = "a mount name or { mount: name, access?: read | read_write }"
_GLOB_CHARACTERS = frozenset("*?[]{}")
_RESERVED_RETURNS: Final = {
    "trigger": "the runtime sets it",
    "title": "it is the session's label",
    "note": "it is where the answer names what was not set",
}


def read_tools(report: Report, value: Json, path: Path) -> tuple[ToolEntry, ...]:
    """A list of tool entries; entries that are malformed are reported and left out."""
    found = (
        _read_tool(report, item, (*path, index))
        for index, item in enumerate(report.items(value, path, "a list of tool entries"))
    )
    return tuple(entry for entry in found if entry is not None)


def _read_tool(report: Report, value: Json, path: Path) -> ToolEntry | None:
    if isinstance(value, str):
        if value.strip():
            return ToolEntry(value)
        report.error("schema.tool-entry", path, f"must be {_TOOL_FORMS}, not a blank string")
        return None
    if not isinstance(value, dict):
        report.error("schema.tool-entry", path, f"must be {_TOOL_FORMS}, not {kind_phrase(value)}")
        return None
    entry = report.mapping(value, path, TOOL_ENTRY_KEYS)
    problem = _tool_problem(entry)
    if problem is not None:
        report.error("schema.tool-entry", path, problem)
        return None
    texts = {key: report.string(entry[key], (*path, key)) for key in ("connection", "source") if key in entry}
    return ToolEntry(
        entry["tool"],
        {name: _globs(globs) for name, globs in entry["args"].items()} if "args" in entry else None,
        _globs(entry["paths"]) if "paths" in entry else None,
        texts.get("connection"),
        texts.get("source"),
    )


def _tool_problem(entry: dict[str, Json]) -> str | None:
    if is_blank(entry.get("tool")):
        return "an entry names its tool: tool must be a non-empty string"
    if "args" in entry and "paths" in entry:
        return "args and paths exclude each other: guard each path argument by name, or all of them by paths"
    if "paths" in entry and not _is_globs(entry["paths"]):
        return f"paths must be {_GLOBS}"
    if "args" not in entry:
        return None
    args = entry["args"]
    if not isinstance(args, dict):
        return "args must map argument names to globs"
    bad = next((name for name, globs in args.items() if not _is_globs(globs)), None)
    return None if bad is None else f"args.{shown(bad)} must be {_GLOBS}"


def _is_globs(value: Json) -> bool:
    return all(
        isinstance(item, str) and len(item) <= MAX_GLOB_CHARS
        for item in (value if isinstance(value, list) else [value])
    )


def _globs(value: Json) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def read_skills(report: Report, value: Json, path: Path) -> tuple[str, ...]:
    """A list of skill slugs."""
    found: list[str] = []
    for index, item in enumerate(report.items(value, path, "a list of skill slugs")):
        if slug_ok(item):
            found.append(item)
        else:
            what = shown(repr(item), 60) if isinstance(item, str) else kind_phrase(item)
            report.error(
                "schema.skill-slug",
                (*path, index),
                f"an entry is the name of a bundle's directory (words of a-z 0-9 joined by '-'), not {what}; "
                "scope paths with a tools entry",
            )
    return tuple(found)


def read_grants(report: Report, value: Json, path: Path) -> tuple[MountGrant, ...]:
    """An allow list of mounts."""
    found = (
        _read_grant(report, item, (*path, index))
        for index, item in enumerate(report.items(value, path, "a list of mounts"))
    )
    return tuple(grant for grant in found if grant is not None)


def _read_grant(report: Report, value: Json, path: Path) -> MountGrant | None:
    if isinstance(value, str):
        return MountGrant(value) if _mount_name_ok(report, value, path) else None
    if not isinstance(value, dict) or not isinstance(value.get("mount"), str):
        what = "a mapping without mount" if isinstance(value, dict) else kind_phrase(value)
        report.error("schema.mount-entry", path, f"must be {_MOUNT_FORMS}, not {what}")
        return None
    entry = report.mapping(value, path, ("mount", "access"))
    named = _mount_name_ok(report, entry["mount"], path)
    access: Access | None = None
    if "access" in entry:
        if entry["access"] not in ("read", "read_write"):
            report.error(
                "schema.mount-access",
                path,
                f"access is read or read_write, not {kind_phrase(entry['access'])}",
            )
            return None
        access = entry["access"]
    return MountGrant(entry["mount"], access) if named else None


def read_mount_denials(report: Report, value: Json, path: Path) -> tuple[str, ...]:
    """A forbid list of mounts: names only."""
    found: list[str] = []
    for index, item in enumerate(report.items(value, path, "a list of mount names")):
        if not isinstance(item, str):
            report.error(
                "schema.mount-entry",
                (*path, index),
                f"a denial is a mount name only, not {kind_phrase(item)}",
            )
        elif _mount_name_ok(report, item, (*path, index)):
            found.append(item)
    return tuple(found)


def _mount_name_ok(report: Report, name: str, path: Path) -> bool:
    clean = (
        name == name.strip()
        and not _GLOB_CHARACTERS.intersection(name)
        and all(segment not in ("", ".", "..") for segment in name.split("/"))
    )
    if not clean:
        report.error(
            "schema.mount-name",
            path,
            f"an entry is a key of the mount table without its outer slashes, not {shown(repr(name), 60)}",
        )
    return clean


def read_variables(report: Report, value: Json, path: Path) -> tuple[str, ...]:
    """A state's `requires` or `locks`."""
    found: list[str] = []
    items = report.items(value, path, "a list of variable names", "schema.variable-list")
    for index, item in enumerate(items):
        if variable_name_ok(item):
            found.append(item)
        else:
            _bad_variable(report, item, (*path, index))
    return tuple(found)


def _bad_variable(report: Report, value: Json, path: Path) -> None:
    report.error(
        "schema.variable-name",
        path,
        f"a variable name is a lower-case letter, then lower-case letters, digits and '_' (such as order_id), "
        f"not {kind_phrase(value)}",
    )


def read_signature(
    report: Report, value: Json, path: Path, role: Literal["requires", "returns"]
) -> tuple[SignatureEntry, ...]:
    """A trigger's `requires` or `returns`."""
    expected = f"a list such as {role}: [order_id, {{ name: total, type: number }}]"
    found: list[SignatureEntry] = []
    seen: set[str] = set()
    for index, item in enumerate(report.items(value, path, expected, "schema.signature-list")):
        entry = _read_signature_entry(report, item, (*path, index))
        if entry is None:
            continue
        if entry.name in seen:
            report.error("schema.signature-duplicate", (*path, index), f"{entry.name!r} is listed twice")
        elif role == "returns" and entry.name in _RESERVED_RETURNS:
            report.error(
                "schema.signature-reserved",
                (*path, index),
                f"{entry.name!r} is reserved and no return: {_RESERVED_RETURNS[entry.name]}",
            )
        else:
            found.append(entry)
        seen.add(entry.name)
    return tuple(found)


def _read_signature_entry(report: Report, value: Json, path: Path) -> SignatureEntry | None:
    if isinstance(value, str):
        if variable_name_ok(value):
            return SignatureEntry(value)
        _bad_variable(report, value, path)
        return None
    problem = _signature_problem(value)
    if problem is not None:
        report.error("schema.signature-entry", path, problem)
        return None
    if not variable_name_ok(value["name"]):
        _bad_variable(report, value["name"], path)
        return None
    description = value["description"].strip() if "description" in value else None
    return SignatureEntry(value["name"], value.get("type"), description)


def _type_shown(value: Json) -> str:
    return shown(repr(value), 60) if isinstance(value, str) else f"({kind_phrase(value)})"


def _signature_problem(value: Json) -> str | None:
    if not isinstance(value, dict):
        return f"an entry is a variable name or {{ name, type?, description? }}, not {kind_phrase(value)}"
    name = value.get("name")
    if name is None:
        return "an entry has a name; accepted keys: name, type, description"
    called = shown(name, 40)
    unknown = next((key for key in value if key not in SIGNATURE_KEYS), None)
    if unknown is not None:
        return f'entry {called}: Unrecognized key: "{shown(unknown)}"; accepted keys: name, type, description'
    if "type" in value and value["type"] not in SIGNATURE_TYPES:
        return (
            f"entry {called}: unknown type {_type_shown(value['type'])}; types: {', '.join(SIGNATURE_TYPES)}"
        )
    if "description" in value and is_blank(value["description"]):
        return f"entry {called}: description must be a non-empty string"
    return None
