"""Sessions in states that the page shows."""

from lanebus import AssistantMessage, Session, TextBlock, ToolCallBlock, UserMessage
from lanebus.bus.messages import AgentStarted, ToolWaiting, TurnStarted
from lanebus.messages import TurnId

__all__ = ("answered", "waiting_for_approval")


async def waiting_for_approval(session: Session, text: str, *tools: str) -> TurnId:
    """Publish a loop whose tool calls wait for a person. Return its turn."""
    turn = TurnId(loop_id=f"{session.id}.main.1", turn_index=0)
    blocks = tuple(ToolCallBlock(id=f"c{at}", name=name, arguments={"path": name}) for at, name in enumerate(tools))
    await session.publish(
        UserMessage.text(text),
        AgentStarted(loop_id=turn.loop_id, agent="a").as_extension(),
        TurnStarted(turn_id=turn).as_extension(),
        AssistantMessage(content=blocks, turn_id=turn, stop_reason="toolUse"),
        *(ToolWaiting(turn_id=turn, tool_call_id=block.id, tool_name=block.name).as_extension() for block in blocks),
    )
    return turn


async def answered(session: Session, question: str, answer: str) -> None:
    """Publish a question and its answer."""
    await session.publish(
        UserMessage.text(question), AssistantMessage(content=(TextBlock(text=answer),), stop_reason="stop")
    )
