"""Erase: take everything of one session away, for good, and leave a tombstone that nobody can write over.

First the tombstone, in one step; from then on the session is gone for everybody. What is left of it is then taken away
bit by bit, what tells of the rest last, so that an erasure that was cut off is finished by the next one.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from bus.errors import EraseRefused, NoArchive
from bus.group_names import names_of
from bus.head import answered
from bus.log import Script, batched
from bus.messages.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from bus.connection import Argument, Reply
    from bus.keys import Keys
    from bus.log import Log
    from bus.media.store import MediaStore

__all__ = ("Erased", "SessionArchive", "erase", "require_unarchived")

_ERASE, _FORGET = Script("erase"), Script("forget")

_MEDIA = re.compile(rb'"sha256"\s*:\s*"([0-9a-f]{64})"')


class SessionArchive(Protocol):
    """What an erasure needs of the place where trimmed entries are."""

    def bodies(self, session: str) -> AsyncGenerator[bytes, None]:
        """The JSON of every archived message of a session."""
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
    places = await _bury(log, session, force=force)
    # Before the lanes, which name the media: an erasure that is cut off in between finds them again.
    gone = () if media is None else await _erase_media(log, session, media, archive)
    if archive is not None:
        await archive.erase(session)
    keys, bucket = log.keys, log.keys.bucket(session)
    groups, checkpoints, parent = await _call_all(
        log,
        ("HKEYS", keys.groups(bucket)),
        ("HKEYS", keys.checkpoints(session)),
        ("HGET", keys.head(session), "parent"),
    )
    names = names_of(groups)
    everywhere = (keys.forged(bucket), *(keys.dead(bucket, group) for group in names))
    await _forget(
        log,
        session,
        {
            keys.index(bucket): (places.first, places.last_notice),
            keys.wake_ups(bucket): (places.first, places.last_wake_up),
            **dict.fromkeys(everywhere, ("-", "+")),
        },
    )
    await _call_all(
        log,
        *(("HDEL", keys.open(bucket, group), session) for group in names),
        *(("ZREM", keys.due(bucket, group), session) for group in names),
        *((("XDEL", keys.index(bucket), places.notice),) if places.notice else ()),
        ("UNLINK", *_own_keys(keys, session, cast("list[bytes]", checkpoints))),
        ("UNLINK", keys.checkpoints(session)),  # it names the projections, so it goes behind them
    )
    if parent is not None:
        await _leave_parent(log, session, cast("bytes", parent).decode())
    if rewrite:
        await log.call_each("BGREWRITEAOF")
    return Erased(gone)


async def require_unarchived(log: Log, session: str, *, media: bool) -> None:
    """Look whether a session can be erased by who has no archive.

    Raises:
        NoArchive: some of it is archived, also where an erasure was cut off before that went; or, with `media`, some of
            another session, which may name the same media.
        Unavailable: the server cannot be reached.
    """
    names = [session, *(await log.sessions() if media else ())]
    for some in batched(names, log.bounds.heads):
        for head in await log.heads(some):
            if head.archived:
                raise NoArchive(head.session)
    if await log.archived_segments(session, count=1):
        raise NoArchive(session)


class _Places(NamedTuple):
    """Where streams that sessions share may name this one."""

    first: str
    last_notice: str
    last_wake_up: str
    notice: str
    """the notice of the erasure; "" if there is none"""


async def _bury(log: Log, session: str, *, force: bool) -> _Places:
    keys, bucket = log.keys, log.keys.bucket(session)
    names = (
        keys.head(session),
        *(keys.lane(session, lane) for lane in (Lane.LLM, Lane.EXTENSION)),
        *(keys.checkpoints(session), keys.index(bucket), keys.sessions(bucket)),
        *(keys.order(bucket), keys.woken(bucket)),
    )
    reply = await log.run(_ERASE, names, (session, "1" if force else "", *log.work.notice_trim))
    outcome, *words = (word.decode() for word in cast("list[bytes]", reply))
    if outcome == "held":
        raise EraseRefused(session, tuple(words))
    return _Places(*words)


async def _call_all(log: Log, *commands: Sequence[Argument]) -> list[Reply]:
    """Several commands in one round trip. Raises Refused, Unavailable."""
    return [answered(reply) for reply in await log.call_many(commands)]


def _own_keys(keys: Keys, session: str, checkpoints: Sequence[bytes]) -> list[str]:
    """Every key of the session but its tombstone and its checkpoints."""
    stored = [field.decode(errors="replace")[2:].rpartition("@") for field in checkpoints if field.startswith(b"p:")]
    return [
        *(keys.lane(session, lane) for lane in Lane),
        *(keys.rebuilt(session, lane) for lane in Lane),
        *(keys.live(session), keys.caller_keys(session), keys.archive(session)),
        *(keys.projection(session, name, int(version)) for name, _, version in stored if version.isdecimal()),
    ]


async def _forget(log: Log, session: str, streams: dict[str, tuple[str, str]]) -> None:
    """Take what names the session out of streams that others share.

    Args:
        streams: the first and the last id to look at in each.
    """
    while streams:
        ids = [id for pair in streams.values() for id in pair]
        reply = await log.run(_FORGET, tuple(streams), (session, log.bounds.forget_page, *ids))
        places = zip(streams.items(), cast("list[bytes]", reply), strict=True)
        streams = {name: (place.decode(), last) for (name, (_, last)), place in places if place}


async def _leave_parent(log: Log, session: str, parent: str) -> None:
    """Tell the session that a fork came from that it keeps nothing for it any more."""
    await log.call("HDEL", log.keys.checkpoints(parent), f"f:{session}")
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
        async with aclosing(log.entries(log.keys.lane(session, lane))) as pages:
            async for page in pages:
                for _, fields in page:
                    for value in fields[1::2]:
                        yield value
