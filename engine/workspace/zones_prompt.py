"""What the static prompt says of the workspace (03 §17.3): the same text on every call of a session."""

from __future__ import annotations

from engine.governance.zones import OFFLOAD_AREAS, SCRATCHPAD, MountPrefixes


def workspace_zones(mounts: MountPrefixes) -> str:
    """The zones layer. Governed mounts are not named: the current-state block has those of the state."""
    offload = " and ".join(f"`{area}/`" for area in sorted(OFFLOAD_AREAS, reverse=True))
    lines = [
        "## Workspace",
        "",
        "Paths start at the workspace root.",
        f"- `{SCRATCHPAD}/`: your working area, always writable",
        f"- {offload}: results moved out of the conversation, read-only",
    ]
    ungoverned = [name for name in mounts.names if name not in mounts.governed and not name.startswith(".")]
    for name in sorted(ungoverned, key=lambda name: (name in mounts.writable, name)):
        shown = f"{name}/" if name in mounts.dirs else name
        access = "read/write" if name in mounts.writable else "read-only"
        browse = ", browse only: not searched from above" if name in mounts.unsearchable else ""
        lines.append(f"- `{shown}`: {access}{browse}")
    if mounts.governed:
        lines.append("- further mounts depend on the state: see the current state below")
    lines.append("- any other path: as the current state allows")
    return "\n".join(lines)
