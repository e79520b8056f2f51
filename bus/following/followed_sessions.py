"""All sessions that a hub follows. A look-up takes the same time for any number of sessions."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from lanebus.bus.following.followed_session import FollowedSession

if TYPE_CHECKING:
    from collections.abc import Collection

    from lanebus.bus.following.subscription import HubBounds
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.wire.keys import Keys

__all__ = ("FollowedSessions",)


class FollowedSessions:
    """The followed sessions by id and by index. A session is marked if it has to be read.

    An index is a stream that names changed sessions. Each bucket has two indexes: for entries and for live deltas.
    """

    def __init__(self, keys: Keys, bounds: HubBounds) -> None:
        self._keys, self._bounds = keys, bounds
        self._sessions: dict[str, FollowedSession] = {}
        self._dirty: dict[FollowedSession, None] = {}
        self._indexes: dict[str, dict[FollowedSession, None]] = {}
        self._unseen: list[FollowedSession] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, followed: FollowedSession) -> bool:
        return self._sessions.get(followed.session) is followed

    @property
    def all(self) -> tuple[FollowedSession, ...]:
        """All followed sessions, in no order."""
        return tuple(self._sessions.values())

    @property
    def any(self) -> str:
        """The id of any followed session. At least one session must be followed. All followed sessions are on one
        server."""
        return next(iter(self._sessions))

    @property
    def indexes(self) -> Collection[str]:
        """The index streams of the followed sessions."""
        return self._indexes.keys()

    def get(self, session: str) -> FollowedSession | None:
        """Return the followed session with the id `session`; None if that session is not followed."""
        return self._sessions.get(session)

    def add(self, head: SessionHead) -> FollowedSession:
        """Follow a session from `head` on. Also mark the session to be read: entries may have been appended since."""
        followed = FollowedSession(head, self._keys, self._bounds, forget=self._forget, changed=self._changed)
        self._sessions[followed.session] = followed
        self._changed(followed)
        return followed

    def mark(self, followed: FollowedSession) -> None:
        """Mark a session to be read."""
        if followed in self:
            self._dirty[followed] = None

    def mark_indexed(self, index: str, session: str | None = None) -> None:
        """Mark a session that an entry of `index` names, if it is followed. None marks all followed sessions of the
        index."""
        named = self._indexes.get(index, {})
        if session is None:
            self._dirty |= named
        elif (followed := self._sessions.get(session)) in named:
            self._dirty[followed] = None

    def take_dirty(self, limit: int | None = None) -> list[FollowedSession]:
        """Remove the marks of at most `limit` sessions. Return these sessions in the order in which they were
        marked."""
        taken = list(islice(self._dirty, limit))
        for followed in taken:
            del self._dirty[followed]
        return taken

    def take_unseen(self, limit: int) -> list[FollowedSession]:
        """Return the next `limit` sessions in turn, so that repeated calls cover all of them."""
        if not self._unseen:
            self._unseen = list(self._sessions.values())
        taken, self._unseen = self._unseen[:limit], self._unseen[limit:]
        return [followed for followed in taken if followed in self]

    def _changed(self, followed: FollowedSession) -> None:
        if followed not in self:
            return
        self._dirty[followed] = None
        self._indexes.setdefault(self._keys.index(followed.bucket), {})[followed] = None
        live_index = self._keys.live_index(followed.bucket)
        if followed.live is not None:
            self._indexes.setdefault(live_index, {})[followed] = None
        else:
            self._remove(live_index, followed)

    def _forget(self, followed: FollowedSession) -> None:
        if followed not in self:
            return
        del self._sessions[followed.session]
        self._dirty.pop(followed, None)
        for index in (self._keys.index(followed.bucket), self._keys.live_index(followed.bucket)):
            self._remove(index, followed)

    def _remove(self, index: str, followed: FollowedSession) -> None:
        named = self._indexes.get(index)
        if named is not None:
            named.pop(followed, None)
            if not named:
                del self._indexes[index]
