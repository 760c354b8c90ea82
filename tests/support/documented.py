"""Holds every answer of the API to its own OpenAPI document: status, media type, shape, and the code of a refusal."""

from __future__ import annotations

import re
from typing import Any

import httpx
import jsonschema


class Document:
    """The document as it is served."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._components = document["components"]
        self._operations = [
            (re.compile("/".join(_segment(part) for part in path.split("/"))), methods)
            for path, methods in document["paths"].items()
        ]

    async def check(self, answer: httpx.Response) -> None:
        """An `httpx` event hook."""
        request = answer.request
        path = request.url.raw_path.partition(b"?")[0].decode()
        found = [
            methods[request.method.lower()]
            for pattern, methods in self._operations
            if request.method.lower() in methods and pattern.fullmatch(path)
        ]
        if not found or answer.status_code in (304, 405):
            return
        documented = found[0]["responses"].get(str(answer.status_code))
        what = f"{request.method} {path} {answer.status_code}"
        assert documented is not None, f"{what} is not documented"
        media = answer.headers.get("content-type", "").partition(";")[0]
        shape = documented.get("content", {}).get(media, {}).get("schema")
        if media == "application/problem+json":
            assert shape is not None, f"{what}: its refusals are not documented"
        if shape is not None and media.endswith("json"):
            await answer.aread()
            problem = jsonschema.Draft202012Validator({**shape, "components": self._components})
            errors = [error.message for error in problem.iter_errors(answer.json())]
            assert not errors, f"{what}: {errors}\n{answer.text[:500]}"


def _segment(part: str) -> str:
    if part == "{path}":
        return ".+"
    return "[^/]+" if part.startswith("{") else re.escape(part)
