"""Write the parts of the two-lane agent's events: messages with or without their turn, tool results, moments."""

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.events import AgentEvent
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.codecs.codec import ORIGIN
from lanebus.handlers.codecs.two_lane_agent.moment import write_moment
from lanebus.handlers.codecs.two_lane_agent.seen import Seen, Spoken
from lanebus.handlers.codecs.two_lane_agent.writer import MessageWriter
from lanebus.handlers.json_fields import Object

__all__ = ("EventForm",)


class EventForm:
    """Writes the messages, tool results and times in the two-lane agent's events of one entry.

    `losses` lists everything that the two-lane agent cannot represent.
    """

    def __init__(self, seen: Seen, envelope: Envelope) -> None:
        self.seen = seen
        self.session, self.position = envelope.session, envelope.position
        self._now = round(envelope.time * 1000)
        self._writer = MessageWriter()

    @property
    def losses(self) -> list[str]:
        return self._writer.losses

    def moment(self, event: AgentEvent) -> str:
        """Return the time of the event. If the event has no timestamp, return the envelope's time."""
        return write_moment(self._now if event.timestamp is None else event.timestamp)

    def message(self, message: Spoken, path: str, *, has_turn: bool) -> Object:
        """Return a message in the form that events contain.

        Args:
            message: the message.
            path: path of the message in the event, for losses.
            has_turn: whether the message names its turn, as in events that end a turn or a loop. `EventReader` may have
                noted in the message's metadata whether the original event named the turn. Such a note overrides
                `has_turn`.
        """
        if isinstance(message, LlmMessage):
            message, notes = _without_notes(message)
            mark = notes.get("turnId")
            has_turn = has_turn if mark is None else mark == "told"
            message = message.model_copy(update={"id": None, "turn_id": message.turn_id if has_turn else None})
        return self._writer.write(message, path) or {}

    def draft(self, message_id: str) -> Object:
        """Return the part of a message that was streamed so far. The model and the usage are missing until the message
        ends."""
        draft = self.seen.drafts.get(message_id) or AssistantMessage()
        if isinstance(draft, AssistantMessage) and draft.timestamp is None:
            return MessageWriter().write(AssistantMessage(content=draft.content, timestamp=self._now), "") or {}
        return self.message(draft, "message", has_turn=False)

    def result(self, call: str, position: int | None) -> Object:
        """Return a tool call's result.

        Args:
            call: id of the tool call.
            position: position of the result message. None returns the result that an event reported, or else the newest
                result in the log.
        """
        if position is None and call in self.seen.results:
            return self.seen.results[call]
        message = self.seen.message(position) or self.seen.result(call)
        if not isinstance(message, ToolResultMessage):
            return {"content": [], "details": None}
        unstructured = message.model_copy(update={"structured": None})  # `structured` becomes `details`
        noted = _without_notes(message)[1].get("result")
        beside = noted if isinstance(noted, dict) else {}
        content = self.message(unstructured, "result", has_turn=False)["content"]
        return {"content": content, "details": message.structured, **beside}


def _without_notes(message: LlmMessage) -> tuple[LlmMessage, Object]:
    """Split a message into the message without the event reader's notes, and these notes."""
    origin = (message.metadata or {}).get(ORIGIN)
    if not isinstance(origin, dict) or not _is_ours(origin):
        return message, {}
    rest = {key: item for key, item in (message.metadata or {}).items() if key != ORIGIN}
    return message.model_copy(update={"metadata": rest or None}), origin


def _is_ours(origin: Object) -> bool:
    noted = origin.keys() - {"codec"}
    is_turn_told = isinstance(origin.get("turnId"), str | None)
    return origin.get("codec") == "001" and bool(noted) and noted <= {"turnId", "result"} and is_turn_told
