"""Counters of the publishes of one process, for monitoring. They are plain numbers, so that a publish is no slower."""

from typing import Literal

from lanebus.bus.errors import MessageError, OutcomeUnknown, StreamError, Unavailable
from lanebus.bus.histogram import Histogram

__all__ = ("OUTCOMES", "PublishCounts", "PublishOutcome")

PublishOutcome = Literal["appended", "duplicate", "refused", "invalid", "unavailable", "unknown", "cancelled", "failed"]
"""How a publish ended.

- "appended": the messages are in the log; "duplicate": its key was published before
- "refused": the log refused; "invalid": a message or an argument is wrong
- "unavailable": nothing was appended, because the server was away or full; "unknown": sent and not answered
- "cancelled": its caller was cancelled; "failed": any other error, such as a closed bus
"""

OUTCOMES: tuple[PublishOutcome, ...] = (
    "appended",
    "duplicate",
    "refused",
    "invalid",
    "unavailable",
    "unknown",
    "cancelled",
    "failed",
)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PUBLISHES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class PublishCounts:
    """Counters since the bus was opened. They only grow."""

    __slots__ = ("batches", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes: dict[PublishOutcome, int] = dict.fromkeys(OUTCOMES, 0)
        self.seconds = Histogram(_SECONDS)
        """the time of each publish from the call to its outcome, also if it failed"""
        self.batches = Histogram(_PUBLISHES)
        """the number of publishes in each round trip"""

    def note_receipt(self, seconds: float, *, is_duplicate: bool) -> None:
        """Count a publish that returned a receipt after `seconds`."""
        self.outcomes["duplicate" if is_duplicate else "appended"] += 1
        self.seconds.add(seconds)

    def note_error(self, seconds: float, error: BaseException) -> None:
        """Count a publish that raised `error` after `seconds`."""
        self.outcomes[_outcome(error)] += 1
        self.seconds.add(seconds)


def _outcome(error: BaseException) -> PublishOutcome:
    if not isinstance(error, Exception):
        return "cancelled"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, Unavailable):
        return "unavailable"
    if isinstance(error, StreamError):
        return "refused"
    return "invalid" if isinstance(error, MessageError) else "failed"
