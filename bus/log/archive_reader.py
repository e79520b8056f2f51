"""The protocol for reading trimmed entries from an archive."""

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
    """cursor of the last entry of the page's range, in any lane"""
    entries: Sequence[tuple[Lane, Sequence[Entry]]]


class ArchiveReader(Protocol):
    """Reads entries that were trimmed from the log."""

    def pages(
        self, head: SessionHead, lanes: Sequence[Lane], after: int, until: int
    ) -> AsyncGenerator[ArchivePage, None]:
        """Read the archived entries of some lanes, in position order. If both lanes are read, no position is missing.

        Args:
            head: the session's head.
            lanes: the lanes to return.
            after: read entries after this position.
            until: read entries up to this position.

        Raises:
            CursorTrimmed: the next entry is not in the archive. All earlier entries were returned.
            ArchiveDamaged: the segment with the next entry has changed.
            LogRolledBack: the archive and the head belong to different incarnations of the log.
            Unavailable: the archive cannot be reached.
            SetupError: the archive's store refused access.
        """
        ...
