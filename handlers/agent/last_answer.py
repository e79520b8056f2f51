"""The last answer of a loop, collected from the entries of its session as they are followed."""

from dataclasses import dataclass
from typing import Final

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.message import AssistantMessage, StopReason, UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import DecodeFailure

__all__ = ("CONTINUED", "LastAnswer")

CONTINUED: Final = frozenset({"paused", "handoff", "contextCompacted"})
"""after these stop reasons the next loop continues"""

_WITH_NOTE = frozenset({"guardRail", "maxTurns"})
"""after these stop reasons the loop's final note has the reason"""


@dataclass
class LastAnswer:
    """The last answer so far, and the note after it that ends a loop."""

    message: AssistantMessage | None = None
    note: UserMessage | None = None

    def add(self, message: Publishable | Delta | DecodeFailure) -> None:
        """Look at the next message of the session."""
        match message:
            case AssistantMessage():
                self.message, self.note = message, None
            case UserMessage(turn_id=TurnId()):
                self.note = message
            case _:
                pass

    def fault(self, stop_reason: StopReason) -> str | None:
        """Return why a loop with this stop reason gave no answer; None if no reason is recorded.

        It is the loop's final note after `guardRail` or `maxTurns`, or else the error of a failed answer. Both are in
        the LLM lane, so another model may see them.
        """
        if self.note is not None and stop_reason in _WITH_NOTE:
            return self.note.text_content()
        return self.message.error_message if self.message is not None and self.message.is_failed else None
