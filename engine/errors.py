"""The contract's typed errors (05 §17), one tree, each with the attributes the contract names.

Hosts import them from `archmax`. Refusals of a tool call are not errors: they are answers to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from core.errors import ArchmaxError


class WorkflowLoadError(ArchmaxError):
    """A named workflow cannot be used; nothing runs (01 §3)."""

    code: ClassVar[str] = "workflow-load"

    def __init__(self, workflow: str, path: str, problem: str) -> None:
        super().__init__(workflow, path, problem)
        self.workflow, self.path, self.problem = workflow, path, problem

    def __str__(self) -> str:
        return f"workflow {self.workflow!r} cannot be used: {self.problem} (run: archmax validate {self.workflow})"


class UnsupportedRuntimeContractError(ArchmaxError):
    """`runtime` names a contract this engine does not implement (01 §5.2)."""

    code: ClassVar[str] = "contract.unsupported"

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        super().__init__(requested, tuple(supported))
        self.requested, self.supported = requested, tuple(supported)

    def __str__(self) -> str:
        return f"runtime contract {self.requested} is not supported (supported: {', '.join(self.supported)})"


class WorkflowDisabledError(ArchmaxError):
    """`disabled: true`: the workflow starts no new turn (01 §5.7)."""

    code: ClassVar[str] = "workflow-disabled"

    def __init__(self, workflow: str) -> None:
        super().__init__(workflow)
        self.workflow = workflow

    def __str__(self) -> str:
        return f"Refusing to start: workflow '{self.workflow}' is disabled."


class UnknownTriggerError(ArchmaxError):
    """No state declares this trigger."""

    code: ClassVar[str] = "unknown-trigger"

    def __init__(self, trigger_id: str, available: Sequence[str]) -> None:
        super().__init__(trigger_id, tuple(available))
        self.trigger_id, self.available = trigger_id, tuple(available)

    def __str__(self) -> str:
        return f"unknown trigger {self.trigger_id!r}; declared: {', '.join(self.available) or 'none'}"


class UnknownSessionTriggerError(ArchmaxError):
    """A firing for a session that does not exist, on a trigger no state declares: it has nowhere to go."""

    code: ClassVar[str] = "unknown-session-trigger"

    def __init__(self, trigger: str) -> None:
        super().__init__(trigger)
        self.trigger = trigger

    def __str__(self) -> str:
        return f"trigger {self.trigger!r} is declared by no state and the session has not begun"


class ReservedToolNameError(ArchmaxError):
    """Host tools carry names the runtime owns (02 §4.5)."""

    code: ClassVar[str] = "reserved-tool-name"

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(tuple(names))
        self.names = tuple(names)

    def __str__(self) -> str:
        return f"reserved tool names: {', '.join(repr(n) for n in self.names)}; rename these host tools"


class ToolPathsError(ArchmaxError):
    """A declaration of path arguments is unusable (02 §9.4)."""

    code: ClassVar[str] = "tool-paths"

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(tool, problem)
        self.tool, self.problem = tool, problem

    def __str__(self) -> str:
        return f"tool paths of {self.tool!r}: {self.problem}"


class MountCollisionError(ArchmaxError):
    """A mount key begins with a name the session owns (05 §9.2)."""

    code: ClassVar[str] = "mount-collision"

    def __init__(self, key: str, holds: str) -> None:
        super().__init__(key, holds)
        self.key, self.holds = key, holds

    def __str__(self) -> str:
        return f"mount {self.key!r} collides with {self.holds}; choose another first segment"


class AuthoringBackendExposedError(ArchmaxError):
    """A writable mount is served by the backend that holds the workflows."""

    code: ClassVar[str] = "authoring-exposed"

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return (
            f"mount {self.key!r} is writable and served by the authoring backend; serve it from another one"
        )


class WorkspaceRootRequiredError(ArchmaxError):
    """A file-system default would need a root and none is known."""

    code: ClassVar[str] = "workspace-root-required"

    def __init__(self, needed_for: str) -> None:
        super().__init__(needed_for)
        self.needed_for = needed_for

    def __str__(self) -> str:
        return f"a workspace root is required for {self.needed_for}; pass workspace={{'root_dir': ...}}"


class SessionStoreRequiredError(ArchmaxError):
    """A custom backend came without a session store."""

    code: ClassVar[str] = "session-store-required"

    def __str__(self) -> str:
        return (
            "a custom backend needs a session_store: create_filesystem_session_store, "
            "create_backend_session_store or create_memory_session_store"
        )


class SessionStoreCapabilityError(ArchmaxError):
    """The session store cannot do this."""

    code: ClassVar[str] = "session-store-capability"

    def __init__(self, kind: str, capability: str) -> None:
        super().__init__(kind, capability)
        self.kind, self.capability = kind, capability

    def __str__(self) -> str:
        return f"a {self.kind} session store cannot {self.capability}"


class SessionStoreIdError(ArchmaxError):
    """A session id that may not be used (05 §2)."""

    code: ClassVar[str] = "session-id"

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(session_id, reason)
        self.session_id, self.reason = session_id, reason

    def __str__(self) -> str:
        return f"session id {self.session_id!r} cannot be used: {self.reason}"


class WorkspacePathEscapeError(ArchmaxError):
    """A path climbs above the workspace root."""

    code: ClassVar[str] = "workspace-path-escape"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path!r} leaves the workspace"


class InvalidVariableNameError(ArchmaxError):
    """A variable name outside `[a-z][a-z0-9_]*`."""

    code: ClassVar[str] = "invalid-variable-name"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        hint = (
            " (a dotted name writes no part of a variable: write the whole value)" if "." in self.name else ""
        )
        return f"invalid variable name {self.name!r}: a lower-case letter, then letters, digits, _{hint}"


class InvalidTitleError(ArchmaxError):
    """A session title must be one line of 1 to 200 characters."""

    code: ClassVar[str] = "invalid-title"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"invalid title: {self.problem}"


class SessionNotParkedError(ArchmaxError):
    """The session does not wait for a person's decision."""

    code: ClassVar[str] = "session-not-parked"

    def __init__(self, session_id: str, status: str) -> None:
        super().__init__(session_id, status)
        self.session_id, self.status = session_id, status

    def __str__(self) -> str:
        hint = "; it waits for input: deliver to it" if self.status == "awaiting_input" else ""
        return f"session {self.session_id!r} is not parked for a decision (status {self.status}){hint}"


