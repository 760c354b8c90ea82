"""Shapes of answers, for the OpenAPI document: what is always there, and what it means.

Answers are written straight from the records they show; these models describe them and tests hold them to it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Shape(BaseModel):
    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)


TurnWord = Literal["queued", "running", "suspended", "settled", "refused", "cancelled"]


class TurnLinks(Shape):
    turn: str = Field(examples=["/v1/turns/session-4f0c.1"])
    events: str
    session: str


class AcceptedTurn(Shape):
    """The input is stored and will be worked, whatever happens to this connection."""

    turn_id: str = Field(examples=["session-4f0c.1"])
    session_id: str = Field(examples=["session-4f0c"])
    status: Literal["queued"]
    repeated: bool = Field(
        description="an earlier request with this idempotency key was accepted as this turn"
    )
    links: TurnLinks


class TurnOutcome(Shape):
    """What the turn came to: `completed`, `parked`, `failed`, `rejected`, `refused`, `cancelled` or `void`."""

    kind: str = Field(examples=["completed"])


class Turn(Shape):
    turn_id: str
    session_id: str
    turn: int
    workflow: str
    status: TurnWord
    outcome: TurnOutcome | None = Field(None, description="set exactly when the turn is over")
    links: TurnLinks


class SessionSummary(Shape):
    session_id: str
    workflow: str
    status: str = Field(examples=["awaiting_decision"])
    classification: Literal["open", "finished"]
    turn: int = Field(description="number of the newest turn that has begun")
    busy: bool = Field(description="that turn has not ended")


class SessionLine(Shape):
    session_id: str
    workflow: str
    status: str
    updated_at: int = Field(description="epoch milliseconds")


class SessionPage(Shape):
    items: list[SessionLine]
    cursor: str | None = Field(description="give it as `?cursor=` for the next page; null at the end")
    complete: bool = Field(description="false while the index is being rebuilt from the store")


class HistoryPage(Shape):
    items: list[dict[str, Any]]
    cursor: str | None


class Trail(Shape):
    items: list[dict[str, Any]]


class Variables(Shape):
    variables: dict[str, dict[str, Any]]


class FileLine(Shape):
    path: str
    size: int
    modified_at: int


class FileList(Shape):
    items: list[FileLine]


class ArtifactList(Shape):
    items: list[str]


class WorkflowLine(Shape):
    slug: str
    usable: bool


class WorkflowList(Shape):
    items: list[WorkflowLine]


class TriggerShape(Shape):
    id: str
    requires: dict[str, Any] = Field(description="JSON Schema of the variables it asks for")
    returns: dict[str, Any] = Field(description="JSON Schema of the variables it promises")


class Workflow(Shape):
    slug: str
    usable: bool
    disabled: bool
    triggers: list[TriggerShape]


class GraphShape(Shape):
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    finals: list[str]
    mermaid: str


class BatchItem(Shape):
    """`status` is what the item alone would have been answered with."""

    status: int
    turn: AcceptedTurn | None = None
    problem: dict[str, Any] | None = None


class BatchAnswer(Shape):
    items: list[BatchItem]


class QueueLine(Shape):
    name: str
    waiting: int


class FleetStatus(Shape):
    queues: list[QueueLine]
    workers: list[dict[str, Any]]


class KeyLine(Shape):
    id: str
    name: str
    scopes: list[str]
    workflows: list[str] | None


class KeyList(Shape):
    items: list[KeyLine]


class DeadLetters(Shape):
    items: list[dict[str, Any]]


class Ready(Shape):
    ready: bool
    problems: list[str]
