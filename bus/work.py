"""What a consumer is given: a session that has something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bus.errors import InvalidSessionId
from bus.keys import check_session_id

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Hand", "Work", "read_pointer")


class Work(NamedTuple):
    """A session has something to do, up to `position` at least."""

    session: str
    position: int
    bucket: int
    pointer: str
    """the pointer's id in its index stream"""
    attempt: int = 1
    """how often it was given, this time counted: more than once if a consumer died with it or put it off"""
    error: str = ""
    """why it was put off the last time; "" if it was not"""
    is_retry: bool = False
    """it was put off, or sent on its way again, and is no longer pending in the index"""


class Hand:
    """What a consumer was given and is not done with, so that nothing is given twice at a time."""

    def __init__(self) -> None:
        self._works: dict[int, dict[str, Work]] = {}

    def __len__(self) -> int:
        return sum(len(works) for works in self._works.values())

    def add(self, works: Sequence[Work]) -> list[Work]:
        """Take works into hand; gives those that were not yet."""
        added: list[Work] = []
        for work in works:
            held = self._works.setdefault(work.bucket, {})
            if work.pointer not in held:
                held[work.pointer] = work
                added.append(work)
        return added

    def drop(self, works: Sequence[Work]) -> None:
        """Let go of works; those that are not in hand are left out."""
        for work in works:
            if (held := self._works.get(work.bucket)) is not None:
                held.pop(work.pointer, None)

    def pointers(self, bucket: int) -> tuple[str, ...]:
        """Those of one bucket."""
        return tuple(self._works.get(bucket, ()))

    def works(self) -> list[Work]:
        """All of them."""
        return [work for held in self._works.values() for work in held.values()]

    def sessions(self) -> int:
        """How many sessions they are of."""
        return sum(len({work.session for work in held.values()}) for held in self._works.values())


def read_pointer(fields: Sequence[bytes] | None, bucket: int, pointer: str) -> Work | None:
    """The work that a pointer tells of; None if it rings no worker, was trimmed, or is none of the bus's. Pure."""
    values = dict(zip(fields[::2], fields[1::2], strict=False)) if fields else {}
    if not values.get(b"w"):
        return None
    try:
        return Work(check_session_id(values[b"s"].decode()), int(values[b"z"]), bucket, pointer)
    except (KeyError, ValueError, InvalidSessionId):
        return None
