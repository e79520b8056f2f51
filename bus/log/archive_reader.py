"""Where entries are read from that were trimmed away."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.wire.codec import Entry
    from lanebus.bus.wire.envelope import Cursor

__all__ = ("ArchivePage", "ArchiveReader")


class ArchivePage(NamedTuple):
    """Entries of several lanes up to a position."""

    end: Cursor
    """of the last entry of the stretch, whatever its lane"""
    entries: Sequence[tuple[Lane, Sequence[Entry]]]


class ArchiveReader(Protocol):
    """Where entries are that were trimmed away."""

    def pages(
        self, head: SessionHead, lanes: Sequence[Lane], after: int, until: int
    ) -> AsyncGenerator[ArchivePage, None]:
        """The entries of some lanes above `after` and up to `until`, in order and without a hole over both lanes.

        Raises:
            CursorTrimmed: what comes next is not there either. What comes before it was given.
            ArchiveDamaged: it is there, and is not what it was.
            LogRolledBack: what is there is of another log than this head.
            Unavailable, SetupError: the place cannot be reached.
        """
        ...
