"""What a caller may ask of the fleet, as one shape for HTTP, the Celery task and batches (design: Surfaces).

Unknown fields are refused: a misspelt `variabels` must not start a turn without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from core.jsontext import MAX_DEPTH, too_deep

OnBusyWord = Literal["queue", "reject", "interrupt"]
Label = Annotated[str, StringConstraints(max_length=200)]
LabelName = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
]
TriggerId = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _not_too_deep(value: dict[str, Any]) -> dict[str, Any]:
    if too_deep(value):
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    return value


Variables = Annotated[dict[str, Any], AfterValidator(_not_too_deep)]
MAX_LABELS = 16
#: problems of one object that are told
MAX_ERRORS = 50
#: a longer name is not compared with those of the fields
_LONGEST_COMPARED: Final = 100


def _told(error: ErrorDetails, known: Sequence[str]) -> InitErrorDetails:
    """The same error, of an unknown field in words that help."""
    kind, words, location = error["type"], error["msg"], error["loc"]
    if kind == "extra_forbidden" and len(location) == 1:  # a field of this very object
        name = str(location[0])
        near = get_close_matches(name, known, n=1) if len(name) <= _LONGEST_COMPARED else []
        words = f"unknown field; did you mean {near[0]!r}?" if near else f"unknown field; {_all(known)}"
    return InitErrorDetails(type=PydanticCustomError(kind, words), loc=location, input=error["input"])  # type: ignore[arg-type]  # kinds and words that pydantic itself gave out


def _all(names: Sequence[str]) -> str:
    return f"the fields are {', '.join(names)}" if len(names) > 1 else f"the only field is {names[0]}"


class Asked(BaseModel):
    """Fields are camelCase outside. An unknown one is refused by an error that tells those there are."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, populate_by_name=True, frozen=True, serialize_by_alias=True
    )

    @model_validator(mode="wrap")
    @classmethod
    def _name_known_fields(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            known = [field.alias or name for name, field in cls.model_fields.items()]
            raise ValidationError.from_exception_data(
                error.title, [_told(each, known) for each in error.errors(include_url=False)[:MAX_ERRORS]]
            ) from None


class Webhook(Asked):
    """An address to POST the turn's outcome to, parks included."""

    url: str = Field(
        max_length=2_048, description="absolute http(s) URL, public unless the fleet allows others"
    )


class StartRequest(Asked):
    """A new session, or a message to the one `sessionId` or the trigger's session path names."""

    session_id: str | None = Field(None, max_length=200, description="an id of yours; minted when absent")
    message: str | None = Field(None, description="what the person says; absent opens over the variables")
    trigger: TriggerId | None = Field(None, description="which trigger fires; default `manual`")
    variables: Variables | None = Field(None, description="what the trigger's signature asks for")
    on_busy: OnBusyWord = Field("queue", description="what to do when a turn is running or waiting")
    webhook: Webhook | None = Field(None, description="where the turn's end or park is told")
    labels: dict[LabelName, Label] | None = Field(None, max_length=MAX_LABELS, description="for lists")


class MessageRequest(Asked):
    """One message to a session; what it becomes is decided by the session's own record."""

    message: str | None = Field(None, description="what the person says")
    trigger: TriggerId | None = Field(None, description="which trigger a new turn fires; default `manual`")
    variables: Variables | None = Field(None, description="what the trigger's signature asks for")
    on_busy: OnBusyWord = Field("queue", description="what to do when a turn is running or waiting")
    webhook: Webhook | None = Field(None, description="where the turn's end or park is told")


class DecisionRequest(Asked):
    """A person's decision on a parked session."""

    to: str = Field(
        min_length=1, max_length=200, description="the edge taken: a target of the park's transitions"
    )
    comment: str | None = Field(None, max_length=20_000, description="the agent reads it as the correction")
    webhook: Webhook | None = Field(None, description="where the turn's end or park is told")


class ReplyRequest(Asked):
    """A message to a session parked for a decision; it stays parked."""

    message: str = Field(description="what the person asks; the session answers and stays parked")
    webhook: Webhook | None = Field(None, description="where the turn's end or park is told")


class DeliveryRequest(Asked):
    """An event for a session that waits for one."""

    trigger: str = Field(max_length=200, description="which event came")
    variables: Variables | None = Field(None, description="what it brings; stored locked")
    message: str | None = Field(None, description="words for the agent beside it")
    webhook: Webhook | None = Field(None, description="where the turn's end or park is told")
