"""Erase: take everything of one session away, for good, and leave a tombstone that nobody can write over.

First the tombstone, in one step; from then on the session is gone for everybody. What is left of it is then taken away
bit by bit, what tells of the rest last, so that an erasure that was cut off is finished by the next one.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from bus.errors import EraseRefused, NoArchive
from bus.group_names import group_names
from bus.log import Script, batched
from bus.messages.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

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
    await _bury(log, session, force=force)
    # Before the lanes, which name the media: an erasure that is cut off in between finds them again.
    gone = () if media is None else await _erase_media(log, session, media, archive)
    if archive is not None:
        await archive.erase(session)
    keys, bucket = log.keys, log.keys.bucket(session)
    groups = await group_names(log, bucket)
    streams = (keys.index(bucket), keys.wake_ups(bucket), keys.forged(bucket))
    for stream in (*streams, *(keys.dead(bucket, group) for group in groups)):
        await _forget(log, session, stream)
    for group in groups:
        await log.call("HDEL", keys.open(bucket, group), session)
        await log.call("ZREM", keys.due(bucket, group), session)
    await log.call("UNLINK", *await _own_keys(log, session))
    await log.call("UNLINK", keys.checkpoints(session))  # it names the projections, so it goes behind them
    await _leave_parent(log, session)
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


async def _bury(log: Log, session: str, *, force: bool) -> None:
    keys, bucket = log.keys, log.keys.bucket(session)
    names = (
        keys.head(session),
        *(keys.lane(session, lane) for lane in (Lane.LLM, Lane.EXTENSION)),
        *(keys.checkpoints(session), keys.index(bucket), keys.sessions(bucket)),
        *(keys.order(bucket), keys.woken(bucket)),
    )
    reply = await log.run(_ERASE, names, (session, "1" if force else "", *log.work.notice_trim))
    outcome, *forks = (word.decode() for word in cast("list[bytes]", reply))
    if outcome == "held":
        raise EraseRefused(session, tuple(forks))


async def _own_keys(log: Log, session: str) -> list[str]:
    """Every key of the session but its tombstone and its checkpoints."""
    keys = log.keys
    fields = cast("list[bytes]", await log.call("HKEYS", keys.checkpoints(session)))
    stored = [field.decode(errors="replace")[2:].rpartition("@") for field in fields if field.startswith(b"p:")]
    return [
        *(keys.lane(session, lane) for lane in Lane),
        *(keys.rebuilt(session, lane) for lane in Lane),
        *(keys.live(session), keys.caller_keys(session), keys.archive(session)),
        *(keys.projection(session, name, int(version)) for name, _, version in stored if version.isdecimal()),
    ]


async def _forget(log: Log, session: str, stream: str) -> None:
    """Take what names the session out of a stream that others share."""
    place = "-"
    while place:
        place = cast("bytes", await log.run(_FORGET, (stream,), (session, place, log.bounds.forget_page))).decode()


async def _leave_parent(log: Log, session: str) -> None:
    """Tell the session that a fork came from that it keeps nothing for it any more."""
    head = log.keys.head(session)
    parent = cast("bytes | None", await log.call("HGET", head, "parent"))
    if parent is not None:
        await log.call("HDEL", log.keys.checkpoints(parent.decode()), f"f:{session}")
        await log.call("HDEL", head, "parent")


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
