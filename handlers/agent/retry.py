"""When a model is asked again that failed for a while."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bus.envelope import Envelope
from bus.messages.message import AssistantMessage
from handlers.agent.marks import AGAIN
from handlers.agent.open_answer import backwards, is_cut

__all__ = ("DEFAULT_RETRY", "ModelRetry", "Retrying", "failed_attempts", "has_overflowed")


class Retrying(Protocol):
    """How often something is tried, and after how long."""

    @property
    def attempts(self) -> int:
        """Tries in all, the first one among them."""
        ...

    def delay(self, attempt: int, random: float) -> float:
        """Seconds to wait after the failed try number `attempt`, from 1; `random` is from 0 to 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetry:
    """Pauses that double, each made shorter by up to a half at random, so that those who failed together do not come
    again together."""

    attempts: int = 4
    base: float = 1.0
    """seconds"""
    longest: float = 60.0

    def delay(self, attempt: int, random: float) -> float:
        """See `Retrying.delay`."""
        whole = min(self.longest, self.base * 2.0 ** min(attempt - 1, 32))
        return whole * (0.5 + random / 2)


DEFAULT_RETRY = ModelRetry()


def failed_attempts(entries: Sequence[Envelope]) -> int:
    """How many answers in a row have failed and are to be asked for again, up to the last entry."""
    return sum(1 for _ in _failed(entries))


def has_overflowed(entries: Sequence[Envelope]) -> bool:
    """A model was asked for too much since it last answered, so a shorter context did not help."""
    return any(message.is_context_overflow() for message in _failed(entries))


def _failed(entries: Sequence[Envelope]) -> Iterator[AssistantMessage]:
    for envelope in backwards(entries):
        message = envelope.message
        if not isinstance(message, AssistantMessage):
            continue
        if not is_cut(message):
            return
        if (message.metadata or {}).get(AGAIN):
            yield message
