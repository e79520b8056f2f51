"""A session's own entries from the first that is kept anywhere: those in the archive, then those in the lanes."""

from contextlib import aclosing

from lanebus.bus.bus import Bus
from lanebus.bus.errors import CursorTrimmed
from lanebus.handlers.verify.entries import EntryCheck, merged_entries
from lanebus.handlers.verify.head_fields import HeadFields
from lanebus.handlers.verify.problem import Findings

__all__ = ("check_entries",)


async def check_entries(bus: Bus, session: str, standing: HeadFields, findings: Findings) -> int:
    """Every position is there once, and can be read; the head counts their bytes. Gives how many there are.

    Raises:
        Refused: a lane's key is of another type.
        Unavailable: the server or the archive cannot be reached.
    """
    inspector, kept = bus.inspector, standing.first
    first = await _first_archived(bus, session, standing, findings)
    if first > standing.fork.position + 1:
        findings.note(f"it begins at {first}: what was before was trimmed away")
    if findings.has("head"):  # where it begins may be what is wrong there
        check = EntryCheck(findings, 0)
    else:
        check = EntryCheck(findings, first, standing.incarnations, standing.fork.position)
    if first < kept:
        head = await bus.session(session).head()
        async with aclosing(inspector.archived_pages(head, first - 1, standing.trimmed)) as pages:
            async for page in pages:
                for lane, entry in page:
                    check.take(lane, entry)
    check.begin(kept)
    async with aclosing(merged_entries(inspector, session, kept, standing.position)) as entries:
        async for lane, entry in entries:
            check.take(lane, entry)
    check.end(standing.position)
    if check.size_bytes != standing.size_bytes and not findings.has("hole", "double", "head"):
        findings.add("bytes", 0, f"the head counts {standing.size_bytes} bytes, its entries have {check.size_bytes}")
    return check.entries


async def _first_archived(bus: Bus, session: str, standing: HeadFields, findings: Findings) -> int:
    """Prove the archive; gives the first position that can be read of it, or of the log if nothing of it can."""
    inspector, begin = bus.inspector, standing.fork.position
    if standing.archived and not inspector.has_archive:
        findings.note(f"entries up to {standing.archived} are archived, and no archive was given to prove them")
    if not inspector.has_archive or findings.has("head"):
        return standing.first
    async with aclosing(bus.session(session).check_archive()) as problems:
        async for problem in problems:
            segment = f"segment {problem.segment}: " if problem.segment else ""
            findings.add("archive", 0, f"{problem.kind}: {segment}{problem.text}")
    if findings.has("archive"):
        findings.note("what was trimmed away was not proven, as the archive is not whole")
        return standing.first
    if standing.trimmed <= begin:
        return standing.first
    head = await bus.session(session).head()
    try:
        async with aclosing(inspector.archived_pages(head, begin, begin + 1)) as pages:
            await anext(pages)
    except CursorTrimmed as error:
        return min(error.first_kept, standing.first)
    return begin + 1
