"""Events of an agent loop: typed messages in the extension lane, of kind `agent.<event>`.

An event refers to messages, tool calls and results by id and position. It never repeats their content, so a reader of
the extension lane alone sees no content of the LLM lane. Publish an event with `as_extension()`, and read an event with
`parse_event`.

Source: the `two-lane-agent` system's `AgentEvent`, with turn ids added.
"""

from lanebus.bus.errors import UnknownKind, require_instance
from lanebus.bus.messages.events.context import (
    CompactionEnded,
    CompactionFailed,
    CompactionStarted,
    PruneApplied,
    RevertApplied,
)
from lanebus.bus.messages.events.event import AgentEvent
from lanebus.bus.messages.events.loops import (
    AgentEnded,
    AgentStarted,
    InputRejected,
    ParallelLoopsEnded,
    ParallelLoopsStarted,
)
from lanebus.bus.messages.events.sessions import ControlAnswered, SessionAssigned, SessionLinked
from lanebus.bus.messages.events.tools import (
    Progress,
    ToolEnded,
    ToolOutcome,
    ToolStarted,
    ToolUpdated,
    ToolWaiting,
)
from lanebus.bus.messages.events.turns import (
    MessageEnded,
    MessageStarted,
    RequestDefined,
    ToolDefinition,
    TurnEnded,
    TurnStarted,
    UsageSettled,
)
from lanebus.bus.messages.extension import EXTENSION_ADVICE, ExtensionMessage

__all__ = (
    "AgentEnded",
    "AgentEvent",
    "AgentStarted",
    "CompactionEnded",
    "CompactionFailed",
    "CompactionStarted",
    "ControlAnswered",
    "InputRejected",
    "MessageEnded",
    "MessageStarted",
    "ParallelLoopsEnded",
    "ParallelLoopsStarted",
    "Progress",
    "PruneApplied",
    "RequestDefined",
    "RevertApplied",
    "SessionAssigned",
    "SessionLinked",
    "ToolDefinition",
    "ToolEnded",
    "ToolOutcome",
    "ToolStarted",
    "ToolUpdated",
    "ToolWaiting",
    "TurnEnded",
    "TurnStarted",
    "UsageSettled",
    "parse_event",
)

_EVENTS: dict[str, type[AgentEvent]] = {
    event.KIND: event
    for event in (
        AgentStarted,
        AgentEnded,
        TurnStarted,
        TurnEnded,
        UsageSettled,
        MessageStarted,
        MessageEnded,
        ToolStarted,
        ToolUpdated,
        ToolEnded,
        Progress,
        InputRejected,
        ParallelLoopsStarted,
        ParallelLoopsEnded,
        CompactionStarted,
        CompactionEnded,
        CompactionFailed,
        PruneApplied,
        RevertApplied,
        ToolWaiting,
        ControlAnswered,
        SessionAssigned,
        SessionLinked,
        RequestDefined,
    )
}


def parse_event(message: ExtensionMessage) -> AgentEvent | None:
    """Return the agent event that an extension message holds; None if it has a kind other than `agent.…`.

    Raises:
        InvalidArgument: the argument is no extension message.
        UnknownKind: the message has a kind `agent.…` that does not exist.
        DecodeError: the data does not fit the event.
    """
    require_instance("message", message, ExtensionMessage, EXTENSION_ADVICE)
    if not message.kind.startswith("agent."):
        return None
    event = _EVENTS.get(message.kind)
    if event is None:
        raise UnknownKind(message.kind)
    return event.read(message.data)
