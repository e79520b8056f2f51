"""Check a session's own entries: first the archived entries, then the entries in the lanes."""

from contextlib import aclosing

from lanebus.bus.bus import Bus
from lanebus.bus.errors import CursorTrimmed
from lanebus.handlers.verify.entries import EntryCheck, merged_entries
from lanebus.handlers.verify.head_fields import HeadFields
from lanebus.handlers.verify.problem import Findings

__all__ = ("check_entries",)


async def check_entries(bus: Bus, session: str, standing: HeadFields, findings: Findings) -> int:
    """Check that every position exists once and can be read, and that the head's byte count is right.

    Returns:
        The number of entries.

    Raises:
        Refused: the key of a lane has the wrong type.
        Unavailable: the server or the archive cannot be reached.
    """
    inspector, kept = bus.inspector, standing.first
    first = await _first_archived(bus, session, standing, findings)
    if first > standing.fork.position + 1:
        findings.note(f"it begins at {first}: earlier entries were trimmed")
    if findings.has("head"):  # the head's first position may be wrong
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
    """Check the archive. Return the first position that can be read from the archive, or else from the log."""
    inspector, begin = bus.inspector, standing.fork.position
    if standing.archived and not inspector.has_archive:
        findings.note(f"entries up to {standing.archived} are archived; they were not checked, as no archive was given")
    if not inspector.has_archive or findings.has("head"):
        return standing.first
    async with aclosing(bus.session(session).check_archive()) as problems:
        async for problem in problems:
            segment = f"segment {problem.segment}: " if problem.segment else ""
            findings.add("archive", 0, f"{problem.kind}: {segment}{problem.text}")
    if findings.has("archive"):
        findings.note("trimmed entries were not checked, as the archive is damaged")
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
