"""The protocol's constants. Times are milliseconds (docs/protocol.md §2)."""

from __future__ import annotations

#: an accept that took longer looks at the head again
WINDOW_MS = 20_000
#: an inbox entry stays at least this long after its turn was seen over; must exceed `WINDOW_MS`
KEEP_MS = 120_000
#: how long seals stay, and with them a stale worker stopped
SEAL_MS = 86_400_000
#: how long a deleted session's tombstone stays
TOMB_MS = 86_400_000
#: how long an idempotency key is remembered; at most `TOMB_MS`, so that no key outlives the session it names
KEY_MS = 86_400_000
#: runs of one step without any progress before the turn ends `worker-lost`
MAX_ATTEMPTS = 3
#: segments of one size that become one of the next
MERGE = 8
