"""A small made-up session that contains every command and every answer to a command."""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus import AssistantMessage, ExtensionMessage, TextBlock, ToolCallBlock, Usage, UserMessage
from lanebus.bus.messages import ControlAnswered, Deny, Handoff, MessageEnded, MessageStarted, Pause, Publishable, Steer
from lanebus.messages import (
    Abort,
    AgentEnded,
    AgentEvent,
    AgentStarted,
    Approve,
    Compact,
    CompactionFailed,
    Control,
    RequestDefined,
    Resume,
    SessionAssigned,
    SessionLinked,
    ToolDefinition,
    ToolWaiting,
    TurnId,
    TurnStarted,
)

__all__ = ("CONTROLLED",)
_LOOP = "golden.main.1"
_TURN = TurnId(loop_id=_LOOP, turn_index=0)
_NEXT = TurnId(loop_id="golden.main.2", turn_index=0)
_SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"amount": {"type": "string", "default": None}},
    "required": ["amount"],
}
_CALL = ToolCallBlock(id="call_1", name="pay", arguments={"amount": "12.50"})
_OTHER = ToolCallBlock(id="call_2", name="ask_the_expert", arguments={})
_SPENT = Usage(input=120, output=9, total_tokens=129)


def _told(*said: AgentEvent | Control) -> list[Publishable]:
    return [each.as_extension() for each in said]


CONTROLLED: Sequence[Publishable] = (
    UserMessage(content=(TextBlock(text="Pay the bill."),), timestamp=1_700_000_000_000),
    *_told(
        AgentStarted(loop_id=_LOOP, agent="golden"),
        TurnStarted(turn_id=_TURN, prompts=(1,)),
        MessageStarted(turn_id=_TURN, message_id="answer"),
    ),
    AssistantMessage(
        content=(_CALL, _OTHER),
        id="answer",
        turn_id=_TURN,
        stop_reason="toolUse",
        provider="anthropic",
        model="claude-golden",
        usage=_SPENT,
    ),
    *_told(
        MessageEnded(turn_id=_TURN, message_id="answer", position=5),
        ToolWaiting(turn_id=_TURN, tool_call_id="call_1", tool_name="pay"),
        ToolWaiting(turn_id=_TURN, tool_call_id="call_2", tool_name="ask_the_expert", why="unknown"),
        SessionLinked(parent="golden", child="expert", turn_id=_TURN, tool_call_id="call_2", agent="expert"),
        Approve(turn_id=_TURN, tool_call_id="call_1", by="ada"),
        ControlAnswered(control=10, outcome="applied"),
        Deny(turn_id=_TURN, tool_call_id="call_1", reason="too much"),
        ControlAnswered(control=12, outcome="late"),
        Pause(reason="lunch"),
        Pause(),
        ControlAnswered(control=14, outcome="applied"),
        ControlAnswered(control=15, outcome="repeated"),
        Handoff(to="ada", reason="money"),
    ),
    ExtensionMessage.of("control.abort", {"when": "whenever"}),
    *_told(
        ControlAnswered(control=18, outcome="applied"),
        ControlAnswered(control=19, outcome="refused", reason="no such moment"),
        Resume(by="ada"),
        Compact(by="ada"),
    ),
    UserMessage(content=(TextBlock(text="Be quick."),)),
    *_told(
        Steer(position=24, when="now"),
        Abort(loop_id=_LOOP, when="turn", reason="enough"),
        ControlAnswered(control=22, outcome="applied"),
        AgentEnded(loop_id=_LOOP, stop_reason="userStop", turns=1, usage=_SPENT),
        CompactionFailed(loop_id=_LOOP, reason="no words", provider="anthropic", model="claude-golden", usage=_SPENT),
        AgentStarted(loop_id=_NEXT.loop_id, agent="golden", parent_loop_id=_LOOP, continuation="default"),
        RequestDefined(
            hash="5d6f1c2a",
            provider="anthropic",
            model="claude-golden",
            api="anthropic",
            tools=(ToolDefinition(name="pay", description="Pay a bill.", input_schema=_SCHEMA),),
            max_tokens=4096,
            options={"cache": True, "options": {"temperature": 0.5, "stop_sequences": None}},
        ),
        TurnStarted(turn_id=_NEXT, prompts=(1,), request="5d6f1c2a"),
        MessageStarted(turn_id=_NEXT, message_id="next", shown=24, held=(24,)),
        SessionAssigned(agent="billing", previous="support", by="ada", reason="money"),
    ),
)
"""Two calls that wait for a person, the commands sent meanwhile, and commands without an answer."""
