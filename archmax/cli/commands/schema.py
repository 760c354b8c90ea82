"""`archmax schema workflow|case`: the JSON Schema of `workflow.yaml` or of a `*.test.yaml`, for an editor."""

from __future__ import annotations

import json

from archmax.cli.invocation import Invocation
from engine.cases.json_schema import case_json_schema
from engine.spec.json_schema import workflow_json_schema

_SCHEMAS = {"workflow": workflow_json_schema, "case": case_json_schema}


async def run(invocation: Invocation) -> int:
    schema = _SCHEMAS[invocation.arguments["document"]]()
    invocation.out.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    return 0
