"""Reading a whole workflow document: the root keys and every block that is no state (01 §5).

The strict check and the typed document are one pass: every value is judged where it is read. The document that comes
back is best-effort when something was reported; `engine.spec.loader` says whether it may be used.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, Literal

from core.jsontext import Json, JsonObject
from engine.spec.model import Judge, RuntimeContract, Settings, Spec, TestSettings
from engine.spec.paths import is_blank
from engine.spec.read_lists import read_grants, read_mount_denials, read_skills, read_tools
from engine.spec.read_state import read_metadata, read_model, read_states
from engine.spec.report import Removed, Report, is_number, kind_phrase
from engine.spec.yaml12 import Path

ROOT_KEYS: Final = (
    "title",
    "instructions",
    "disabled",
    "runtime",
    "settings",
    "tests",
    "tools",
    "skills",
    "mounts",
    "metadata",
    "states",
)
SETTINGS_KEYS: Final = (
    "model",
    "timeoutMs",
    "memoryLimitBytes",
    "maxPtcCalls",
    "maxResultChars",
    "prompt_cache",
)
TESTS_KEYS: Final = ("maxConcurrency", "caseTimeoutMs", "judge")
CACHE_TTLS: Final[tuple[Literal["5m", "1h"], ...]] = ("5m", "1h")

_REMOVED_ROOT: Final[Removed] = {
    "extensions": ("removed.extensions", "nothing replaces it: a custom check is a code state"),
    "rubrics": ("removed.rubrics", "use a grader state"),
    "editor": ("removed.editor", "keep editor data in metadata"),
    "name": ("removed.name", "use title"),
    "description": ("removed.description", "use instructions, reread as direction"),
    "policy": ("removed.policy", "use tools.forbid_always and skills.forbid_always"),
    "triggers": ("removed.root-triggers", "declare triggers on the state they enter"),
    "budget": ("removed.root-budget", "delete it; bound a state, or let the host set the recursion limit"),
    "variables": ("removed.variables", "variables are not declared: one exists once it is set"),
}
_REMOVED_SKILLS: Final[Removed] = {
    "allow": ("removed.skills-ceiling", "use skills.allow_always: [] and lists on the states")
}
_REMOVED_MOUNTS: Final[Removed] = {
    "allow": ("removed.mounts-ceiling", "use mounts.allow_always and lists on the states")
}
_REMOVED_SETTINGS: Final[Removed] = {
    "sub_workflows": ("removed.settings", "its bounds are the dispatcher's configuration"),
    "prompt": ("removed.settings", "prompts are host configuration"),
}
_REMOVED_TESTS: Final[Removed] = {"reporters": ("removed.reporters", "delete it")}


def read_spec(report: Report, slug: str, document: JsonObject) -> Spec:
    """The typed document; whatever is malformed is reported and stands at its default."""
    keys = report.mapping(document, (), ROOT_KEYS, removed=_REMOVED_ROOT)
    always, never = "allow_always", "forbid_always"
    tools = _block(report, keys, "tools")
    skills = _block(report, keys, "skills", _REMOVED_SKILLS)
    mounts = _block(report, keys, "mounts", _REMOVED_MOUNTS)
    return Spec(
        slug,
        title=report.string(keys["title"], ("title",)) if "title" in keys else None,
        instructions=_read_instructions(report, keys),
        disabled=_read_disabled(report, keys),
        runtime=_read_runtime(report, keys["runtime"]) if "runtime" in keys else RuntimeContract(),
        settings=_read_settings(report, keys["settings"]) if "settings" in keys else Settings(),
        tests=_read_tests(report, keys["tests"]) if "tests" in keys else TestSettings(),
        tools_allow_always=read_tools(report, tools[always], ("tools", always)) if always in tools else None,
        tools_forbid_always=read_tools(report, tools[never], ("tools", never)) if never in tools else (),
        skills_allow_always=read_skills(report, skills[always], ("skills", always))
        if always in skills
        else (),
        skills_forbid_always=read_skills(report, skills[never], ("skills", never)) if never in skills else (),
        skills_declared="skills" in keys,
        mounts_allow_always=read_grants(report, mounts[always], ("mounts", always))
        if always in mounts
        else (),
        mounts_forbid_always=(
            read_mount_denials(report, mounts[never], ("mounts", never)) if never in mounts else ()
        ),
        mounts_declared="mounts" in keys,
        metadata=read_metadata(report, keys["metadata"], ("metadata",)) if "metadata" in keys else None,
        states=read_states(report, document),
        document=document,
    )


def document_disabled(document: JsonObject) -> bool:
    """Whether a document, well-shaped or not, is switched off: anything but absent, null and false is (01 §5.7)."""
    value = document.get("disabled")
    return value is not None and value is not False


def _block(report: Report, keys: JsonObject, name: str, removed: Removed | None = None) -> JsonObject:
    if name not in keys:
        return {}
    return report.mapping(keys[name], (name,), ("allow_always", "forbid_always"), removed=removed or {})


def _read_instructions(report: Report, keys: JsonObject) -> str | None:
    if "instructions" not in keys:
        return None
    value = keys["instructions"]
    if is_blank(value):
        report.error(
            "schema.instructions", ("instructions",), f"must be a non-empty string, not {kind_phrase(value)}"
        )
        return None
    return str(value)


def _read_disabled(report: Report, keys: JsonObject) -> bool:
    if "disabled" in keys and not isinstance(keys["disabled"], bool):
        report.error(
            "schema.disabled",
            ("disabled",),
            f"must be true or false, not {kind_phrase(keys['disabled'])}: "
            "a value that is not false would be read as disabled",
        )
    return document_disabled(keys)


def _read_runtime(report: Report, value: Json) -> RuntimeContract:
    keys = report.mapping(value, ("runtime",), ("engine", "version"))
    default = RuntimeContract()
    if not keys:
        return default
    engine = report.string(keys["engine"], ("runtime", "engine")) if "engine" in keys else None
    version = default.version
    if "version" in keys:
        given = keys["version"]
        if isinstance(given, str):
            version = given
        elif is_number(given):
            version = _number_text(given)
        else:
            report.wrong_type(("runtime", "version"), "a string or a number", given)
    return RuntimeContract(default.engine if engine is None else engine, version, "declared")


def _number_text(value: float) -> str:
    """A number as it is written in decimals; an integral one without them (01 §5.2)."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return format(Decimal(repr(value)), "f") if isinstance(value, int) or value == value else "nan"


