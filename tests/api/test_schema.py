"""The OpenAPI document, and that the API answers as it says: no 5xx, no undocumented answer (schemathesis)."""

from __future__ import annotations

import os
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.fleet import RunningFleet

EXAMPLES = int(os.environ.get("ARCHMAX_TEST_EXAMPLES", "8"))
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


async def test_every_operation_documents_its_refusals_in_the_one_shape(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"].keys() == {"bearer", "apiKey"}
    for path, method, operation in operations(document):
        if not path.startswith("/v1"):
            continue
        for status in ("401", "403", "429", "503"):
            schema = operation["responses"][status]["content"]["application/problem+json"]["schema"]
            shape, codes = schema["allOf"]
            assert shape["$ref"].endswith("/Problem") and codes["properties"]["code"]["enum"], (path, method)
        assert operation["summary"] and operation["security"], (path, method)
        assert operation["description"].startswith("Needs the scope `"), (path, method)


async def test_every_body_has_an_example_that_is_accepted_by_its_own_schema(
    client: httpx.AsyncClient,
) -> None:
    document = (await client.get("/openapi.json")).json()
    for path, method, operation in operations(document):
        if "requestBody" not in operation:
            continue
        media = operation["requestBody"]["content"]["application/json"]
        assert media.get("examples") or media.get("example") or media["schema"].get("examples"), (
            path,
            method,
        )


def test_what_it_answers_is_what_it_documents(fleet: RunningFleet) -> None:
    document = httpx.get(f"{fleet.url}/openapi.json", trust_env=False).json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=fleet.url)
    failures: list[str] = []
    results: Any = schema.get_all_operations()
    for result in results:
        operation = result.ok()
        if "/events" in operation.path:
            continue  # a stream of a session that exists never ends
        case_strategy = operation.as_strategy()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=case_strategy)
        def run(case: Any) -> None:
            answer = case.call(timeout=30)
            case.validate_response(answer, checks=list(CHECKS))

        try:
            run()
        except Exception as error:
            failures.append(f"{operation.method} {operation.path}: {type(error).__name__}: {error}")
    assert not failures, "\n\n".join(failures)[:8000]