class InvalidDecisionTargetError(ArchmaxError):
    """The chosen edge is none of the parked state's."""

    code: ClassVar[str] = "invalid-decision-target"

    def __init__(self, session_id: str, target: str, valid_targets: Sequence[str]) -> None:
        super().__init__(session_id, target, tuple(valid_targets))
        self.session_id, self.target, self.valid_targets = session_id, target, tuple(valid_targets)

    def __str__(self) -> str:
        return (
            f"{self.target!r} is not a decision session {self.session_id!r} offers; "
            f"valid: {', '.join(self.valid_targets) or 'none'}"
        )


class ParkedStateRemovedError(ArchmaxError):
    """The state a session is parked in is gone from the workflow (05 §4)."""

    code: ClassVar[str] = "parked-state-removed"

    def __init__(self, session_id: str, state: str) -> None:
        super().__init__(session_id, state)
        self.session_id, self.state = session_id, state

    def __str__(self) -> str:
        return (
            f"session {self.session_id!r} is parked in {self.state!r}, which the workflow no longer declares"
        )


class EmptyMessageError(ArchmaxError):
    """A message is blank."""

    code: ClassVar[str] = "empty-message"

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id

    def __str__(self) -> str:
        return f"the message to session {self.session_id!r} is empty"


class SessionNotAwaitingInputError(ArchmaxError):
    """The session does not wait for a delivery."""

    code: ClassVar[str] = "session-not-awaiting-input"

    def __init__(self, session_id: str, status: str) -> None:
        super().__init__(session_id, status)
        self.session_id, self.status = session_id, status

    def __str__(self) -> str:
        hint = "; it waits for a decision: decide or reply" if self.status == "awaiting_decision" else ""
        return f"session {self.session_id!r} is not awaiting input (status {self.status}){hint}"


