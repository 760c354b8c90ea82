"""Routes that show workflows: titles, triggers, signatures as JSON Schema, the state machine."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.answers import NOT_MODIFIED, Slug, problems, tagged
from api.auth import Reads
from api.context import api_of
from api.shapes import GraphShape, Workflow, WorkflowList
from core.jsontext import JsonObject
from engine.errors import UnsupportedRuntimeContractError, WorkflowLoadError
from engine.spec.model import Spec, State, Trigger
from engine.spec.signatures import signature_json_schema
from worker.artifacts import graph_json

router = APIRouter(tags=["workflows"])
_FOUND = {
    **NOT_MODIFIED,
    **problems("workflow-unknown", "not-found", "workflow-load", "contract.unsupported", "validation"),
}


@router.get(
    "/workflows",
    responses={200: {"model": WorkflowList}, **NOT_MODIFIED, **problems()},
    summary="List workflows",
)
async def workflows(request: Request, caller: Reads) -> Response:
    service = api_of(request).service
    items: list[JsonObject] = []
    for slug in await service.workflows(caller):
        try:
            spec = await service.spec(slug, caller)
        except (WorkflowLoadError, UnsupportedRuntimeContractError) as error:
            items.append({"slug": slug, "usable": False, "problem": str(error)})
            continue
        line: JsonObject = {"slug": slug, "usable": True, "disabled": spec.disabled}
        if spec.title:
            line["title"] = spec.title
        items.append({**line, "triggers": list(spec.trigger_ids)})
    return tagged(request, {"items": items})


@router.get("/workflows/{slug}", responses={200: {"model": Workflow}, **_FOUND}, summary="Read a workflow")
async def workflow(request: Request, slug: Slug, caller: Reads) -> Response:
    spec = await api_of(request).service.spec(slug, caller)
    return tagged(request, workflow_body(spec))


def workflow_body(spec: Spec) -> JsonObject:
    body: JsonObject = {
        "slug": spec.slug,
        "usable": True,
        "disabled": spec.disabled,
        "triggers": [
            _trigger_body(trigger, state.slug)
            for state in spec.states.values()
            for trigger in state.triggers.values()
        ],
        "states": [
            {
                "slug": state.slug,
                "type": state.type,
                "terminal": state.terminal,
                **({"title": state.title} if state.title else {}),
                **(_for_the_person(state) if state.type == "human" else {}),
                "transitions": [
                    {"to": edge.to, "type": edge.type, "description": edge.description or ""}
                    for edge in state.transitions
                ],
            }
            for state in spec.states.values()
        ],
    }
    if spec.title:
        body["title"] = spec.title
    return body


def _for_the_person(state: State) -> JsonObject:
    """What a page that asks for the decision shows of a human state; other states' instructions are the model's alone."""
    body: JsonObject = {}
    if state.instructions:
        body["instructions"] = state.instructions
    if state.approvers:
        body["approvers"] = list(state.approvers)
    return body


def _trigger_body(trigger: Trigger, state: str) -> JsonObject:
    body: JsonObject = {
        "id": trigger.id,
        "state": state,
        "requires": signature_json_schema(trigger.requires),
        "returns": signature_json_schema(trigger.returns),
    }
    if trigger.description:
        body["description"] = trigger.description
    if trigger.session:
        body["session"] = trigger.session
    if isinstance(trigger.host.get("schedule"), dict):
        body["schedule"] = trigger.host["schedule"]
    return body


@router.get(
    "/workflows/{slug}/graph",
    responses={200: {"model": GraphShape}, **_FOUND},
    summary="Read its state machine",
)
async def graph(request: Request, slug: Slug, caller: Reads) -> Response:
    return tagged(request, graph_json(await api_of(request).service.spec(slug, caller)))
