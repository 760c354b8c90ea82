"""`docs/api.md`, written from the API's own OpenAPI document; a test keeps the file true.

`python -m archmax.docs.api` writes it anew. Examples are put together from the document's examples of each field, so they
have the shape they show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from api.answers import ALWAYS
from api.app import create_api
from api.problems import CODES
from api.settings import ApiSettings
from core.jsontext import JsonObject
from worker.settings import FleetSettings

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "api.md"

_HEAD: Final = """\
# The HTTP API

Every route with its parameters, body, answers and refusals. [web-developers.md](web-developers.md) says how to use them;
`GET /openapi.json` is the same for programs.

JSON is camelCase. Ids in paths are percent-encoded: session `a/b` is `/v1/sessions/a%2Fb`. Times are epoch milliseconds. A
field marked `?` may be absent, and fields that are not listed may be there: ignore what you do not know. Bodies are the
other way round: an unknown field is refused. Examples leave out `-H "Authorization: Bearer $ARCHMAX_KEY"`.

This page is generated: `python -m archmax.docs.api`.
"""
_TITLES: Final = {
    "inputs": "Inputs",
    "reading": "Turns and sessions",
    "files": "Files and artifacts",
    "workflows": "Workflows",
    "operating": "Operating",
    "health": "Health",
}
#: what an example's path and query are filled with
_FILLED: Final = {
    "slug": "refund",
    "session_id": "order-7",
    "turn_id": "order-7.1",
    "path": "scratchpad/refund.json",
    "name": "trail.json",
}
_QUERIES: Final = {
    "/v1/turns/{turn_id}": {"wait": "30"},
    "/v1/sessions": {"status": "awaiting_decision", "label": "tenant:acme", "limit": "20"},
}


def openapi() -> JsonObject:
    """The document of an API with nothing set. Connects to nothing."""
    return create_api(FleetSettings(), ApiSettings()).openapi()


def page() -> str:
    document = openapi()
    shapes = document["components"]["schemas"]
    lines = [_HEAD, f"Any route under `/v1` may refuse with {', '.join(f'`{code}`' for code in ALWAYS)}.", ""]
    for tag, heading in _TITLES.items():
        lines += [f"## {heading}", ""]
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag]:
                    lines += [*_operation(method.upper(), path, operation, shapes), ""]
    lines += ["## Shapes", ""]
    for name, shape in sorted(shapes.items()):
        lines += [*_shape(name, shape), ""]
    lines += [
        "## Problems",
        "",
        "Every error is `application/problem+json` (RFC 9457) of the shape [`Problem`](#problem).",
        "",
    ]
    lines += ["| code | status | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{code}` | {status} | {_cell(meaning)} |" for code, (status, meaning) in CODES.items()]
    return "\n".join([*lines, ""])


def _operation(method: str, path: str, operation: JsonObject, shapes: JsonObject) -> Iterator[str]:
    yield f"### `{method} {path}`"
    yield ""
    yield " ".join(f"{operation['summary']}. {operation.get('description', '')}".split())
    yield ""
    if operation.get("parameters"):
        yield "| parameter | in | type | |"
        yield "| --- | --- | --- | --- |"
        for given in operation["parameters"]:
            about = _about({**given["schema"], "description": given.get("description", "")})
            optional = "" if given["required"] else "?"
            yield f"| `{given['name']}`{optional} | {given['in']} | {_type(given['schema'])} | {about} |"
        yield ""
    body = operation.get("requestBody")
    sent: Any = None
    if body is not None:
        media = body["content"]["application/json"]
        sent = _body_example(media)
        yield f"- Body: {_type(media['schema'])}"
    example = None
    for status, answer in sorted(operation["responses"].items()):
        content = answer.get("content", {})
        if "application/problem+json" in content:
            codes = content["application/problem+json"]["schema"]["allOf"][1]["properties"]["code"]["enum"]
            own = [f"`{code}`" for code in codes if code not in ALWAYS or not path.startswith("/v1")]
            if own:
                yield f"- {status}: {', '.join(own)}"
            continue
        schema = content.get("application/json", {}).get("schema")
        if schema:
            if status.startswith("2"):
                example = example_of(schema, shapes)
            yield f"- {status}: {_type(schema)}"
        else:
            kinds = ", ".join(f"`{kind}`" for kind in content if kind != "application/json")
            yield f"- {status}: {answer['description']}{f' ({kinds})' if kinds else ''}"
    yield ""
    yield "```text"
    yield _curl(method, path, sent)
    if example is not None:
        yield json.dumps(example, indent=2, ensure_ascii=False)
    yield "```"


def _shape(name: str, shape: JsonObject) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if shape.get("description"):
        yield _cell(shape["description"])
        yield ""
    yield "| field | type | |"
    yield "| --- | --- | --- |"
    required = shape.get("required", ())
    for field, schema in shape.get("properties", {}).items():
        optional = "" if field in required else "?"
        yield f"| `{field}`{optional} | {_type(schema)} | {_about(schema)} |"


def _references(value: Any) -> list[str]:
    """Names of the shapes a schema refers to, in order."""
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if isinstance(value.get("$ref"), str) else []
        return own + [name for inner in value.values() for name in _references(inner)]
    if isinstance(value, list):
        return [name for inner in value for name in _references(inner)]
    return []


def _type(schema: JsonObject) -> str:
    match schema:
        case {"$ref": str(target)}:
            name = target.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"const": value}:
            return f"`{value}`"
        case {"enum": list(values)}:
            return ", ".join(f"`{value}`" for value in values)
        case {"anyOf": list(options)} | {"oneOf": list(options)}:
            return " or ".join(_type(option) for option in options if option.get("type") != "null")
        case {"type": "array", "items": inner}:
            return f"list of {_type(inner)}"
        case {"type": str(kind)}:
            return {"string": "text"}.get(kind, kind)
        case _:
            return "any"


def _about(schema: JsonObject) -> str:
    """The description, with bounds and the default."""
    bounds = {
        **schema,
        **next((option for option in schema.get("anyOf", ()) if option.get("type") != "null"), {}),
    }
    bounds["description"] = schema.get("description", "")
    notes = [
        text.format(bounds[name])
        for name, text in (
            ("maxLength", "at most {} long"),
            ("minimum", "from {}"),
            ("maximum", "up to {}"),
            ("minItems", "at least {}"),
            ("maxItems", "at most {}"),
            ("maxProperties", "at most {}"),
        )
        if name in bounds
    ]
    default = schema.get("default")
    if default is not None and default != "":
        notes.append(f"default `{json.dumps(default) if not isinstance(default, str) else default}`")
    described = bounds["description"]
    return _cell("; ".join([*([described] if described else []), *notes]))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _body_example(media: JsonObject) -> Any:
    named = media.get("examples")
    if named:
        return next(iter(named.values()))["value"]
    return media["schema"]["examples"][0] if "examples" in media["schema"] else media["example"]


def example_of(schema: JsonObject, shapes: JsonObject) -> Any:
    """A value of the shape, from the examples of its fields; fields without any are left out where they may be."""
    if schema.get("examples"):
        return schema["examples"][0]
    match schema:
        case {"$ref": str(target)}:
            shape = shapes[target.rpartition("/")[2]]
            return {
                name: example_of(inner, shapes)
                for name, inner in shape.get("properties", {}).items()
                if name in shape.get("required", ()) or _shown(inner, shapes)
            }
        case {"anyOf": list(options)}:
            return example_of(next(option for option in options if option.get("type") != "null"), shapes)
        case {"type": "array", "items": inner}:
            return [example_of(inner, shapes)]
        case {"const": value} | {"enum": [value, *_]}:
            return value
        case _:
            raise ValueError(f"no example for {schema}")


def _shown(schema: JsonObject, shapes: JsonObject) -> bool:
    """Whether an optional field has an example of its own or of what it refers to."""
    if schema.get("examples"):
        return True
    return any(
        inner.get("examples")
        for name in _references(schema)
        for inner in shapes[name].get("properties", {}).values()
    )


def _curl(method: str, path: str, body: Any) -> str:
    filled = re.sub(r"\{(\w+)\}", lambda found: _FILLED[found[1]], path)
    query = _QUERIES.get(path) if method == "GET" else None
    url = f"$ARCHMAX_URL{filled}{'?' + urlencode(query) if query else ''}"
    words = ["$ curl"]
    if method == "DELETE":
        words.append("-X DELETE")
    if body is not None:
        words += ["-H 'Content-Type: application/json' -H 'Idempotency-Key: order-7'"]
        words += [f"-d '{json.dumps(body, ensure_ascii=False)}'"]
    return " ".join([*words, f'"{url}"'])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