def _read_settings(report: Report, value: Json) -> Settings:
    keys = report.mapping(value, ("settings",), SETTINGS_KEYS, removed=_REMOVED_SETTINGS)
    numbers = {
        key: report.integer(keys[key], ("settings", key), least=least)
        for key, least in (
            ("timeoutMs", 1),
            ("memoryLimitBytes", 1),
            ("maxPtcCalls", 0),
            ("maxResultChars", 1),
        )
        if key in keys and not (key == "maxPtcCalls" and keys[key] is None)
    }
    enabled, ttl = _read_cache(report, keys["prompt_cache"]) if "prompt_cache" in keys else (None, None)
    return Settings(
        model=read_model(report, keys["model"], ("settings", "model")) if "model" in keys else None,
        timeout_ms=numbers.get("timeoutMs") or Settings().timeout_ms,
        memory_limit_bytes=numbers.get("memoryLimitBytes"),
        max_ptc_calls=numbers.get("maxPtcCalls"),
        ptc_unbounded="maxPtcCalls" in keys and keys["maxPtcCalls"] is None,
        max_result_chars=numbers.get("maxResultChars"),
        prompt_cache_enabled=enabled,
        prompt_cache_ttl=ttl,
    )


def _read_cache(report: Report, value: Json) -> tuple[bool | None, Literal["5m", "1h"] | None]:
    path: Path = ("settings", "prompt_cache")
    keys = report.mapping(value, path, ("enabled", "ttl"))
    enabled = report.boolean(keys["enabled"], (*path, "enabled")) if "enabled" in keys else None
    if "ttl" not in keys:
        return enabled, None
    ttl = next((known for known in CACHE_TTLS if known == keys["ttl"]), None)
    if ttl is None:
        report.error(
            "schema.prompt-cache-ttl", (*path, "ttl"), f"must be 5m or 1h, not {kind_phrase(keys['ttl'])}"
        )
    return enabled, ttl


def _read_tests(report: Report, value: Json) -> TestSettings:
    keys = report.mapping(value, ("tests",), TESTS_KEYS, removed=_REMOVED_TESTS)
    numbers = {
        key: report.integer(keys[key], ("tests", key), least=1)
        for key in ("maxConcurrency", "caseTimeoutMs")
        if key in keys
    }
    return TestSettings(
        case_timeout_ms=numbers.get("caseTimeoutMs") or TestSettings().case_timeout_ms,
        judge=_read_judge(report, keys["judge"]) if "judge" in keys else None,
    )


def _read_judge(report: Report, value: Json) -> Judge:
    path: Path = ("tests", "judge")
    keys = report.mapping(value, path, ("model", "modelOptions"))
    model = report.string(keys["model"], (*path, "model"), filled=True) if "model" in keys else None
    if "modelOptions" not in keys:
        return Judge(model)
    path = (*path, "modelOptions")
    options = report.mapping(keys["modelOptions"], path, ("temperature", "maxTokens"))
    tokens = (
        report.integer(options["maxTokens"], (*path, "maxTokens"), least=1)
        if "maxTokens" in options
        else None
    )
    temperature = None
    if "temperature" in options:
        given = options["temperature"]
        if not is_number(given):
            report.wrong_type((*path, "temperature"), "a number of at least 0", given)
        elif not 0 <= given < float("inf"):
            report.error(
                "schema.number", (*path, "temperature"), f"must be a number of at least 0, not {given}"
            )
        else:
            temperature = float(given)
    return Judge(model, temperature, tokens)
