"""A transcript as a provider is sent it with images on: after each batch of results, what they show (03 §22.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage

from engine.session.messages import to_langchain
from engine.workspace.images import ShownImage, image_messages

if TYPE_CHECKING:
    from engine.turn.context import TurnContext


async def with_images(ctx: TurnContext, transcript: Sequence[Mapping[str, Any]]) -> list[BaseMessage]:
    """The images are read again from the workspace for every request; history holds path and type only."""
    options = ctx.assembly.wiring.options.images
    if options is None:
        return [rendered for message in transcript for rendered in to_langchain(message)]
    batches: list[list[ShownImage]] = []
    groups: list[list[BaseMessage]] = []
    open_batch = False
    for message in transcript:
        if message["role"] != "tool" or not open_batch:
            groups.append([])
            batches.append([])
            open_batch = message["role"] == "assistant"
        groups[-1].extend(to_langchain(message))
        image = (message.get("mark") or {}).get("image")
        if image:
            batches[-1].append(ShownImage(image["path"], image["type"]))
    shown = await image_messages(ctx.workspace, batches, options)
    messages: list[BaseMessage] = []
    for group, blocks in zip(groups, shown, strict=True):
        messages.extend(group)
        if blocks:
            messages.append(HumanMessage(content=[*blocks]))
    return messages
