"""archmax: governed LLM-agent workflows. The one public package; the other top-level packages are private.

    from archmax import create_agent

    agent = await create_agent(workflow="refund", workspace={"root_dir": "."})
    outcome = await agent.send(message="I want my money back")

Names are imported when they are first used, so that `import archmax` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

#: public name → the module that defines it
_PUBLIC: dict[str, str] = {
    "create_agent": "archmax.agent",
    "Agent": "engine.host.agent",
    "ApiError": "archmax.client",
    "ApiUnreachable": "archmax.client",
    "Client": "archmax.client",
    "SessionStore": "engine.host.stores",
    "create_filesystem_session_store": "engine.host.stores",
    "create_memory_session_store": "engine.host.stores",
    "create_object_session_store": "engine.host.stores",
    "create_backend_session_store": "engine.host.stores",
    "SandboxRuntime": "sandbox.runtime",
    "RuntimeOptions": "sandbox.runtime",
    "RuntimeSession": "sandbox.runtime",
    "ToolRejected": "sandbox.runtime",
    "tools_from_map": "engine.host.tool_map",
    "current_context": "engine.host.tool_map",
    "Outcome": "engine.session.outcome",
    "default_mounts": "engine.workspace.mounts",
    "SeedPathError": "engine.workspace.seed",
    "mount_subtree": "engine.workspace.subtree",
    "session_id_rejection": "engine.workspace.session_id",
    "parent_session_id": "engine.workspace.session_id",
    "is_child_session_of": "engine.workspace.session_id",
    "workflow_tool_name": "engine.delegation.names",
    "workflow_slug_from_tool_name": "engine.delegation.names",
    "is_workflow_tool_name": "engine.delegation.names",
    "normalize_signature": "engine.spec.signatures",
    "signature_for_trigger": "engine.spec.signatures",
    "signature_json_schema": "engine.spec.signatures",
    "signature_value_issues": "engine.spec.signatures",
    "validate_workflow": "archmax.validation",
    "is_runtime_note": "engine.session.notes",
    "runtime_note_kind": "engine.session.notes",
    "opens_turn": "engine.session.notes",
    "last_agent_text": "engine.session.notes",
    "messages_since": "engine.session.notes",
    "last_turn": "engine.session.notes",
    "create_usage_tracker": "engine.models.usage",
    "classify_workspace_path": "engine.governance.zones",
    "ArchmaxError": "core.errors",
    **dict.fromkeys(
        (
            "AuthoringBackendExposedError",
            "ChildSessionError",
            "EmptyMessageError",
            "ForbiddenSandboxImportError",
            "HostError",
            "InvalidDecisionTargetError",
            "InvalidSessionPathError",
            "InvalidTitleError",
            "InvalidVariableNameError",
            "MiddlewareError",
            "MissingDeliveryTriggerError",
            "ModelConfigurationError",
            "MountCollisionError",
            "ParkedStateRemovedError",
            "ReservedToolNameError",
            "SessionNotAwaitingInputError",
            "SessionNotParkedError",
            "SessionNotResumableError",
            "SessionStoreCapabilityError",
            "SessionStoreIdError",
            "SessionStoreRequiredError",
            "SubWorkflowError",
            "ToolPathsError",
            "UnknownSessionTriggerError",
            "UnknownTriggerError",
            "UnsupportedRuntimeContractError",
            "WorkflowDisabledError",
            "WorkflowLoadError",
            "WorkspacePathEscapeError",
            "WorkspaceRootRequiredError",
        ),
        "engine.errors",
    ),
}
#: names that are spelled otherwise where they are defined
_SPELLED = {"classify_workspace_path": "classify"}

__all__ = sorted(_PUBLIC)  # noqa: PLE0605  # pyrefly: ignore [unresolvable-dunder-all] - made from the table above


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'archmax' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), _SPELLED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
