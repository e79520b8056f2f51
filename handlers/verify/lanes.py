"""Check a session's own entries: first the archived entries, then the entries in the lanes."""

from contextlib import aclosing

from lanebus.bus.bus import Bus
from lanebus.bus.errors import CursorTrimmed
from lanebus.handlers.verify.entries import EntryCheck, merged_entries
from lanebus.handlers.verify.head_fields import HeadFields
from lanebus.handlers.verify.problem import Findings

__all__ = ("check_entries",)


async def check_entries(bus: Bus, session: str, head_fields: HeadFields, findings: Findings) -> int:
    """Check that every position exists once and can be read, and that the head's byte count is right.

    Returns:
        The number of entries.

    Raises:
        Refused: the key of a lane has the wrong type.
        Unavailable: the server or the archive cannot be reached.
    """
    inspector, kept = bus.inspector, head_fields.first
    first = await _first_archived(bus, session, head_fields, findings)
    if first > head_fields.fork.position + 1:
        findings.note(f"it begins at {first}: earlier entries were trimmed")
    if findings.has("head"):  # the head's first position may be wrong
        check = EntryCheck(findings, 0)
    else:
        check = EntryCheck(findings, first, head_fields.incarnations, head_fields.fork.position)
    if first < kept:
        head = await bus.session(session).head()
        async with aclosing(inspector.archived_pages(head, first - 1, head_fields.trimmed)) as pages:
            async for page in pages:
                for lane, entry in page:
                    check.take(lane, entry)
    check.begin(kept)
    async with aclosing(merged_entries(inspector, session, kept, head_fields.position)) as entries:
        async for lane, entry in entries:
            check.take(lane, entry)
    check.end(head_fields.position)
    if check.size_bytes != head_fields.size_bytes and not findings.has("hole", "double", "head"):
        findings.add("bytes", 0, f"the head counts {head_fields.size_bytes} bytes, its entries have {check.size_bytes}")
    return check.entries


async def _first_archived(bus: Bus, session: str, head_fields: HeadFields, findings: Findings) -> int:
    """Check the archive. Return the first position that can be read from the archive, or else from the log."""
    inspector, begin = bus.inspector, head_fields.fork.position
    if head_fields.archived and not inspector.has_archive:
        archived = head_fields.archived
        findings.note(f"entries up to {archived} are archived; they were not checked, as no archive was given")
    if not inspector.has_archive or findings.has("head"):
        return head_fields.first
    async with aclosing(bus.session(session).check_archive()) as problems:
        async for problem in problems:
            segment = f"segment {problem.segment}: " if problem.segment else ""
            findings.add("archive", 0, f"{problem.kind}: {segment}{problem.text}")
    if findings.has("archive"):
        findings.note("trimmed entries were not checked, as the archive is damaged")
        return head_fields.first
    if head_fields.trimmed <= begin:
        return head_fields.first
    head = await bus.session(session).head()
    try:
        async with aclosing(inspector.archived_pages(head, begin, begin + 1)) as pages:
            await anext(pages)
    except CursorTrimmed as error:
        return min(error.first_kept, head_fields.first)
    return begin + 1
