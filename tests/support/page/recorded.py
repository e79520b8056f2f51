"""A session with loops that have ended: turns with tools, approvals, a sub-agent, retries, usage and cost."""

from collections.abc import Iterator
from decimal import Decimal

from lanebus import (
    AssistantMessage,
    ExtensionMessage,
    LlmMessage,
    Session,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.messages import (
    AgentEnded,
    AgentStarted,
    Approve,
    ControlAnswered,
    MessageEnded,
    MessageStarted,
    SessionLinked,
    StopReason,
    ToolEnded,
    ToolStarted,
    ToolWaiting,
    TurnEnded,
    TurnStarted,
)
from lanebus.messages import Cost, TurnId

_BATCH = 500


async def record_loops(
    session: Session,
    loops: int = 1,
    *,
    turns: int = 3,
    tool: str = "search",
    model: str = "model-1",
    agent: str = "planner",
    approved: int | None = None,
    failed: int | None = None,
    child: str | None = None,
) -> int:
    """Publish loops of several turns each, and return the last position.

    Every turn but the last of a loop calls the tool once.

    Args:
        session: the session; it may have entries.
        loops: number of loops; each begins with a question of the user.
        turns: number of turns of each loop.
        tool: name of the tool.
        model: name of the model.
        agent: name of the agent.
        approved: index of the turn whose call waits for a person in each loop; None means none.
        failed: index of the turn whose model call fails in each loop; None means none.
        child: id of the session that the first call of the first loop makes; None means none.
    """
    position = (await session.head()).position
    for number in range(loops):
        messages: list[LlmMessage | ExtensionMessage] = [UserMessage.text(f"Question {number}")]
        loop = TurnId(loop_id=f"{session.id}.main.{position + 1}", turn_index=0).loop_id
        messages.append(AgentStarted(loop_id=loop, agent=agent).as_extension())
        for index in range(turns):
            turn = TurnId(loop_id=loop, turn_index=index)
            wanted = _Turn(turn, tool, model, is_last=index == turns - 1, is_failed=index == failed)
            link = child if number == 0 and index == 0 else None
            messages += wanted.messages(session.id, position + len(messages), is_approved=index == approved, child=link)
        messages.append(
            AgentEnded(loop_id=loop, stop_reason="stop", turns=turns, usage=_usage(0)).as_extension(),
        )
        for start in range(0, len(messages), _BATCH):
            await session.publish(*messages[start : start + _BATCH])
        position += len(messages)
    return position


def _usage(index: int) -> Usage:
    cost = Cost(total=Decimal("0.01"))
    return Usage(input=100, output=20, cache_read=300 * index, total_tokens=120 + 300 * index, cost=cost)


class _Turn:
    def __init__(self, turn: TurnId, tool: str, model: str, *, is_last: bool, is_failed: bool) -> None:
        self._turn, self._tool, self._model = turn, tool, model
        self._is_last, self._is_failed = is_last, is_failed

    def messages(
        self, session: str, position: int, *, is_approved: bool, child: str | None
    ) -> Iterator[LlmMessage | ExtensionMessage]:
        """Yield the messages of the turn, whose first one gets the position after `position`."""
        turn, usage = self._turn, _usage(self._turn.turn_index)
        message_id = f"{turn.loop_id}-{turn.turn_index}"
        yield TurnStarted(turn_id=turn, trigger="continuation" if turn.turn_index else "user").as_extension()
        yield MessageStarted(turn_id=turn, message_id=message_id).as_extension()
        answer = position + 3
        call = ToolCallBlock(id=f"call-{message_id}", name=self._tool, arguments={"query": "Lisbon", "page": 1})
        has_call = not self._is_last and not self._is_failed
        reason: StopReason = "error" if self._is_failed else "stop" if self._is_last else "toolUse"
        text = TextBlock(text="The answer." if self._is_last else f"Look at {turn.turn_index}.")
        yield AssistantMessage(
            id=message_id,
            turn_id=turn,
            content=() if self._is_failed else (text, call) if has_call else (text,),
            stop_reason=reason,
            provider="anthropic",
            model=self._model,
            usage=usage,
        )
        yield MessageEnded(turn_id=turn, position=answer).as_extension()
        if has_call:
            yield from self._call(session, answer + 1, call, is_approved=is_approved, child=child)
        yield TurnEnded(turn_id=turn, stop_reason=reason, usage=usage, message=answer).as_extension()

    def _call(
        self, session: str, position: int, call: ToolCallBlock, *, is_approved: bool, child: str | None
    ) -> Iterator[LlmMessage | ExtensionMessage]:
        turn, call_id, name = self._turn, call.id, call.name
        if is_approved:
            yield ToolWaiting(turn_id=turn, tool_call_id=call_id, tool_name=name).as_extension()
            yield Approve(turn_id=turn, tool_call_id=call_id, by="maria").as_extension()
            yield ControlAnswered(control=position + 2, outcome="applied").as_extension()
            position += 3
        yield ToolStarted(turn_id=turn, tool_call_id=call_id, tool_name=name).as_extension()
        if child is not None:
            linked = SessionLinked(parent=session, child=child, turn_id=turn, tool_call_id=call_id, agent="researcher")
            yield linked.as_extension()
            position += 1
        yield ToolResultMessage.of(call, '{"found": 3}').with_turn_id(self._turn)
        yield ToolEnded(
            turn_id=turn,
            tool_call_id=call_id,
            tool_name=name,
            is_error=False,
            outcome="completed",
            position=position + 2,
        ).as_extension()
