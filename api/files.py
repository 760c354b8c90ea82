"""Serving a session's files: ranges, safe types and names. Whatever an agent wrote is data here, never a page."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from api.answers import matches
from api.problems import HttpProblem

#: shown in place; everything else is a download
_INLINE: Final = {
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".csv": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_DOWNLOAD: Final = {".json": "application/json", ".pdf": "application/pdf", ".zip": "application/zip"}
_RANGE: Final = re.compile(r"bytes=([0-9]{0,15})-([0-9]{0,15})")
_CSP: Final = "default-src 'none'; sandbox; frame-ancestors 'none'"


def media_type(path: str) -> tuple[str, bool]:
    """The type a file is served as, by its name alone, and whether a browser may show it."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _INLINE:
        return _INLINE[suffix], True
    return _DOWNLOAD.get(suffix, "application/octet-stream"), False


def disposition(path: str, inline: bool) -> str:
    """RFC 6266: a plain name for old clients, the exact one percent-encoded."""
    name = PurePosixPath(path).name or "file"
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:150]
    kind = "inline" if inline else "attachment"
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def file_response(
    request: Request, path: str, content: bytes, tag: str, *, served_as: str | None = None
) -> Response:
    """The file, a range of it, or 304. Raises: `HttpProblem` for a range beyond its end."""
    kind, inline = media_type(path)
    etag = f'"{tag}"'
    headers = {
        "etag": etag,
        "accept-ranges": "bytes",
        "cache-control": "no-cache",
        "content-disposition": disposition(path, inline),
        "content-security-policy": _CSP,
    }
    if matches(request, etag):
        return Response(status_code=304, headers=headers)
    span = _asked(request, etag, len(content))
    if span is None:
        return Response(content, 200, headers, served_as or kind)
    first, last = span
    headers["content-range"] = f"bytes {first}-{last}/{len(content)}"
    return Response(content[first : last + 1], 206, headers, served_as or kind)


def _asked(request: Request, etag: str, size: int) -> tuple[int, int] | None:
    """One range, inclusive. Several ranges, other units and a stale `If-Range` get the whole file."""
    match = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if match is None or request.headers.get("if-range", etag) != etag:
        return None
    first, last = match.groups()
    if not first and not last:
        return None
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last), size - 1) if first and last else size - 1
    if first and last and int(last) < start:
        return None
    if start >= size or (not first and int(last) == 0):
        raise HttpProblem(
            "range-not-satisfiable", f"the file has {size} bytes", {"content-range": f"bytes */{size}"}
        )
    return start, end
