"""Read from the indexes how many publishes the whole bus had, and to which sessions. For monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from lanebus.bus.errors import InvalidSessionId, check_bounds, require_instance
from lanebus.bus.log.script import Script, run_scripts
from lanebus.bus.wire.keys import check_session_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.servers.replies import Argument
    from lanebus.bus.wire.keys import Keys

__all__ = ("Activity", "ActivityBounds", "Span", "read_activity")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBounds:
    """Bounds of one `Bus.activity` call."""

    publishes: int = 100
    """maximum number of publishes in each bucket for which the session is named; further publishes are only counted"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.activity")


_ACTIVITY = Script("activity")


class Span(NamedTuple):
    """The publishes to one session since the previous reading."""

    first: int
    """position of the last message of the earliest publish"""
    last: int
    """position of the last message of the latest publish"""
    publishes: int
    """number of publishes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One reading of a bus's activity. Pass it to the next `Bus.activity` to get the publishes after this reading."""

    time: float
    """seconds since 1970 UTC, by the server's clock"""
    published: int
    """number of all publishes so far. Publishes of one process to one session that were sent in one batch count once. A
    wake-up without a message also counts once"""
    named: int
    """number of publishes that are counted in `sessions`; 0 in the first reading"""
    sessions: Mapping[str, Span]
    """the publishes since the previous reading, by session; at most `ActivityBounds.publishes` publishes of each
    bucket"""
    ends: tuple[str, ...]
    """for each bucket, the id of the last change notice. The next reading begins after it"""

    @classmethod
    def recent(cls, buckets: int) -> Self:
        """Return a value for the first `Bus.activity` call. With this value, the call also names the sessions of the
        newest publishes.

        Args:
            buckets: `Bus.buckets`.
        """
        return cls(time=0.0, published=0, named=0, sessions={}, ends=("newest",) * buckets)


async def read_activity(pool: Pool, keys: Keys, since: Activity | None, bounds: ActivityBounds) -> Activity:
    """Read the activity of all buckets in one round trip.

    Args:
        since: the previous reading; None names no sessions.

    Raises:
        Unavailable: the server did not answer.
    """
    require_instance("since", since, Activity, "pass the result of an earlier call", is_optional=True)
    ends = since.ends if since is not None else ("",) * keys.buckets
    calls: list[tuple[Sequence[str], Sequence[Argument]]] = [
        ((keys.index(bucket),), (end, bounds.publishes)) for bucket, end in enumerate(ends)
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
        return  # a foreign client wrote this reference to a publish
    previous = sessions.get(session, Span(position, position, 0))
    sessions[session] = Span(min(previous.first, position), max(previous.last, position), previous.publishes + 1)


def _text(word: bytes | int) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
