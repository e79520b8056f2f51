"""What a fork shares with its parent, and what a parent keeps for its forks."""

from contextlib import aclosing

from lanebus.bus.bus import Bus
from lanebus.bus.errors import CursorTrimmed, StreamError
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.verify.head_fields import HeadFields, look_at_head
from lanebus.handlers.verify.problem import Findings

__all__ = ("check_lineage",)


async def check_lineage(bus: Bus, session: str, standing: HeadFields, findings: Findings) -> None:
    """The parent is there, is the log that was forked, keeps what is shared, and that can be read.

    Raises:
        Unavailable: the server cannot be reached.
    """
    name, shared = standing.parent, standing.fork.position
    if not name or not shared:
        return  # of whom it shares nothing it needs nothing, not even that it is there
    inspector = bus.inspector
    parent = await look_at_head(inspector, name)
    if parent.is_erased or not parent.is_there:
        findings.add("fork", shared, f"its parent {name!r} {'was erased' if parent.is_erased else 'is not there'}")
        return
    wrote = parent.incarnation_of(shared)
    if parent.position < shared or (standing.fork.incarnation and wrote not in {None, standing.fork.incarnation}):
        findings.add("fork", shared, f"its parent {name!r} has lost what they shared, and may have grown again")
        return
    if not await inspector.fields(inspector.keys.checkpoints(name), (f"f:{session}",)):
        findings.add("fork", shared, f"its parent {name!r} does not know that it has to keep what they share")
    await _read_shared(bus, session, standing, findings)


async def _read_shared(bus: Bus, session: str, standing: HeadFields, findings: Findings) -> None:
    """What is shared is read as the fork's, without a hole."""
    position = await _gone_before(bus, session, min(standing.trimmed, standing.fork.position))
    if position:
        findings.note(f"of what it shares, entries up to {position} were trimmed away before the fork")
    try:
        reading = bus.session(session).read(after=Cursor(position), until=standing.fork.position)
        async with aclosing(reading) as envelopes:
            async for envelope in envelopes:
                position = max(position, envelope.position)
    except StreamError as error:
        findings.add("fork", position + 1, f"what it shares cannot be read: {error}")
        return
    if position < standing.fork.position:
        findings.add("fork", position + 1, f"what it shares ends before {standing.fork.position}")


async def _gone_before(bus: Bus, session: str, trimmed: int) -> int:
    """Up to where what is shared was gone when it was forked. The head says so too, until the fork is trimmed."""
    gone = 0
    while gone < trimmed:
        try:
            async with aclosing(bus.session(session).read(after=Cursor(gone), until=gone + 1)) as envelopes:
                await anext(envelopes, None)
        except CursorTrimmed as gap:
            gone = min(gap.first_kept - 1, trimmed)
        except StreamError:
            break  # whoever reads on from here tells of it
        else:
            break
    return gone
