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
"""stop reasons after which the next loop continues the work of the loop that ended"""

_WITH_NOTE = frozenset({"guardRail", "maxTurns"})
"""stop reasons for which the loop's final note contains the explanation"""


@dataclass
class LastAnswer:
    """Keeps the latest answer and, if it came later, the loop's final note, which says why the loop ended."""

    message: AssistantMessage | None = None
    note: UserMessage | None = None

    def add(self, message: Publishable | Delta | DecodeFailure) -> None:
        """Read the session's next message. Messages other than answers and final notes are ignored."""
        match message:
            case AssistantMessage():
                self.message, self.note = message, None
            case UserMessage(turn_id=TurnId()):
                self.note = message
            case _:
                pass

    def fault(self, stop_reason: StopReason) -> str | None:
        """Return why a loop with this stop reason gave no answer; None if no reason is recorded.

        After `guardRail` or `maxTurns`, the reason is the loop's final note, otherwise the error of a failed answer.
        Note and error are in the LLM lane, so another model may see them.
        """
        if self.note is not None and stop_reason in _WITH_NOTE:
            return self.note.text_content()
        return self.message.error_message if self.message is not None and self.message.is_failed else None
