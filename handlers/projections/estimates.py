"""Sum usages so that the settled usage of a message can later replace its estimate."""

from collections.abc import Mapping

from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import UsageSettled
from lanebus.bus.messages.usage import Usage

__all__ = ("Early", "Pending", "added", "settled", "take_early", "with_early")

_KEPT = 256

Early = Mapping[str, Usage]
"""message position → final usage, from each `UsageSettled` that comes before its message in the log."""


class Pending(Frozen):
    """The estimated usages in a sum. Usages cannot be subtracted, so `reported` holds the sum without them."""

    reported: Usage = Usage()
    """the sum without the estimates"""
    estimates: Mapping[str, Usage] = {}
    """message position → estimate; at most 256. If there are more, the oldest estimate is added to `reported` and can
    no longer be replaced by the final usage."""


def added(total: Usage, pending: Pending | None, position: int, usage: Usage) -> tuple[Usage, Pending | None]:
    """Add the usage of one message. Return the new sum, and the estimates in the new sum.

    Args:
        total: the sum so far.
        pending: the estimates in `total`; None if there are none.
        position: position of the message.
        usage: usage of the message.
    """
    usage = Usage().combine(usage)  # combining drops `raw`, the provider's own object
    if not usage.estimated:
        if pending is not None:
            pending = Pending(reported=pending.reported.combine(usage), estimates=pending.estimates)
        return total.combine(usage), pending
    known = pending or Pending(reported=total)
    reported, estimates = known.reported, {**known.estimates, str(position): usage}
    if len(estimates) > _KEPT:
        reported = reported.combine(estimates.pop(next(iter(estimates))))
    return total.combine(usage), Pending(reported=reported, estimates=estimates)


def settled(pending: Pending, event: UsageSettled) -> tuple[Usage, Pending | None]:
    """Replace the estimate of a message by its final usage. Return the new sum and the remaining estimates.

    Args:
        pending: the estimates in the sum. They must contain an estimate for the message of `event`.
        event: has the final usage.
    """
    estimates = {at: usage for at, usage in pending.estimates.items() if at != str(event.message)}
    total = reported = pending.reported.combine(event.usage)
    for usage in estimates.values():
        total = total.combine(usage)
    return total, Pending(reported=reported, estimates=estimates) if estimates else None


def with_early(early: Early, position: int, event: UsageSettled) -> Early:
    """Return `early` with the final usage of a message that comes later in the log.

    A repeated event for a message, or an event that comes after its message, changes nothing.

    Args:
        early: the final usages so far. At most 256 are kept; if there are more, the oldest is dropped.
        position: position of the event.
        event: has the final usage.
    """
    if event.message <= position or str(event.message) in early:
        return early
    kept = {**early, str(event.message): Usage().combine(event.usage)}
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]
    return kept


def take_early(early: Early, position: int, usage: Usage | None) -> tuple[Usage | None, Early]:
    """Return the usage to count for a message, and `early` without this message.

    If the message reports an estimate and `early` has its final usage, the final usage is returned.

    Args:
        early: the final usages so far.
        position: position of the message.
        usage: usage that the message reports; None if it reports no usage.
    """
    if str(position) not in early:
        return usage, early
    known = early[str(position)]
    rest = {at: told for at, told in early.items() if at != str(position)}
    return (known if usage is not None and usage.estimated else usage), rest
