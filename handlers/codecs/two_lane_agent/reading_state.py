"""The state of an event reader: the position of the last entry, and the current turn and message of each loop."""

from collections import defaultdict

from pydantic import JsonValue

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import AgentEvent
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.codecs.codec import ORIGIN
from lanebus.handlers.codecs.two_lane_agent.seen import Seen, Spoken

__all__ = ("EntryOrDelta", "ReadingState")

EntryOrDelta = Publishable | Delta


class ReadingState:
    """The state after the events that were read so far. `position` is the position of the last entry."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.seen = Seen()
        self._turns: dict[str, int] = {}
        self._message_counts: defaultdict[str, int] = defaultdict(int)
        self._open: dict[str, str] = {}

    def append(self, message: EntryOrDelta | AgentEvent) -> EntryOrDelta:
        """Return the message, or the event as a message, and assign the next position to it.

        A live delta gets no position.
        """
        entry = message.as_extension() if isinstance(message, AgentEvent) else message
        if not isinstance(entry, Delta):
            self.position += 1
        self.seen.add(self.position, entry)
        return entry

    # --- turns ----------------------------------------------------------------------------------------------------

    def turn(self, loop_id: str) -> TurnId:
        """Return the loop's current turn. If no event named a turn, return the loop's first turn."""
        return TurnId(loop_id=loop_id, turn_index=self._turns.get(loop_id, 0))

    def enter(self, turn_id: TurnId) -> TurnId:
        """Make this the current turn of its loop."""
        self._turns[turn_id.loop_id] = turn_id.turn_index
        return turn_id

    def turns(self, loop_id: str) -> int:
        """Return the number of turns that a loop has had."""
        return self._turns[loop_id] + 1 if loop_id in self._turns else 0

    # --- messages -------------------------------------------------------------------------------------------------

    def begin_message(self, loop_id: str) -> str:
        """Return a new id for the message that starts. The two-lane agent's messages have no ids, and live deltas need
        an id."""
        self._message_counts[loop_id] += 1
        self._open[loop_id] = f"{loop_id}.message.{self._message_counts[loop_id]}"
        return self._open[loop_id]

    def open_message(self, loop_id: str) -> str:
        """Return the id of the loop's current message. If there is no current message, begin one."""
        return self._open.get(loop_id) or self.begin_message(loop_id)

    def end_message(self, loop_id: str) -> str | None:
        """End the loop's current message and return its id; None if there is no current message."""
        return self._open.pop(loop_id, None)

    @staticmethod
    def take(message: Spoken, known: dict[int, Spoken]) -> int | None:
        """Return the position of `message` in `known`, or None, and remove that position from `known`.

        The removal ensures that two equal messages get two positions.
        """
        bare = _bare(message)
        position = next((place for place, each in known.items() if _bare(each) == bare), None)
        if position is not None:
            del known[position]
        return position

    def stamped(
        self, message: Spoken, turn_id: TurnId, mark: str | None = None, message_id: str | None = None
    ) -> Spoken:
        """Return the message as the log stores it.

        Args:
            message: the message as it was read.
            turn_id: the message's turn.
            mark: stored in the origin to write the same event again. "told" if the two-lane agent's event names a turn
                that it normally omits. "absent" if the event omits a turn that it normally names. None stores nothing.
            message_id: the message's id.
        """
        if not isinstance(message, LlmMessage):
            return message
        noted: dict[str, JsonValue] = {} if mark is None else {"turnId": mark}
        if isinstance(message, ToolResultMessage) and (beside := self.seen.beside(message.tool_call_id)):
            noted["result"] = beside
        origin: dict[str, JsonValue] = {ORIGIN: {"codec": "001", **noted}} if noted else {}
        metadata = {**(message.metadata or {}), **origin} or None
        return message.model_copy(update={"turn_id": turn_id, "id": message_id, "metadata": metadata})


def _bare(message: Spoken) -> Spoken:
    """Return a copy to compare with copies of the same message in other events.

    In the copy, the fields that the two-lane agent sometimes omits and the fields that the event reader adds are None.
    """
    if not isinstance(message, LlmMessage):
        return message
    return message.model_copy(
        update={
            "turn_id": None,
            "id": None,
            "metadata": None,
            "node_id": None,
            "parent_id": None,
            "tags": None,
            "provenance_hint": None,
        }
    )
