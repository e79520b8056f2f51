"""A dead letter that was sent on its way again: what its agent failed at is to be answered after all."""

from collections.abc import Sequence

from lanebus.bus.messages.message import AssistantMessage, now_ms
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.decide.open_answer import is_cut
from lanebus.handlers.agent.turn.answer_record import reading_metadata
from lanebus.handlers.context.read_marks import deferred_positions, read_position

__all__ = ("AGAIN_TEXT", "Reopening", "reopening")

AGAIN_TEXT = "sent on its way again"

SHORTEST_CUT = 64
"""Characters: a reason that is as long may be the beginning of a longer one."""

Reopening = tuple[AssistantMessage, int]
"""An empty answer, which no model is shown, and the position of the failed one that it takes back."""


def reopening(path: Sequence[Envelope], reason: str) -> Reopening | None:
    """What to append so that users' messages that counted as answered by a failure count as unread again. Pure.

    None where the session has gone on since, or failed for another reason than the letter's: there is nothing to do.

    Args:
        reason: why the work was set aside.
    """
    answers = (each for each in reversed(path) if read_position(each) is not None and not _is_cut(each))
    failed, previous = next(answers, None), next(answers, None)
    if failed is None or not isinstance(failed.message, AssistantMessage) or failed.message.stop_reason != "error":
        return None
    if not _is_same(failed.message.error_message or "", reason):
        return None
    read_up_to = (read_position(previous) or 0) if previous is not None else 0
    metadata = reading_metadata(read_up_to, sorted(deferred_positions(previous)) if previous is not None else ())
    answer = AssistantMessage(stop_reason="aborted", error_message=AGAIN_TEXT, metadata=metadata, timestamp=now_ms())
    return answer, failed.position


def _is_same(said: str, kept: str) -> bool:
    """Whether what was kept of a reason, which may end anywhere, is of this one."""
    beginning = kept.rstrip("\ufffd")
    return bool(beginning) and (said == kept or (len(kept) >= SHORTEST_CUT and said.startswith(beginning)))


def _is_cut(envelope: Envelope) -> bool:
    return isinstance(envelope.message, AssistantMessage) and is_cut(envelope.message)
