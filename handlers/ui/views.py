"""What the page shows beside the lanes: turns with what they took, and the session's sums."""

from pydantic import JsonValue

from bus.messages.message import AssistantMessage
from bus.messages.usage import Usage
from bus.session import Session

__all__ = ("turns_view", "usage_view")


async def turns_view(session: Session) -> JsonValue:
    """`{"turns": [...]}`"""
    turns: dict[str, dict[str, JsonValue]] = {}
    async for e in session.read():
        m = e.message
        if isinstance(m, AssistantMessage) and m.turn_id:
            turns[str(m.turn_id)] = {
                "turnId": {"loopId": m.turn_id.loop_id, "turnIndex": m.turn_id.turn_index},
                "status": "completed",
                "stopReason": m.stop_reason,
                "model": m.model,
                "tools": [c.name for c in m.tool_calls()],
                "usage": m.usage.model_dump(mode="json", exclude_none=True) if m.usage else None,
                "position": e.position,
            }
    return {"turns": list(turns.values())}


async def usage_view(session: Session) -> JsonValue:
    total = Usage()
    async for e in session.read():
        if isinstance(e.message, AssistantMessage) and e.message.usage:
            total = total.combine(e.message.usage)
    return total.model_dump(mode="json", exclude_none=True)
