"""Keys: what the stores accept, and how any text becomes one safe segment.

A session id may hold any Unicode text, `/`, `%` or a newline; S3 servers and file systems each lose some of those
(empty and `.` segments, trailing slashes, normalised accents). So ids are encoded before they become keys: plain ids
stay readable, `~` stays as it is, and everything else becomes `=XX` per UTF-8 byte.

* Injective: two texts never share a segment. File systems that ignore case are not supported.
* `encode_segment(S) + "~"` starts `encode_segment(S + "~1")` and no segment of a text that does not start with `S~`,
  so listing that prefix finds the descendants of session S (04 §5.1) and nothing else.
* Longer than `MAX_ENCODED` bytes: the part before the trailing `~<digits>` is cut and a digest added after `==`, which no
  plain encoding holds. Such a segment cannot be decoded; who needs the id reads it from the object's body.
"""

from __future__ import annotations

import hashlib
import re

from storage.objects import InvalidKey

#: Bytes an id's own part may take before it is shortened. The rest of 255 is for `~<digits>` of children.
MAX_ENCODED = 200
MAX_SEGMENT = 255
#: S3's limit for a whole key, less what a bucket prefix may take.
MAX_KEY = 900

_DIGEST_MARK = "=="
_DIGEST_LENGTH = 64
#: The empty text. A lone `=` is never part of an escape.
_EMPTY = "="

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")
_PLAIN = re.compile(r"[A-Za-z0-9~-][A-Za-z0-9._~-]*")
_CHILD_SUFFIX = re.compile(r"((?:~[0-9]+)+)\Z")
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~=-]{1,255}"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_PREFIX = re.compile(rf"(?:{_SEGMENT}/)*[A-Za-z0-9._~=-]{{0,255}}")
_ONE_SEGMENT = re.compile(_SEGMENT)


def encode_segment(text: str) -> str:
    """One key segment for any `text`, at most 255 bytes, never starting with `_` or `.`.

    Raises: `InvalidKey` when the trailing `~<digits>` parts alone are too long (a delegation some tens of levels deep).
    """
    if len(text) <= MAX_ENCODED and _PLAIN.fullmatch(text):
        return text
    children = _CHILD_SUFFIX.search(text)
    suffix = children.group(1) if children else ""
    encoded = _escape(text[: len(text) - len(suffix)])
    if len(encoded) > MAX_ENCODED:
        encoded = _shorten(encoded)
    if len(encoded) + len(suffix) > MAX_SEGMENT:
        raise InvalidKey(text, "names a session nested too deeply for one key segment")
    return (encoded + suffix) or _EMPTY


def decode_segment(segment: str) -> str | None:
    """The text `encode_segment` made `segment` from; None when it was shortened.

    Raises: `InvalidKey` for what `encode_segment` never returns.
    """
    if is_shortened(segment):
        return None
    if segment == _EMPTY:
        return ""
    try:
        raw = re.sub(
            rb"=([0-9A-F]{2})", lambda m: bytes.fromhex(m.group(1).decode()), segment.encode("ascii")
        )
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeError:
        text = None
    if text is None or encode_segment(text) != segment:
        raise InvalidKey(segment, "is not the encoding of any text")
    return text


def is_shortened(segment: str) -> bool:
    """Whether `segment` carries a digest in place of the end of a long text."""
    return _DIGEST_MARK in segment


def check_key(key: str) -> str:
    """`key` itself. Raises: `InvalidKey`."""
    if len(key) > MAX_KEY or not _KEY.fullmatch(key):
        raise InvalidKey(key)
    return key


def check_prefix(prefix: str) -> str:
    """`prefix` itself: empty, or the beginning of some key. Raises: `InvalidKey`."""
    if len(prefix) > MAX_KEY or not _PREFIX.fullmatch(prefix):
        raise InvalidKey(prefix)
    return prefix


def is_segment(name: str) -> bool:
    """Whether `name` may be one segment of a key."""
    return _ONE_SEGMENT.fullmatch(name) is not None


def content_etag(body: bytes) -> str:
    """The etag of stores that have none of their own: a digest, like S3's. Equal bodies have equal etags."""
    return hashlib.sha256(body).hexdigest()[:32]


def _escape(text: str) -> str:
    """`=XX` for every byte outside the safe set, and for a first `_` or `.`. Lone surrogates survive."""
    raw = text.encode("utf-8", "surrogatepass")
    encoded = "".join(chr(byte) if byte in _SAFE else f"={byte:02X}" for byte in raw)
    if encoded[:1] in ("_", "."):
        return f"={ord(encoded[0]):02X}{encoded[1:]}"
    return encoded


def _shorten(encoded: str) -> str:
    """The readable beginning, cut between escapes, and the digest of all of `encoded`."""
    kept = encoded[: MAX_ENCODED - len(_DIGEST_MARK) - _DIGEST_LENGTH]
    if "=" in kept[-2:]:
        kept = kept[: kept.rindex("=")]
    return kept + _DIGEST_MARK + hashlib.sha256(encoded.encode("ascii")).hexdigest()
