"""`docs/schemas/`: the JSON Schemas an editor is pointed at; a test keeps the files true.

`python -m archmax.docs.schemas` writes them anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from core.jsontext import JsonObject
from engine.cases.json_schema import case_json_schema
from engine.spec.json_schema import workflow_json_schema

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "schemas"
SCHEMAS: Final[Mapping[str, Callable[[], JsonObject]]] = {
    "workflow": workflow_json_schema,
    "case": case_json_schema,
}


def schema_text(document: str) -> str:
    """The schema of one kind of document, as `archmax schema` prints it."""
    return json.dumps(SCHEMAS[document](), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for document in SCHEMAS:
        (FOLDER / f"{document}.schema.json").write_text(schema_text(document), "utf-8")


if __name__ == "__main__":
    main()
