"""Frames between the host and a sandbox process: four bytes of length, one of kind, then text or JSON.

The host trusts nothing it reads: a frame longer than `MAX_FRAME_BYTES` or of an unknown kind ends the process it
came from. Nothing here but constants and framing, since both sides load it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

#: largest JSON text of one value (arguments, result), in UTF-16 units as JavaScript counts
MAX_VALUE_CHARS: Final = 4 * 2**20
#: an escaped UTF-16 unit takes at most six bytes, a plain one three; values beyond this are refused
MAX_FRAME_BYTES: Final = 24 * 2**20
#: one console line, and all of an evaluation's
MAX_LINE_CHARS: Final = 16 * 2**10
MAX_LINES: Final = 1000
MAX_LINES_BYTES: Final = 512 * 2**10
MAX_MESSAGE_CHARS: Final = 8 * 2**10
MAX_SHOWN_CHARS: Final = 256 * 2**10
#: source of one evaluation
MAX_SOURCE_BYTES: Final = 2 * 2**20

HEADER: Final = struct.Struct(">IB")


class Kind(IntEnum):
    """What a frame holds."""

    # to the child
    PREPARE = 1  #: {memory}: the largest heap it will be asked for; seals the process
    EVALUATE = 2  #: the request
    SETTLE = 3  #: [[seq, ok, JSON text, epoch ms]…], each answered and worked off before the next
    REGEX = 4  #: {pattern, flags, text | null}
    # to the host
    READY = 16  #: with the process's own pidfd
    PREPARED = 17  #: {seccomp: bool}
    LINE = 18  #: a console line, as JSON string
    CALL = 19  #: [seq, tool, args]
    VALUE = 20  #: the JSON text of the result, before the frame that reports it
    IDLE = 21  #: nothing left to run: {missing?, report?}
    FATAL = 22  #: {name, message}: the interpreter cannot go on; the process ends
    MATCHED = 23  #: {malformed} or {found}


KINDS: Final = {int(kind): kind for kind in Kind}


def frame(kind: Kind, payload: bytes) -> bytes:
    return HEADER.pack(len(payload), kind) + payload
