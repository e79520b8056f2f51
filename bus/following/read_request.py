"""What a hub reads in one round trip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.following.followed_session import FollowedSession

__all__ = ("ReadBatch", "ReadRequest", "divided")

_LAST = 2**64 - 1


class ReadRequest:
    """What is read of one session. It keeps what was asked for, as others may join meanwhile."""

    def __init__(self, followed: FollowedSession) -> None:
        self.followed, self.lanes = followed, followed.lanes
        self.live, self.counted = followed.live, followed.counted
        # From the end of the position: otherwise what a foreign client wrote at it, as `<position>-7`, comes for ever.
        place = f"{followed.position}-{_LAST}"
        self.streams = [(followed.names[lane], place) for lane in followed.lanes]
        if followed.live is not None:
            self.streams.append((followed.live_name, followed.live_id))

    def unread_bytes(self, stored: Sequence[bytes | None]) -> int:
        """Return the most JSON that the answer can have, if nothing more is appended.

        Args:
            stored: the fields position, bytes, trimmed and live of the head as it is now.
        """
        position, held, trimmed = (int(number or 0) for number in stored[:3])
        before, live = self.followed.caught_up, 0
        if before.trimmed == trimmed:  # else it is unknown how many of the trimmed bytes had been read
            held -= before.size_bytes
        words = (stored[3] or b"").split(b" ")
        if self.live is not None and len(words) > 1 and words[1].isdigit():
            live = int(words[1])
        return max(0, min(held, (position - self.followed.position) * MESSAGE_LIMIT_BYTES)) + live


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Requests that go out in one round trip."""

    requests: list[ReadRequest]
    count: int
    """entries of each stream"""


def divided(sized: Iterable[tuple[ReadRequest, int]], budget: int, count: int) -> list[ReadBatch]:
    """Divide requests into batches whose replies stay below a budget.

    Args:
        sized: each request with the most bytes that its answer can have.
        budget: the most bytes of one reply. A larger request is read alone, fewer entries at a time.
        count: the most entries of each stream.
    """
    batches: list[ReadBatch] = []
    room = -1  # in the last batch
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
