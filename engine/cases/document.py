"""The typed case document: what a `*.test.yaml` says after it was read and found well-shaped (06 §2, §3, §6).

Plain frozen data. Steps are one class per key; `key` is the step's name in the file. Built by `engine.cases.parse`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import Json, JsonObject

CASE_TITLE_MAX_LENGTH: Final = 60
CASE_DESCRIPTION_MAX_LENGTH: Final = 200
CASE_SUFFIXES: Final = (".test.yaml", ".test.yml")

Channel: TypeAlias = Literal["decision", "input"]
ReturnStatus: TypeAlias = Literal["ok", "error"]
TRAIL_KINDS: Final = ("trigger", "agent", "human", "grader", "code", "sub-workflow", "reset", "on_error")


class CaseSchemaError(ArchmaxError):
    """A case file that is no case. `issues` are all of them, each with its place."""

    code: ClassVar[str] = "case-schema"

    def __init__(self, file: str, issues: tuple[str, ...]) -> None:
        super().__init__(file, issues)
        self.file, self.issues = file, issues

    @override
    def __str__(self) -> str:
        return f"{self.file}: {'; '.join(self.issues)}"


# -- actions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """One message to the session."""

    key: ClassVar[str] = "send"
    text: str


@dataclass(frozen=True, slots=True)
class Decide:
    """A person takes the parked state's transition."""

    key: ClassVar[str] = "decide"
    to: str
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Deliver:
    """A trigger delivered into a session that waits for input."""

    key: ClassVar[str] = "deliver"
    trigger: str
    variables: JsonObject = field(default_factory=dict)


# -- assertions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Succeeded:
    key: ClassVar[str] = "succeeded"


@dataclass(frozen=True, slots=True)
class Parked:
    key: ClassVar[str] = "parked"
    channel: Channel | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """`reason` may be a regex string."""

    key: ClassVar[str] = "raised"
    code: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReachedState:
    key: ClassVar[str] = "reachedState"
    state: str


@dataclass(frozen=True, slots=True)
class TrailCount:
    """Exactly `count` steps equal every given field."""

    key: ClassVar[str] = "trail"
    count: int
    to: str | None = None
    kind: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NoTraversal:
    key: ClassVar[str] = "noTraversal"


@dataclass(frozen=True, slots=True)
class TriggerArrival:
    key: ClassVar[str] = "triggerArrival"
    trigger: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Tokens are literals or regex strings."""

    key: ClassVar[str] = "reply"
    includes: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CalledTool:
    """`input` is matched partially; None when the case does not care."""

    key: ClassVar[str] = "calledTool"
    name: str
    input: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class NotCalledTool:
    key: ClassVar[str] = "notCalledTool"
    name: str
    input: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class BlockedTool:
    key: ClassVar[str] = "blockedTool"
    name: str
    input: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class RanWorkflow:
    """`count` None means at least one."""

    key: ClassVar[str] = "ranWorkflow"
    workflow: str
    status: ReturnStatus = "ok"
    count: int | None = None


@dataclass(frozen=True, slots=True)
class UsedNoTools:
    key: ClassVar[str] = "usedNoTools"


@dataclass(frozen=True, slots=True)
class Variables:
    key: ClassVar[str] = "variables"
    expect: JsonObject
    path: dict[str, str] = field(default_factory=dict)
    locked: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grade:
    key: ClassVar[str] = "grade"
    closed_qa: str
    at_least: float


Action: TypeAlias = Send | Decide | Deliver
ToolAssertion: TypeAlias = CalledTool | NotCalledTool | BlockedTool
Assertion: TypeAlias = (
    Succeeded
    | Parked
    | Raised
    | ReachedState
    | TrailCount
    | NoTraversal
    | TriggerArrival
    | Reply
    | ToolAssertion
    | RanWorkflow
    | UsedNoTools
    | Variables
    | Grade
)
Step: TypeAlias = Action | Assertion

ACTIONS: Final = (Send.key, Decide.key, Deliver.key)
ASSERTIONS: Final = (
    Succeeded.key,
    Parked.key,
    Raised.key,
    ReachedState.key,
    TrailCount.key,
    NoTraversal.key,
    TriggerArrival.key,
    Reply.key,
    CalledTool.key,
    NotCalledTool.key,
    BlockedTool.key,
    RanWorkflow.key,
    UsedNoTools.key,
    Variables.key,
    Grade.key,
)
#: a miss halts the case (06 §6.1)
STRUCTURAL: Final = frozenset(
    {
        Succeeded.key,
        Parked.key,
        Raised.key,
        ReachedState.key,
        TrailCount.key,
        NoTraversal.key,
        TriggerArrival.key,
    }
)


# -- the document ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FixtureRef:
    """A workspace entry copied byte for byte from below the workflow's `tests/`."""

    path: str


@dataclass(frozen=True, slots=True)
class Mock:
    """`result` None stands for absent and for null."""

    tool: str
    when_input: JsonObject | None = None
    result: Json = None


@dataclass(frozen=True, slots=True)
class CaseDocument:
    """`file` and `id` say where it came from; they are no part of what it says."""

    title: str
    description: str
    skip: str | None = None
    trigger: str | None = None
    variables: JsonObject = field(default_factory=dict)
    #: path → text, `FixtureRef`, or any other value (written as JSON)
    workspace: dict[str, Json | FixtureRef] = field(default_factory=dict)
    mocks: tuple[Mock, ...] = ()
    clock: str | None = None
    steps: tuple[Step, ...] = ()
    file: str = field(default="", compare=False)
    id: str = field(default="", compare=False)


def is_case_file(path: str) -> bool:
    return path.endswith(CASE_SUFFIXES)


def case_id(file: str, tests_dir: str) -> str:
    """The path under `tests/` without the extension (06 §1); the whole path when it lies elsewhere."""
    prefix = tests_dir.strip("/") + "/"
    name = file.lstrip("/").removeprefix(prefix)
    for suffix in CASE_SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name
