"""Requests of a hub to read sessions, and their division into batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanebus.bus.log.log import count_in
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.following.followed_session import FollowedSession

__all__ = ("ReadBatch", "ReadRequest", "divided")

_LAST = 2**64 - 1


class ReadRequest:
    """The streams of one session to read, each with the id to read after.

    The values are copied from the followed session, because subscriptions may join during the read.
    """

    def __init__(self, followed: FollowedSession) -> None:
        self.followed, self.lanes = followed, followed.lanes
        self.live, self.newest = followed.live, followed.newest
        # Begin after the highest possible id of the position. Otherwise an entry `<position>-7` of a foreign client
        # would be read again and again.
        after = f"{followed.position}-{_LAST}"
        self.streams = [(followed.names[lane], followed.foreign.get(lane, after)) for lane in followed.lanes]
        if followed.live is not None:
            self.streams.append((followed.live_name, followed.live_id))

    def unread_bytes(self, stored: Sequence[bytes | None]) -> int:
        """Return the most bytes of JSON that the reply can have, if nothing more is appended.

        Args:
            stored: the current values of the head's fields position, bytes, trimmed and live. A damaged value counts as
                0: the head is read and checked with the entries.
        """
        position, held, trimmed = map(count_in, stored[:3])
        previous, live = self.followed.caught_up, 0
        if previous.trimmed == trimmed:  # after a trim it is unknown how many of the trimmed bytes were read before
            held -= previous.size_bytes
        words = (stored[3] or b"").split(b" ")
        if self.live is not None and len(words) > 1:
            live = count_in(words[1])
        return max(0, min(held, (position - self.followed.position) * MESSAGE_LIMIT_BYTES)) + live


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Requests sent in one round trip."""

    requests: list[ReadRequest]
    count: int
    """maximum number of entries to read of each stream"""


def divided(sized: Iterable[tuple[ReadRequest, int]], budget: int, count: int) -> list[ReadBatch]:
    """Divide requests into batches whose replies stay within a budget.

    Args:
        sized: each request with the most bytes that its reply can have.
        budget: maximum number of bytes of one reply. A request with a larger reply gets a batch of its own, with fewer
            entries.
        count: maximum number of entries to read of each stream.
    """
    batches: list[ReadBatch] = []
    room = -1  # bytes left in the last batch
    for request, size in sized:
        if size > budget:
            few = max(1, budget // (max(len(request.streams), 1) * MESSAGE_LIMIT_BYTES))
            batches.append(ReadBatch([request], min(few, count)))
            room = -1
        elif size <= room:
            batches[-1].requests.append(request)
            room -= size
        else:
            batches.append(ReadBatch([request], count))
            room = budget - size
    return batches
