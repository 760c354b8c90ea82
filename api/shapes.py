"""Shapes of answers, for the OpenAPI document: what is there, what it means, what it looks like.

Answers are written straight from the records they show; these models describe them and tests hold them to it. A field with
a default may be absent.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Shape(BaseModel):
    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)


TurnWord = Literal["queued", "running", "suspended", "settled", "refused", "cancelled"]
#: moments are epoch milliseconds
_AT = 1_796_051_705_340


class TurnLinks(Shape):
    turn: str = Field(examples=["/v1/turns/order-7.1"])
    events: str = Field(examples=["/v1/turns/order-7.1/events"])
    session: str = Field(examples=["/v1/sessions/order-7"])


class AcceptedTurn(Shape):
    """The input is stored and will be worked, whatever happens to this connection."""

    turn_id: str = Field(description="`<session>.<n>`", examples=["order-7.1"])
    session_id: str = Field(examples=["order-7"])
    status: Literal["queued"]
    repeated: bool = Field(
        description="an earlier request with this idempotency key was accepted as this turn",
        examples=[False],
    )
    links: TurnLinks


class Usage(Shape):
    """Tokens of the models."""

    input_tokens: int = Field(examples=[7746])
    output_tokens: int = Field(examples=[174])


class Way(Shape):
    """One transition a person may take."""

    to: str = Field(description="send it as the decision's `to`", examples=["pay"])
    type: str | None = Field(None, description="`approve`, `reject` or `refine`", examples=["approve"])
    description: str | None = Field(None, examples=["The refund is paid."])


class Pending(Shape):
    """What a parked session waits for: `transitions` of a decision, or `reason` and `resumeAt` of a wait."""

    state: str | None = Field(None, examples=["review"])
    title: str | None = Field(None, examples=["Review the refund"])
    transitions: list[Way] | None = None
    evidence: list[str] | None = Field(
        None, description="paths of files to read before deciding", examples=[["scratchpad/refund.json"]]
    )
    reason: str | None = Field(None, description="what a wait is for")
    resume_at: int | None = Field(None, description="when a wait wakes by itself")


class TurnOutcome(Shape):
    """What the turn came to. "Not rejected" is not success: compare `kind`."""

    kind: str = Field(
        description="`completed`; `parked`: it waits for a person or an event; `failed`: `exit` says why; `rejected`; "
        "`refused`, `void`: the session could not take it any more; `cancelled` before it began",
        examples=["parked"],
    )
    status: str | None = Field(None, description="the session's status now", examples=["awaiting_decision"])
    state: str | None = Field(None, description="where the session stands", examples=["review"])
    reply: str | None = Field(None, description="what was said", examples=["Please review the refund."])
    disposition: Literal["turn", "decide", "reply", "deliver"] | None = Field(
        None, description="what the input became", examples=["turn"]
    )
    parked_channel: Literal["decision", "input"] | None = Field(None, examples=["decision"])
    pending: Pending | None = None
    exit: dict[str, Any] | None = Field(None, description="of a failure: its `code` and what is known of it")
    usage: Usage | None = Field(None, description="of this turn")


class Turn(Shape):
    turn_id: str = Field(examples=["order-7.1"])
    session_id: str = Field(examples=["order-7"])
    turn: int = Field(examples=[1])
    workflow: str = Field(examples=["refund"])
    status: TurnWord = Field(
        description="`queued`; `running`; `suspended`: sub-workflows are at work; over: `settled` with its outcome, "
        "`refused` with its problem, `cancelled`",
        examples=["settled"],
    )
    outcome: TurnOutcome | None = Field(None, description="set exactly when the turn is over")
    problem: dict[str, Any] | None = Field(None, description="why a turn was refused: `code` and text")
    kind: str | None = Field(
        None, description="`message`, `decision`, `reply`, `delivery`, `delete`; until the turn is over"
    )
    accepted_at: int | None = Field(None, description="epoch milliseconds; until the turn is over")
    settled_at: int | None = Field(None, description="epoch milliseconds", examples=[_AT])
    cancel_requested: bool | None = Field(None, description="a cancel is stored and not yet obeyed")
    links: TurnLinks


class SessionSummary(Shape):
    session_id: str = Field(examples=["order-7"])
    workflow: str = Field(examples=["refund"])
    status: str = Field(
        description="`running`, `awaiting_decision`, `awaiting_input`, `completed`, `failed`, `rejected`",
        examples=["awaiting_decision"],
    )
    classification: Literal["open", "finished"] = Field(examples=["open"])
    turn: int = Field(description="number of the newest turn that has begun", examples=[1])
    busy: bool = Field(description="that turn has not ended", examples=[False])
    workflow_state: str | None = Field(None, description="where it stands", examples=["review"])
    pending_decision: Pending | None = Field(None, description="the decision it waits for")
    pending_input: dict[str, Any] | None = Field(None, description="the event or time it waits for")
    variables: dict[str, dict[str, Any]] | None = Field(
        None, examples=[{"order_id": {"value": "A-7", "locked": True}}]
    )
    labels: dict[str, str] | None = Field(None, examples=[{"tenant": "acme"}])
    usage: Usage | None = Field(None, description="of the whole session")
    exit: dict[str, Any] | None = Field(None, description="why it failed")
    parent_session_id: str | None = Field(None, description="the session that called this one")
    message_count: int | None = Field(None, examples=[14])
    created_at: int | None = Field(None, description="epoch milliseconds", examples=[_AT - 2_000])
    updated_at: int | None = Field(None, description="epoch milliseconds", examples=[_AT])


class SessionLine(Shape):
    session_id: str = Field(examples=["order-7"])
    workflow: str = Field(examples=["refund"])
    status: str = Field(examples=["awaiting_decision"])
    updated_at: int = Field(description="epoch milliseconds", examples=[_AT])
    turn: int | None = Field(None, examples=[1])
    state: str | None = Field(None, examples=["review"])
    title: str | None = Field(None, examples=["Refund of order 7"])
    labels: dict[str, str] | None = Field(None, examples=[{"tenant": "acme"}])
    parent: str | None = Field(None, description="the session that called this one")


class SessionPage(Shape):
    items: list[SessionLine] = Field(description="the newest change first")
    cursor: str | None = Field(
        description="give it as `?cursor=` for the next page; null at the end", examples=[None]
    )
    complete: bool = Field(
        description="false while the index is being rebuilt from the store", examples=[True]
    )


class HistoryPage(Shape):
    items: list[dict[str, Any]] = Field(
        description="oldest first: `role` (`user`, `assistant`, `tool`, `runtime`), `text`, an assistant's `toolCalls`",
        examples=[[{"role": "user", "text": "Please refund order 7."}]],
    )
    cursor: str | None = Field(
        description="give it as `?cursor=` for the next page; null at the end", examples=[None]
    )


class Trail(Shape):
    items: list[dict[str, Any]] = Field(
        description="oldest first: the state it moved `to`, what `kind` of move, the `reason`, when (`ts`)",
        examples=[[{"to": "draft", "kind": "trigger", "reason": "manual", "ts": _AT}]],
    )


class Variables(Shape):
    variables: dict[str, dict[str, Any]] = Field(
        description="`locked`: nobody can change it any more",
        examples=[{"order_id": {"value": "A-7", "locked": True}}],
    )


class FileLine(Shape):
    path: str = Field(examples=["scratchpad/refund.json"])
    size: int = Field(description="bytes", examples=[91])
    modified_at: int = Field(description="epoch milliseconds", examples=[_AT])


class FileList(Shape):
    items: list[FileLine]


class ArtifactList(Shape):
    items: list[str] = Field(examples=[["graph.json", "trail.json", "trajectory.json"]])


class WorkflowLine(Shape):
    slug: str = Field(examples=["refund"])
    usable: bool = Field(description="false: `problem` says what is wrong with its document", examples=[True])
    disabled: bool | None = Field(None, examples=[False])
    title: str | None = Field(None, examples=["Refund"])
    triggers: list[str] | None = Field(None, examples=[["manual", "order"]])
    problem: str | None = Field(None, description="what is wrong, in words")


class WorkflowList(Shape):
    items: list[WorkflowLine]


class TriggerShape(Shape):
    id: str = Field(examples=["order"])
    state: str | None = Field(None, description="the state it enters", examples=["draft"])
    description: str | None = Field(None, examples=["An order came in."])
    requires: dict[str, Any] = Field(
        description="JSON Schema of the variables it asks for",
        examples=[
            {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
        ],
    )
    returns: dict[str, Any] = Field(
        description="JSON Schema of the variables it promises",
        examples=[{"type": "object", "properties": {}, "required": []}],
    )
    session: str | None = Field(None, description="path into the variables that names the session")
    schedule: dict[str, Any] | None = Field(None, description="when beat fires it")


class StateShape(Shape):
    slug: str = Field(examples=["review"])
    type: str = Field(examples=["human"])
    terminal: bool = Field(examples=[False])
    title: str | None = Field(None, examples=["Review the refund"])
    instructions: str | None = Field(
        None,
        description="of a human state: what the person who decides is told",
        examples=["Compare the refund with the order."],
    )
    approvers: list[str] | None = Field(
        None, description="of a human state: who should decide", examples=[["refunds@shop.example"]]
    )
    transitions: list[dict[str, Any]] = Field(
        examples=[[{"to": "pay", "type": "approve", "description": "The refund is paid."}]]
    )


class Workflow(Shape):
    slug: str = Field(examples=["refund"])
    usable: bool = Field(examples=[True])
    disabled: bool = Field(description="it takes no new sessions", examples=[False])
    title: str | None = Field(None, examples=["Refund"])
    triggers: list[TriggerShape]
    states: list[StateShape]


class GraphShape(Shape):
    nodes: list[dict[str, Any]] = Field(examples=[[{"id": "__start__"}, {"id": "draft"}]])
    edges: list[dict[str, Any]] = Field(
        examples=[[{"source": "__start__", "target": "draft", "conditional": True, "label": "manual"}]]
    )
    finals: list[str] = Field(examples=[["pay"]])
    mermaid: str = Field(
        description="the same as a Mermaid flowchart", examples=["flowchart TD\n  __start__ --> draft"]
    )


class BatchItem(Shape):
    """What the item alone would have been answered with: `turn` where it was accepted, else `problem`."""

    status: int = Field(examples=[202])
    turn: AcceptedTurn | None = None
    problem: dict[str, Any] | None = Field(None, description="a `Problem`")


class BatchAnswer(Shape):
    items: list[BatchItem] = Field(description="in the order asked")


class QueueLine(Shape):
    name: str = Field(examples=["archmax.turns.refund"])
    waiting: int = Field(examples=[0])


class WorkerLine(Shape):
    name: str = Field(examples=["archmax-1323@host"])
    taken: int | None = Field(None, description="tasks it has taken since it started", examples=[2])
    concurrency: int | None = Field(None, examples=[200])


class FleetStatus(Shape):
    queues: list[QueueLine]
    workers: list[WorkerLine]


class KeyLine(Shape):
    id: str = Field(examples=["0123456789abcdef"])
    name: str = Field(examples=["shop"])
    scopes: list[str] = Field(examples=[["enqueue", "read"]])
    workflows: list[str] | None = Field(description="null: all of them", examples=[["refund"]])
    rate_limit: str | None = Field(
        description="`<n>/s` or `<n>/min`: so many requests at once, and as many again over that time, in each API "
        "process. null: that of the settings",
        examples=["30/min"],
    )
    max_body_bytes: int | None = Field(
        description="longest request body; null: that of the settings", examples=[65536]
    )
    created_at: int | None = Field(None, description="epoch milliseconds", examples=[_AT])
    revoked_at: int | None = Field(None, description="epoch milliseconds")


class KeyList(Shape):
    items: list[KeyLine] = Field(description="oldest first, revoked ones included")


class DeadLetter(Shape):
    turn_id: str = Field(examples=["order-7.1"])
    url: str = Field(examples=["https://shop.example/hooks"])
    problem: str = Field(description="how the last attempt ended", examples=["it answered 500"])
    attempts: int = Field(examples=[10])
    at: int = Field(description="epoch milliseconds", examples=[_AT])


class DeadLetters(Shape):
    items: list[DeadLetter]


class Alive(Shape):
    alive: bool = Field(examples=[True])


class Ready(Shape):
    ready: bool = Field(examples=[True])
    problems: list[str] = Field(description="`broker`, `store`", examples=[[]])
