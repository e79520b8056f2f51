"""When the model is called again after a failed answer. Pure: the caller passes the random number."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lanebus.bus.groups.retry_policy import RetryPolicy
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.decide.open_answer import is_cut
from lanebus.handlers.agent.metadata_keys import AGAIN
from lanebus.handlers.agent.models.failure import failure_of

__all__ = ("MODEL_RETRY", "CallAgain", "call_again")

MODEL_RETRY = RetryPolicy(attempts=4, base=1.0, longest=60.0, jitter="equal")


class CallAgain(NamedTuple):
    """Call the model again in the same loop."""

    delay: float | None
    """seconds to wait; None means at once, with a compacted context"""


def call_again(
    message: AssistantMessage,
    entries: Sequence[Envelope],
    retry: RetryPolicy,
    *,
    can_compact: bool,
    chance: float,
    longest_wait: float,
) -> CallAgain | None:
    """Return when to call the model again; None if the answer succeeded or its failure is final.

    Args:
        entries: the entries of the LLM lane before the answer.
        retry: limits the attempts after transient failures. If the provider asks for a longer delay, that delay is
            used, up to `longest_wait`.
        can_compact: whether the agent compacts a context that is too long for the model. The model is then called once
            more.
        chance: random number from 0 up to 1, see `RetryPolicy.delay`.
        longest_wait: the longest delay in seconds that a provider may ask for, see `RunBounds.retry_after_seconds`.
    """
    failure = failure_of(message)
    if failure is None:
        return None
    failed = [*_failed(entries)]
    if failure.is_overflow:
        has_overflowed = any(each.is_context_overflow() for each in failed)  # a shorter context did not help
        return CallAgain(None) if can_compact and not has_overflowed else None
    attempt = len(failed) + 1
    if not failure.is_transient or attempt >= retry.attempts:
        return None
    return CallAgain(max(retry.delay(attempt, chance), min(failure.retry_after or 0.0, longest_wait)))


def _failed(entries: Sequence[Envelope]) -> Iterator[AssistantMessage]:
    """Yield the failed answers that were retried since the last successful answer."""
    for envelope in reversed(entries):
        message = envelope.message
        if not isinstance(message, AssistantMessage) or envelope.is_imported:
            continue
        if not is_cut(message):
            return
        if (message.metadata or {}).get(AGAIN):
            yield message
