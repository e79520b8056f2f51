"""A redriven dead letter: the messages at which the agent failed become unanswered again."""

from collections.abc import Sequence

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.decide.open_answer import is_cut
from lanebus.handlers.agent.metadata_keys import REDRIVEN
from lanebus.handlers.agent.turn.answer_record import reading_metadata
from lanebus.handlers.context.read_marks import deferred_positions, read_position

__all__ = ("AGAIN_TEXT", "Reopening", "reopening")

AGAIN_TEXT = "sent on its way again"

SHORTEST_CUT = 64
"""minimum number of characters of a stored reason that may have been truncated"""

Reopening = tuple[AssistantMessage, int]
"""An empty answer, which no model reads, and the position of the failed answer that the empty answer reverts."""


def reopening(path: Sequence[Envelope], reason: str) -> Reopening | None:
    """Return a message that makes the messages of a failed run unread again, and the position of the failed answer.

    Pure.

    Args:
        path: the session's context path.
        reason: the dead letter's reason, which may be truncated.

    Returns:
        None if the session has continued since, or its last failure has another reason.
    """
    own = (each for each in reversed(path) if not each.is_imported)
    answers = (each for each in own if read_position(each) is not None and not _is_cut(each))
    failed, previous = next(answers, None), next(answers, None)
    if failed is None or not isinstance(failed.message, AssistantMessage) or failed.message.stop_reason != "error":
        return None
    if not _is_same(failed.message.error_message or "", reason):
        return None
    read_up_to = (read_position(previous) or 0) if previous is not None else 0
    metadata = reading_metadata(read_up_to, sorted(deferred_positions(previous)) if previous is not None else ())
    metadata[REDRIVEN] = True
    answer = AssistantMessage(stop_reason="aborted", error_message=AGAIN_TEXT, metadata=metadata, timestamp=now_ms())
    return answer, failed.position


def _is_same(reason: str, stored: str) -> bool:
    """Whether `stored` is `reason`, or a truncated form of it."""
    beginning = stored.rstrip("\ufffd")
    return bool(beginning) and (reason == stored or (len(stored) >= SHORTEST_CUT and reason.startswith(beginning)))


def _is_cut(envelope: Envelope) -> bool:
    return isinstance(envelope.message, AssistantMessage) and is_cut(envelope.message)
