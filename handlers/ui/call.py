"""Find a tool call of a session, with all of its arguments, for a person who approves or denies it."""

import json
from collections.abc import Mapping
from contextlib import aclosing

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.projections.agent_activity import own_loop
from lanebus.handlers.projections.agent_status import STATUS
from lanebus.handlers.projections.views import Views
from lanebus.handlers.ui.replies import RequestRefused

__all__ = ("call_view",)


async def call_view(views: Views, session: Session, call_id: str) -> Mapping[str, object]:
    """Return `{"toolCallId", "toolName", "position", "text", "callHash"}` of a call of the newest loop.

    `text` is the arguments as JSON for people, or as the provider sent them. It is made here, because a browser changes
    large numbers when it reads JSON.

    Args:
        views: cached states of the projections.
        session: the session.
        call_id: the tool call's id. If several answers have a call of this id, the newest one is returned.

    Raises:
        RequestRefused: 404 if the newest loop has no such call.
        BusError: the log could not be read.
    """
    loop = own_loop(session.id, (await views.look(session, STATUS)).state)
    found: tuple[int, ToolCallBlock] | None = None
    if loop is not None:
        answers = session.read(lanes={Lane.LLM}, kinds={"assistant"}, after=Cursor(max(loop.position - 1, 0)))
        async with aclosing(answers):
            async for envelope in answers:
                if isinstance(envelope.message, AssistantMessage):
                    for block in envelope.message.tool_calls():
                        if block.id == call_id:
                            found = (envelope.position, block)
    if found is None:
        raise RequestRefused(404, "no_such_call", "the newest loop has no tool call with this id")
    position, call = found
    text = call.arguments_raw or json.dumps(call.arguments, ensure_ascii=False, indent=2)
    return {
        "toolCallId": call.id,
        "toolName": call.name,
        "position": position,
        "text": text,
        "callHash": call.call_hash,
    }
