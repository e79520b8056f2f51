"""The last answer of a loop and the end of its work, collected from the session's entries as they are followed."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import AgentEnded, AgentStarted, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.agent.decide.open_answer import is_cut, wanted_calls

__all__ = ("CONTINUED", "ENDING_KINDS", "LastAnswer", "WorkEnd")

ENDING_KINDS: Final = frozenset({"assistant", "user", AgentStarted.KIND, AgentEnded.KIND})
"""kinds of the messages that `LastAnswer.follow` reads"""

CONTINUED: Final = frozenset({"paused", "handoff", "contextCompacted"})
"""stop reasons after which the next loop continues the work of the loop that ended"""

_WITH_NOTE = frozenset({"guardRail", "maxTurns"})
"""stop reasons for which the loop's final note contains the explanation"""


class WorkEnd(NamedTuple):
    """How the work on a session's messages ended."""

    stop_reason: StopReason
    loop_id: str | None
    """id of the last loop; None if no loop began"""


@dataclass
class LastAnswer:
    """Keeps the latest answer and, if it came later, the loop's final note, which says why the loop ended."""

    message: AssistantMessage | None = None
    note: UserMessage | None = None
    is_open: bool = False
    """whether `follow` has read the start of a loop, and not its end"""

    def follow(self, envelope: Envelope) -> WorkEnd | None:
        """Read the session's next entry, of `ENDING_KINDS` at least. Return how the work ended if this entry ends it.

        A loop ends the work unless another loop continues it. Some work ends while no loop is open, so the log has no
        `AgentEnded` for it, only an answer: an abort before the first loop or after a pause, the failure of an agent
        between loops, and each answer of an agent that is a function.
        """
        message = None if envelope.is_imported else envelope.message
        match message:
            case AssistantMessage():
                if is_cut(message):  # the next turn answers the same messages
                    return None
                self.add(message)
                is_whole = message.turn_id is None and not self.is_open and not wanted_calls(message)
                loop_id = None if message.turn_id is None else message.turn_id.loop_id
                return WorkEnd(message.stop_reason, loop_id) if message.is_failed or is_whole else None
            case UserMessage():
                self.add(message)
            case ExtensionMessage(kind=AgentStarted.KIND | AgentEnded.KIND):
                return self._follow_loop(message)
            case _:
                pass
        return None

    def _follow_loop(self, message: ExtensionMessage) -> WorkEnd | None:
        try:
            event = parse_event(message)
        except MessageError:  # any client can publish an event that cannot be read
            return None
        self.is_open = isinstance(event, AgentStarted)
        if not isinstance(event, AgentEnded) or event.stop_reason in CONTINUED:
            return None
        return WorkEnd(event.stop_reason, event.loop_id)

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
