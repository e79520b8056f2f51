"""A sum of usages in which an estimate gives way once it is known what the call really took."""

from collections.abc import Mapping

from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import UsageSettled
from lanebus.bus.messages.usage import Usage

__all__ = ("Early", "Pending", "added", "settled", "take_early", "with_early")

_KEPT = 256

Early = Mapping[str, Usage]
"""position of a message that has not come → what it took, told before it"""


class Pending(Frozen):
    """What of a sum are estimates. A sum cannot be taken back from another, so it is kept without them as well."""

    reported: Usage = Usage()
    """the sum without the estimates"""
    estimates: Mapping[str, Usage] = {}
    """by the position of the message; of more than 256 the oldest are taken for what they took"""


def added(total: Usage, pending: Pending | None, position: int, usage: Usage) -> tuple[Usage, Pending | None]:
    """The sum with one message's usage more."""
    usage = Usage().combine(usage)  # which leaves the provider's own object out
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
    """The sum with what a message really took in place of its estimate, which has to be one of those pending."""
    estimates = {at: usage for at, usage in pending.estimates.items() if at != str(event.message)}
    total = reported = pending.reported.combine(event.usage)
    for usage in estimates.values():
        total = total.combine(usage)
    return total, Pending(reported=reported, estimates=estimates) if estimates else None


def with_early(early: Early, position: int, event: UsageSettled) -> Early:
    """The same with a settlement whose message may still come; one that is told again, or too late, changes nothing.

    Args:
        position: of the event.
    """
    if event.message <= position or str(event.message) in early:
        return early
    kept = {**early, str(event.message): Usage().combine(event.usage)}
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]
    return kept


def take_early(early: Early, position: int, usage: Usage | None) -> tuple[Usage | None, Early]:
    """What a message took: what was told before it in place of its estimate, and what is left of that."""
    if str(position) not in early:
        return usage, early
    known = early[str(position)]
    rest = {at: told for at, told in early.items() if at != str(position)}
    return (known if usage is not None and usage.estimated else usage), rest
