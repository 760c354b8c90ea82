"""The spec hash: which document governed a turn, and the snapshot that keeps it.

Formatting, key order and `metadata` do not count; every edit that governs does.

Contract: 01 §5.6, 05 §3.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from core.jsontext import Json, JsonObject, clean

HASH_CHARS: Final = 32


def snapshot_document(document: JsonObject) -> JsonObject:
    """What is hashed and kept: the document without the `metadata` of root and states, integral numbers as integers."""
    kept = {key: _plain(value) for key, value in document.items() if key != "metadata"}
    states = kept.get("states")
    if isinstance(states, dict):
        kept["states"] = {
            slug: {key: value for key, value in state.items() if key != "metadata"}
            if isinstance(state, dict)
            else state
            for slug, state in states.items()
        }
    return kept


def snapshot_bytes(document: JsonObject) -> bytes:
    """The canonical JSON of the snapshot: keys sorted at every level, no white space."""
    text = json.dumps(
        clean(snapshot_document(document)),
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    return text.encode("utf-8")


def spec_hash(document: JsonObject) -> str:
    """The first 32 hexadecimal digits of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(snapshot_bytes(document)).hexdigest()[:HASH_CHARS]


def _plain(value: Json) -> Json:
    """`3.0` and `3` are one number, spelled two ways."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
