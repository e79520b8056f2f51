"""Check the entries that a fork shares with its parent."""

from contextlib import aclosing

from lanebus.bus.bus import Bus
from lanebus.bus.errors import CursorTrimmed, StreamError
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.verify.head_fields import HeadFields, look_at_head
from lanebus.handlers.verify.problem import Findings

__all__ = ("check_lineage",)


async def check_lineage(bus: Bus, session: str, head_fields: HeadFields, findings: Findings) -> None:
    """Check that a fork's parent exists, did not lose the shared entries, and has a checkpoint that trims respect.
    Check also that the fork can read these entries. Do nothing if the session shares no entries.

    Raises:
        Unavailable: the server cannot be reached.
    """
    name, shared = head_fields.parent, head_fields.fork.position
    if not name or not shared:
        return  # no entry is shared, so the parent need not exist
    inspector = bus.inspector
    parent = await look_at_head(inspector, name)
    if parent.is_erased or not parent.is_there:
        findings.add("fork", shared, f"its parent {name!r} {'was erased' if parent.is_erased else 'does not exist'}")
        return
    writer = parent.incarnation_of(shared)
    forked_from = head_fields.fork.incarnation
    if parent.position < shared or (forked_from and writer not in {None, forked_from}):
        findings.add("fork", shared, f"its parent {name!r} lost shared entries, and may have grown again")
        return
    if not await inspector.fields(inspector.keys.checkpoints(name), (f"f:{session}",)):
        findings.add("fork", shared, f"its parent {name!r} has no checkpoint for it: trims may remove shared entries")
    await _read_shared(bus, session, head_fields, findings)


async def _read_shared(bus: Bus, session: str, head_fields: HeadFields, findings: Findings) -> None:
    """Check that the shared entries can be read through the fork, without a gap."""
    position = await _trimmed_before(bus, session, min(head_fields.trimmed, head_fields.fork.position))
    if position:
        findings.note(f"of the shared entries, those up to {position} were trimmed before the fork")
    try:
        reading = bus.session(session).read(after=Cursor(position), until=head_fields.fork.position)
        async with aclosing(reading) as envelopes:
            async for envelope in envelopes:
                position = max(position, envelope.position)
    except StreamError as error:
        findings.add("fork", position + 1, f"the shared entries cannot be read: {error}")
        return
    if position < head_fields.fork.position:
        findings.add("fork", position + 1, f"the shared entries end before {head_fields.fork.position}")


async def _trimmed_before(bus: Bus, session: str, trimmed: int) -> int:
    """Return the last position that the parent had trimmed when the fork was made.

    Args:
        bus: the bus.
        session: id of the fork.
        trimmed: the fork's trimmed position, at most the last shared position. It is higher than the result if the fork
            itself was trimmed.
    """
    last = 0
    while last < trimmed:
        try:
            async with aclosing(bus.session(session).read(after=Cursor(last), until=last + 1)) as envelopes:
                await anext(envelopes, None)
        except CursorTrimmed as gap:
            last = min(gap.first_kept - 1, trimmed)
        except StreamError:
            break  # the caller reads from this position on, and reports the error
        else:
            break
    return last
