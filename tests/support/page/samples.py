"""Sessions in states that the page shows."""

from collections.abc import Mapping

from lanebus import AssistantMessage, ExtensionMessage, Session, TextBlock, ToolCallBlock, UserMessage
from lanebus.bus.messages import AgentStarted, ToolWaiting, TurnStarted
from lanebus.handlers.serve import Identify, Principal
from lanebus.messages import TurnId


def begun(session: str, *calls: str, agent: str = "a") -> tuple[ExtensionMessage, ...]:
    """Return the events of a turn that has begun: the model is called, or these calls wait for a person."""
    turn = TurnId(loop_id=f"{session}.main.1", turn_index=0)
    waits = [ToolWaiting(turn_id=turn, tool_call_id=call, tool_name="rm") for call in calls]
    events = (AgentStarted(loop_id=turn.loop_id, agent=agent), TurnStarted(turn_id=turn), *waits)
    return tuple(event.as_extension() for event in events)


async def waiting_for_approval(session: Session, text: str, *tools: str) -> TurnId:
    """Publish a loop whose tool calls wait for a person. Return its turn."""
    calls = (ToolCallBlock(id=f"c{at}", name=name, arguments={"path": name}) for at, name in enumerate(tools))
    return await waiting(session, *calls, text=text)


async def waiting(session: Session, *calls: ToolCallBlock, text: str = "hi", why: str = "approval") -> TurnId:
    """Publish a loop whose calls wait for a person for a reason. Return its turn."""
    turn = TurnId(loop_id=f"{session.id}.main.1", turn_index=0)
    waits = [{"turnId": turn, "toolCallId": call.id, "toolName": call.name, "why": why} for call in calls]
    await session.publish(
        UserMessage.text(text),
        *begun(session.id),
        AssistantMessage(content=calls, turn_id=turn, stop_reason="toolUse"),
        *(ToolWaiting.model_validate(wait).as_extension() for wait in waits),
    )
    return turn


async def answered(session: Session, question: str, answer: str) -> None:
    """Publish a question and its answer."""
    await session.publish(
        UserMessage.text(question), AssistantMessage(content=(TextBlock(text=answer),), stop_reason="stop")
    )


def may(*actions: str) -> Identify:
    """Return what names the only user of a server, who has the right to these actions."""

    async def identify(headers: Mapping[str, str], address: str) -> Principal:
        del headers, address
        return Principal(name="kim", actions=actions)

    return identify
