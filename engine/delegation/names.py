"""Names of delegation tools, for hosts (04 §1)."""

from __future__ import annotations

from engine.governance.names import DELEGATION_PREFIX, delegation_target


def workflow_tool_name(slug: str) -> str:
    return DELEGATION_PREFIX + slug


def workflow_slug_from_tool_name(name: str) -> str | None:
    """The slug, or None when the tool is no delegation."""
    return delegation_target(name)


def is_workflow_tool_name(name: str) -> bool:
    return delegation_target(name) is not None
