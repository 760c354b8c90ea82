"""`archmax schema workflow`: the JSON Schema of `workflow.yaml`, for an editor's YAML language server."""

from __future__ import annotations

import json

from archmax.cli.invocation import Invocation
from engine.spec.json_schema import workflow_json_schema

_SCHEMAS = {"workflow": workflow_json_schema}


async def run(invocation: Invocation) -> int:
    schema = _SCHEMAS[invocation.arguments["document"]]()
    invocation.out.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    return 0
