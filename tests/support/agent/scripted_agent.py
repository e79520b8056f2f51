"""An agent that always does the same: one tool call and one answer, with live deltas and all events."""

from contextlib import aclosing
from decimal import Decimal

from lanebus import AssistantMessage, ExtensionMessage, Session, ToolResultMessage, UserMessage
from lanebus.bus.messages import AgentEnded, Cost, MessageEnded, MessageStarted, ThinkingBlock, ToolStarted, TurnId
from lanebus.messages import AgentStarted, Delta, TextBlock, ToolCallBlock, ToolEnded, TurnEnded, TurnStarted, Usage

ANSWER = "17 × 23 is 391."
ENTRIES = 15
"""number of entries for one question and its answer"""


async def answer_all(session: Session) -> None:
    """Answer every user message of a session, from its start."""
    async with aclosing(session.follow()) as envelopes:
        async for envelope in envelopes:
            if isinstance(envelope.message, UserMessage):
                await _answer(session, envelope.position)


async def _answer(session: Session, question: int) -> None:
    loop = f"{session.id}.main.{question}"
    first, second = TurnId(loop_id=loop, turn_index=0), TurnId(loop_id=loop, turn_index=1)
    spent = Usage(input=100, output=20, cache_read=50, total_tokens=170, cost=Cost(total=Decimal("0.0125")))
    call = ToolCallBlock(id=f"call-{question}", name="calculator", arguments={"expression": "17 * 23"})

    await session.publish(
        AgentStarted(loop_id=loop, agent="scripted").as_extension(),
        TurnStarted(turn_id=first, prompts=(question,)).as_extension(),
        MessageStarted(turn_id=first, message_id=f"{loop}-a").as_extension(),
    )
    for piece in ("I had ", "better ", "calculate."):
        await session.preview(Delta(kind="thinking", message_id=f"{loop}-a", turn_id=first, delta=piece))
    asked = await session.publish(
        AssistantMessage(
            id=f"{loop}-a",
            turn_id=first,
            content=(ThinkingBlock(text="I had better calculate."), call),
            stop_reason="toolUse",
            model="scripted-1",
            usage=spent,
        ),
        ToolStarted(turn_id=first, tool_call_id=call.id, tool_name=call.name).as_extension(),
        ExtensionMessage.of("progress", {"percent": 50}),
        ToolResultMessage.of(call, "391").with_turn_id(first),
        ToolEnded(turn_id=first, tool_call_id=call.id, tool_name=call.name, is_error=False).as_extension(),
    )
    await session.publish(
        TurnEnded(turn_id=first, stop_reason="toolUse", usage=spent, message=asked.positions[0]).as_extension(),
        TurnStarted(turn_id=second, trigger="continuation").as_extension(),
    )
    for word in ANSWER.split(" "):
        await session.preview(Delta(kind="text", message_id=f"{loop}-b", turn_id=second, delta=word + " "))
    said = await session.publish(
        AssistantMessage(
            id=f"{loop}-b", turn_id=second, content=(TextBlock(text=ANSWER),), model="scripted-1", usage=spent
        )
    )
    await session.publish(
        MessageEnded(turn_id=second, position=said.position).as_extension(),
        TurnEnded(turn_id=second, stop_reason="stop", usage=spent, message=said.position).as_extension(),
        AgentEnded(loop_id=loop, stop_reason="stop", turns=2, usage=spent.combine(spent)).as_extension(),
    )
