"""The server's index of a session's archive: the names of its segments by position, and the end of their chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lanebus.bus.log.script import Script
from lanebus.bus.messages.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.log.log import Log

__all__ = ("archive_tip", "archived_segments", "extend_archive")

_ARCHIVE = Script("archive")


async def archive_tip(log: Log, session: str) -> str:
    """Return the end of the session's chain of segments, as `extend_archive` stored it, or "" if there is none."""
    tip = await log.call("HGET", log.keys.head(session), "archive")
    return cast("bytes", tip or b"").decode()


async def archived_segments(log: Log, session: str, position: int = 0, count: int = -1) -> list[str]:
    """Return the names of archived segments in order, starting with the one that holds a position, or the next.

    Args:
        log: the log.
        session: its id.
        position: where to start; 0 is the first segment.
        count: most names to return; -1 means all.
    """
    reply = await log.call("ZRANGEBYSCORE", log.keys.archive(session), position, "+inf", "LIMIT", 0, count)
    return [name.decode() for name in cast("list[bytes]", reply)]


async def extend_archive(
    log: Log, session: str, tip: str, new_tip: str, *, incarnation: str, segments: Sequence[tuple[int, str]]
) -> str:
    """Add segments to a session's index if its chain ends at `tip`, and move the end to `new_tip`.

    Args:
        log: the log.
        session: its id.
        tip: the expected end of the chain; "" if there is none.
        new_tip: the new end. If it equals `tip`, only lost names are added again.
        incarnation: the incarnation that wrote the last position of the last segment.
        segments: the last position and the name of each.

    Returns:
        "moved", "behind", "lost" or "erased"; see `scripts/archive.lua`.
    """
    names = (
        log.keys.head(session),
        log.keys.archive(session),
        *(log.keys.lane(session, lane) for lane in Lane),
    )
    pairs = [word for pair in segments for word in pair]
    reply = await log.run(_ARCHIVE, names, (tip, new_tip, incarnation, *pairs))
    return cast("bytes", reply).decode()