class MissingDeliveryTriggerError(ArchmaxError):
    """A delivery names no trigger."""

    code: ClassVar[str] = "missing-delivery-trigger"

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id

    def __str__(self) -> str:
        return f"a delivery to session {self.session_id!r} needs a trigger id"


class SessionNotResumableError(ArchmaxError):
    """Another writer holds the session, or its state allows no such turn now."""

    code: ClassVar[str] = "session-not-resumable"

    def __init__(self, session_id: str, status: str, detail: str = "") -> None:
        super().__init__(session_id, status, detail)
        self.session_id, self.status, self.detail = session_id, status, detail

    def __str__(self) -> str:
        return f"session {self.session_id!r} cannot take a turn now (status {self.status})" + (
            f": {self.detail}" if self.detail else ""
        )


class ChildSessionError(ArchmaxError):
    """A child session its parent waits on is resumed only through the parent (04 OP-10)."""

    code: ClassVar[str] = "child-session"

    def __init__(self, session_id: str, parent_session_id: str) -> None:
        super().__init__(session_id, parent_session_id)
        self.session_id, self.parent_session_id = session_id, parent_session_id

    def __str__(self) -> str:
        return f"session {self.session_id!r} belongs to {self.parent_session_id!r}: resume the parent"


class InvalidSessionPathError(ArchmaxError):
    """A session path is no dotted path over the firing's variables."""

    code: ClassVar[str] = "invalid-session-path"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"session path {self.path!r}: {self.problem}"


class SubWorkflowError(ArchmaxError):
    """A delegation call that gave no answer (04 §4)."""

    code: ClassVar[str] = "sub-workflow"
    REFUSALS: ClassVar[frozenset[str]] = frozenset(
        {
            "depth-exceeded",
            "cycle",
            "unresolved-param",
            "unknown-workflow",
            "not-delegatable",
            "disabled",
            "missing-param",
            "invalid-param",
        }
    )

    def __init__(self, kind: str, workflow: str, problem: str) -> None:
        super().__init__(kind, workflow, problem)
        self.kind, self.workflow, self.problem = kind, workflow, problem

    @property
    def is_refusal(self) -> bool:
        """Nothing ran: the caller corrects the call and makes it again."""
        return self.kind in self.REFUSALS

    def __str__(self) -> str:
        return self.problem


class ForbiddenSandboxImportError(ArchmaxError):
    """A workspace script imports something the sandbox does not offer (03 §19.4)."""

    code: ClassVar[str] = "forbidden-import"

    def __init__(self, specifier: str, path: str = "") -> None:
        super().__init__(specifier, path)
        self.specifier, self.path = specifier, path

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}import of {self.specifier!r} is not available; only '@archmax-ai/harness/*' types are"


class ModelConfigurationError(ArchmaxError):
    """No model can be built from what is configured; says which setting is missing or wrong."""

    code: ClassVar[str] = "model-configuration"


class MiddlewareError(ArchmaxError):
    """A host's middleware that cannot run here, or did what only a graph can do."""

    code: ClassVar[str] = "middleware"

    def __init__(self, middleware: str, problem: str) -> None:
        super().__init__(middleware, problem)
        self.middleware, self.problem = middleware, problem

    def __str__(self) -> str:
        return f"middleware {self.middleware!r}: {self.problem}"


class HostError(ArchmaxError):
    """`ARCHMAX_HOST` cannot be used (ruling 18)."""

    code: ClassVar[str] = "host"

    def __init__(self, target: str, problem: str) -> None:
        super().__init__(target, problem)
        self.target, self.problem = target, problem

    def __str__(self) -> str:
        return f"ARCHMAX_HOST {self.target!r}: {self.problem}"
