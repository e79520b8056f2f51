"""What is published on all of a bus, as its indexes tell: how much, and in which sessions. For monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import InvalidSessionId
from lanebus.bus.log.script import Script, run_scripts
from lanebus.bus.wire.keys import check_session_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lanebus.bus.servers.topology import Argument, Pool
    from lanebus.bus.wire.keys import Keys

__all__ = ("Activity", "ActivityBounds", "Span", "read_activity")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBounds:
    """The bounds of one look."""

    pointers: int = 100
    """of each bucket that one look takes; what is beyond is counted and not named"""


_ACTIVITY = Script("activity")


class Span(NamedTuple):
    """Where a session was published to since the look before."""

    first: int
    """the last position of the first publish"""
    last: int
    """the last position of all"""
    publishes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One look; `read_activity` takes it to tell what came since."""

    time: float
    """seconds UTC, by the server's clock"""
    published: int
    """publishes there ever were on this server. Those of one process to one session that waited at the same time are
    one; so is a wake-up without a message"""
    named: int
    """publishes since the look before that `sessions` tells of; 0 at the first look"""
    sessions: Mapping[str, Span]
    """that were published to since the look before; not all where there was much"""
    ends: tuple[str, ...]
    """for the next look"""


async def read_activity(pool: Pool, keys: Keys, since: Activity | None, bounds: ActivityBounds) -> Activity:
    """Look, in one round trip.

    Args:
        since: the look before; None names nobody.

    Raises:
        Unavailable: the server cannot be reached.
    """
    ends = since.ends if since is not None else ("",) * keys.buckets
    calls: list[tuple[Sequence[str], Sequence[Argument]]] = [
        ((keys.index(bucket),), (end, bounds.pointers)) for bucket, end in enumerate(ends)
    ]
    replies = [cast("list[bytes | int]", reply) for reply in await run_scripts(pool, _ACTIVITY, calls)]
    sessions: dict[str, Span] = {}
    named = 0
    for reply in replies:
        words = [_text(word) for word in reply[3:]]
        named += len(words) // 2
        for session, position in zip(words[::2], words[1::2], strict=True):
            _note(sessions, session, position)
    return Activity(
        time=int(replies[0][0]) / 1000,
        published=sum(int(reply[1]) for reply in replies),
        named=named,
        sessions=sessions,
        ends=tuple(_text(reply[2]) for reply in replies),
    )


def _note(sessions: dict[str, Span], session: str, text: str) -> None:
    try:
        check_session_id(session)
        position = int(text)
    except (InvalidSessionId, ValueError):
        return  # somebody else's pointer
    before = sessions.get(session, Span(position, position, 0))
    sessions[session] = Span(before.first, max(before.last, position), before.publishes + 1)


def _text(word: bytes | int) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
