"""A session's artifacts as the fleet serves them: derived from its log when asked for, never stored (05 §16)."""

from __future__ import annotations

from engine.host.artifacts import NAMES, TRAJECTORY, artifact, graph_json

__all__ = ["NAMES", "TRAJECTORY", "artifact", "graph_json"]
