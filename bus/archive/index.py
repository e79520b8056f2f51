"""Read and extend the server's index of a session's archive.

The index holds the names of the session's segments by position. The head holds the end of the chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lanebus.bus.log.script import Script
from lanebus.bus.messages.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.codec import Mark

__all__ = ("archive_tip", "archived_segments", "extend_archive")

_ARCHIVE = Script("archive", shares=("damage", "proofs"))


async def archive_tip(log: Log, session: str) -> str:
    """Return the end of the session's chain of segments, as `extend_archive` stored it; "" if nothing is archived."""
    tip = await log.call("HGET", log.keys.head(session), "archive")
    return cast("bytes", tip or b"").decode(errors="replace")


async def archived_segments(log: Log, session: str, position: int = 0, count: int = -1) -> list[str]:
    """Return the names of the archived segments that end at a position or later, in order.

    Args:
        log: the log.
        session: id of the session.
        position: the position; 0 returns all segments.
        count: maximum number of names to return; -1 means all.
    """
    reply = await log.call("ZRANGEBYSCORE", log.keys.archive(session), position, "+inf", "LIMIT", 0, count)
    return [name.decode(errors="replace") for name in cast("list[bytes]", reply)]


async def extend_archive(
    log: Log, session: str, tip: str, new_tip: str, *, mark: Mark, segments: Sequence[tuple[int, str]]
) -> str:
    """If a session's chain ends at `tip`, add segments to its index and move the end to `new_tip`.

    Args:
        log: the log.
        session: id of the session.
        tip: the expected end of the chain; "" if nothing is archived.
        new_tip: the new end of the chain. If it equals `tip`, only lost names are added to the index again.
        mark: mark of the entry at the last position of the last segment.
        segments: the last position and the name of each segment.

    Returns:
        "moved" if the chain has the segments now. If nothing was written: "behind" if the chain no longer ends at
        `tip` or the entries were trimmed, "lost" if the log lost the entries, "erased" if the session was erased.
    """
    names = (
        log.keys.head(session),
        log.keys.archive(session),
        *(log.keys.lane(session, lane) for lane in Lane),
    )
    pairs = [word for pair in segments for word in pair]
    reply = await log.run(_ARCHIVE, names, (tip, new_tip, *mark, *pairs))
    return cast("bytes", reply).decode()
