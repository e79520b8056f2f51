"""Where entries are read from that were trimmed away."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from bus.codec import Entry
    from bus.envelope import Cursor
    from bus.head import SessionHead
    from bus.messages.lanes import Lane

__all__ = ("Past", "PastPage")


class PastPage(NamedTuple):
    """Entries of several lanes up to a position."""

    end: Cursor
    """of the last entry of the stretch, whatever its lane"""
    entries: Sequence[tuple[Lane, Sequence[Entry]]]


class Past(Protocol):
    """Where entries are that were trimmed away."""

    def pages(self, head: SessionHead, lanes: Sequence[Lane], after: int, until: int) -> AsyncGenerator[PastPage, None]:
        """The entries of some lanes above `after` and up to `until`, in order and without a hole over both lanes.

        Raises:
            CursorTrimmed: what comes next is not there either. What comes before it was given.
            ArchiveDamaged: it is there, and is not what it was.
            LogRolledBack: what is there is of another log than this head.
            Unavailable, SetupError: the place cannot be reached.
        """
        ...
