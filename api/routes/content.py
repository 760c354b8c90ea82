"""Routes to a session's files and artifacts."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from api.answers import NOT_MODIFIED, OF_SESSION, SessionId, decoded_path, json_answer, problems, tagged
from api.auth import Reads
from api.context import api_of
from api.files import file_response
from api.problems import HttpProblem
from api.shapes import ArtifactList, FileList
from worker.artifacts import NAMES

router = APIRouter(tags=["files"])
_RANGES = {206: {"description": "the range asked for", "content": {"*/*": {}}}, **NOT_MODIFIED}


@router.get(
    "/sessions/{session_id}/files",
    responses={200: {"model": FileList}, **NOT_MODIFIED, **problems(*OF_SESSION)},
    summary="List files",
)
async def files(request: Request, session_id: SessionId, caller: Reads) -> Response:
    listed = await api_of(request).service.files(session_id, caller)
    return tagged(
        request,
        {
            "items": [
                {"path": path, "size": ref.size, "modifiedAt": ref.modified} for path, ref in listed.items()
            ]
        },
    )


@router.get(
    "/sessions/{session_id}/files/{path:path}",
    responses={
        200: {"description": "the file; its type follows its name", "content": {"*/*": {}}},
        **_RANGES,
        **problems(*OF_SESSION, "file-unknown", "range-not-satisfiable"),
    },
    summary="Read a file",
)
async def file(
    request: Request,
    session_id: SessionId,
    path: Annotated[
        str, Path(description="workspace path, percent-encoded", examples=["scratchpad/note.txt"])
    ],
    caller: Reads,
) -> Response:
    name = decoded_path(path)
    content = await api_of(request).service.file(session_id, name, caller)
    if content is None:
        raise HttpProblem("file-unknown", f"the session has no file {name!r}")
    return file_response(request, name, content, hashlib.sha256(content).hexdigest()[:32])


@router.get(
    "/sessions/{session_id}/artifacts",
    responses={200: {"model": ArtifactList}, **problems(*OF_SESSION)},
    summary="List artifacts",
)
async def artifacts(request: Request, session_id: SessionId, caller: Reads) -> Response:
    await api_of(request).service.workflow_of(session_id, caller)
    return json_answer({"items": list(NAMES)})


@router.get(
    "/sessions/{session_id}/artifacts/{name}",
    responses={
        200: {"description": "the artifact", "content": {"application/json": {}, "text/plain": {}}},
        **_RANGES,
        **problems(
            *OF_SESSION,
            "file-unknown",
            "range-not-satisfiable",
            "workflow-unknown",
            "workflow-load",
            "contract.unsupported",
        ),
    },
    summary="Read an artifact",
)
async def artifact(
    request: Request,
    session_id: SessionId,
    name: Annotated[str, Path(description=", ".join(NAMES))],
    caller: Reads,
) -> Response:
    found = await api_of(request).service.artifact(session_id, name, caller)
    if found is None:
        raise HttpProblem("file-unknown", f"there is no artifact {name!r}; there are {', '.join(NAMES)}")
    content, kind = found
    tag = hashlib.sha256(content).hexdigest()[:32]
    return file_response(request, name, content, tag, served_as=kind)
