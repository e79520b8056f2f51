"""All sessions that a hub follows, found by what is heard of them: no look-up takes longer the more they are."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from bus.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Collection

    from bus.head import SessionHead
    from bus.keys import Keys
    from bus.subscription import HubBounds

__all__ = ("Feeds",)


class Feeds:
    """The followed sessions, by their names and by their bells, and which of them are to be read.

    A bell is a stream that tells which sessions changed: a bucket's index, or the one that its live deltas ring.
    """

    def __init__(self, keys: Keys, bounds: HubBounds) -> None:
        self._keys, self._bounds = keys, bounds
        self._feeds: dict[str, Feed] = {}
        self._dirty: dict[Feed, None] = {}
        self._bells: dict[str, dict[Feed, None]] = {}
        self._unseen: list[Feed] = []

    def __len__(self) -> int:
        return len(self._feeds)

    def __contains__(self, feed: Feed) -> bool:
        return self._feeds.get(feed.session) is feed

    @property
    def all(self) -> tuple[Feed, ...]:
        """Each of them, in no order."""
        return tuple(self._feeds.values())

    @property
    def any(self) -> str:
        """The session of one of them, there being one: what is asked for it reaches the server of them all."""
        return next(iter(self._feeds))

    @property
    def bells(self) -> Collection[str]:
        """The streams that tell of any of them."""
        return self._bells.keys()

    def get(self, session: str) -> Feed | None:
        """The feed of a session, if it is followed."""
        return self._feeds.get(session)

    def add(self, head: SessionHead) -> Feed:
        """Follow a session from its head on. It is to be read: it may have changed since that was asked for."""
        feed = Feed(head, self._keys, self._bounds, forget=self._forget, changed=self._changed)
        self._feeds[feed.session] = feed
        self._changed(feed)
        return feed

    def mark(self, feed: Feed) -> None:
        """It is to be read."""
        if feed in self:
            self._dirty[feed] = None

    def ring(self, bell: str, session: str | None = None) -> None:
        """A bell told of a session; None is all that it could tell of."""
        listening = self._bells.get(bell, {})
        if session is None:
            self._dirty |= listening
        elif (feed := self._feeds.get(session)) in listening:
            self._dirty[feed] = None

    def take_dirty(self, limit: int | None = None) -> list[Feed]:
        """Those that are to be read, the first marked first; they are not from now on."""
        taken = list(islice(self._dirty, limit))
        for feed in taken:
            del self._dirty[feed]
        return taken

    def take_unseen(self, limit: int) -> list[Feed]:
        """The next ones in the round over all of them."""
        if not self._unseen:
            self._unseen = list(self._feeds.values())
        taken, self._unseen = self._unseen[:limit], self._unseen[limit:]
        return [feed for feed in taken if feed in self]

    def _changed(self, feed: Feed) -> None:
        if feed not in self:
            return
        self._dirty[feed] = None
        self._bells.setdefault(self._keys.index(feed.bucket), {})[feed] = None
        bell = self._keys.live_bell(feed.bucket)
        if feed.live is not None:
            self._bells.setdefault(bell, {})[feed] = None
        else:
            self._unlisten(bell, feed)

    def _forget(self, feed: Feed) -> None:
        if feed not in self:
            return
        del self._feeds[feed.session]
        self._dirty.pop(feed, None)
        for bell in (self._keys.index(feed.bucket), self._keys.live_bell(feed.bucket)):
            self._unlisten(bell, feed)

    def _unlisten(self, bell: str, feed: Feed) -> None:
        listening = self._bells.get(bell)
        if listening is not None:
            listening.pop(feed, None)
            if not listening:
                del self._bells[bell]
