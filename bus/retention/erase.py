"""Erase: take everything of one session away, for good, and leave a tombstone that nobody can write over.

First the tombstone, in one step; from then on the session is gone for everybody. What is left of it is then taken away
bit by bit, what tells of the rest last, so that an erasure that was cut off is finished by the next one.

As a rule that takes two round trips. It cannot be one: a reader that is blocked on a stream is woken by an entry, and
not by the end of the stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from lanebus.bus.errors import EraseRefused, NoArchive, Refused
from lanebus.bus.groups.names import names_of
from lanebus.bus.log.batches import batched
from lanebus.bus.log.fork import unpin
from lanebus.bus.log.script import Script
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.reading.pages import stream_pages
from lanebus.bus.servers.replies import answered

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.media.store import MediaStore
    from lanebus.bus.servers.topology import Argument, Reply
    from lanebus.bus.wire.keys import Keys

__all__ = ("Erased", "SessionArchive", "erase")

_ERASE, _FORGET = Script("erase"), Script("forget")

_MEDIA = re.compile(rb'"sha256"\s*:\s*"([0-9a-f]{64})"')


class SessionArchive(Protocol):
    """What an erasure needs of the place where trimmed entries are."""

    def bodies(self, session: str) -> AsyncGenerator[bytes, None]:
        """The JSON of every archived message of a session."""
        ...

    async def require_here(self, session: str) -> None:
        """Raise ArchiveDamaged if some of a session is archived, and none of that is here."""
        ...

    async def erase(self, session: str) -> None:
        """Delete all that is archived of a session; nothing happens where nothing is."""
        ...


class Erased(NamedTuple):
    """What else an erasure took."""

    media: tuple[str, ...] = ()
    """the SHA-256 of media that no other session names, sorted"""


async def erase(
    log: Log,
    session: str,
    *,
    force: bool = False,
    media: MediaStore | None = None,
    archive: SessionArchive | None = None,
    rewrite: bool = False,
) -> Erased:
    """See `Session.erase`.

    Args:
        media: the store to delete media from; None deletes none.
        archive: where entries of sessions are archived; None where nowhere.
    """
    if archive is None:
        if media is not None:
            await _require_none_archived(log)
    elif not force:
        await archive.require_here(session)
    buried = await _bury(log, session, force=force, is_archive_here=archive is not None)
    # Before the lanes, which name the media: an erasure that is cut off in between finds them again.
    gone = () if media is None else await _erase_media(log, session, media, archive)
    if archive is not None:
        await archive.erase(session)
    await _take_away(log, session, buried)
    if buried.parent:
        await _leave_parent(log, session, buried.parent)
    if rewrite:
        await log.call_each("BGREWRITEAOF")
    return Erased(gone)


async def _require_none_archived(log: Log) -> None:
    """Look whether media can be erased without an archive.

    Raises:
        NoArchive: some of a session is archived, which may name the same media.
        Unavailable: the server cannot be reached.
    """
    for some in batched(await log.sessions(), log.bounds.heads):
        for head in await log.heads(some):
            if head.archived:
                raise NoArchive(head.session)


class _Buried(NamedTuple):
    """What the first step returns: all that the later steps need to know."""

    first: str
    """the first id at which streams that sessions share may name this one"""
    last_notice: str
    last_wake_up: str
    notice: str
    """the notice of the erasure; "" if there is none"""
    parent: str
    """of a fork; "" of any other session"""
    groups: tuple[str, ...]
    checkpoints: tuple[bytes, ...]


async def _bury(log: Log, session: str, *, force: bool, is_archive_here: bool) -> _Buried:
    keys, bucket = log.keys, log.keys.bucket(session)
    names = (
        keys.head(session),
        *(keys.lane(session, lane) for lane in (Lane.LLM, Lane.EXTENSION)),
        *(keys.checkpoints(session), keys.index(bucket), keys.sessions(bucket)),
        *(keys.order(bucket), keys.woken(bucket), keys.groups(bucket), keys.archive(session)),
    )
    words = (session, "1" if force else "", *log.work.notice_trim, "1" if is_archive_here else "")
    outcome, told, groups, checkpoints = cast("list[list[bytes]]", await log.run(_ERASE, names, words))
    match outcome:
        case [b"archived"]:
            raise NoArchive(session)
        case [b"held"]:
            raise EraseRefused(session, tuple(word.decode() for word in told))
        case _:
            first, last_notice, last_wake_up, notice, parent = (word.decode() for word in told)
            return _Buried(first, last_notice, last_wake_up, notice, parent, names_of(groups), tuple(checkpoints))


async def _take_away(log: Log, session: str, buried: _Buried) -> None:
    """Take away what names the session elsewhere, and all that is its own but the tombstone."""
    keys, bucket = log.keys, log.keys.bucket(session)
    everywhere = (keys.forged(bucket), *(keys.dead(bucket, group) for group in buried.groups))
    streams: _Streams = {
        keys.index(bucket): (buried.first, buried.last_notice),
        keys.wake_ups(bucket): (buried.first, buried.last_wake_up),
        **dict.fromkeys(everywhere, ("-", "+")),
    }
    first, *others = await log.call_many(
        (
            _forget_command(log, session, streams),
            *(("HDEL", keys.open(bucket, group), session) for group in buried.groups),
            *(("ZREM", keys.due(bucket, group), session) for group in buried.groups),
            *((("XDEL", keys.index(bucket), buried.notice),) if buried.notice else ()),
            ("UNLINK", *_own_keys(keys, session, buried.checkpoints)),
            ("UNLINK", keys.checkpoints(session)),  # it names the projections, so it goes behind them
        )
    )
    for reply in others:
        answered(reply)
    if not (isinstance(first, Refused) and first.code == "NOSCRIPT"):  # else the next step gives the server its text
        streams = _rest(streams, answered(first))
    while streams:
        streams = _rest(streams, await log.run(_FORGET, tuple(streams), _forget_words(log, session, streams)))


def _own_keys(keys: Keys, session: str, checkpoints: Sequence[bytes]) -> list[str]:
    """Every key of the session but its tombstone and its checkpoints."""
    stored = [field.decode(errors="replace")[2:].rpartition("@") for field in checkpoints if field.startswith(b"p:")]
    return [
        *(keys.lane(session, lane) for lane in Lane),
        *(keys.rebuilt(session, lane) for lane in Lane),
        *(keys.live(session), keys.caller_keys(session), keys.archive(session)),
        *(keys.projection(session, name, int(version)) for name, _, version in stored if version.isdecimal()),
    ]


_Streams = Mapping[str, tuple[str, str]]
"""The first and the last id to look at in each stream."""


def _forget_command(log: Log, session: str, streams: _Streams) -> Sequence[Argument]:
    """The command that takes what names the session out of streams that others share, a page of each."""
    return _FORGET.command(tuple(streams), _forget_words(log, session, streams))


def _forget_words(log: Log, session: str, streams: _Streams) -> Sequence[Argument]:
    return (session, log.bounds.forget_page, *(id for pair in streams.values() for id in pair))


def _rest(streams: _Streams, reply: Reply) -> _Streams:
    """What such a command has left to look at."""
    places = zip(streams.items(), cast("list[bytes]", reply), strict=True)
    return {name: (place.decode(), last) for (name, (_, last)), place in places if place}


async def _leave_parent(log: Log, session: str, parent: str) -> None:
    """Tell the session that a fork came from that it keeps nothing for it any more."""
    await unpin(log, parent, session)
    await log.call("HDEL", log.keys.head(session), "parent")


# --- media --------------------------------------------------------------------------------------------------------


async def _erase_media(log: Log, session: str, store: MediaStore, archive: SessionArchive | None) -> tuple[str, ...]:
    """Delete the media that this session names and no other one does; every log is read for that."""
    own: set[bytes] = set()
    async for body in _bodies(log, session, archive):
        own.update(_MEDIA.findall(body))
    for other in await log.sessions() if own else ():
        async for body in _bodies(log, other, archive):
            own = {sha256 for sha256 in own if sha256 not in body}
    gone = tuple(sorted(sha256.decode() for sha256 in own))
    for sha256 in gone:
        await store.delete(sha256)
    return gone


async def _bodies(log: Log, session: str, archive: SessionArchive | None) -> AsyncGenerator[bytes, None]:
    """Every value of every entry, as it stands there: what cannot be read may name media too."""
    if archive is not None:
        async for body in archive.bodies(session):
            yield body
    for lane in Lane:
        async with aclosing(stream_pages(log, log.keys.lane(session, lane))) as pages:
            async for page in pages:
                for _, fields in page:
                    for value in fields[1::2]:
                        yield value
