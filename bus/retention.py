"""Trim the oldest entries of a session, or erase the whole session.

A long trim runs in small steps, so that it never blocks the server for long. Each step is atomic, so the head and the
streams always agree. If a trim is interrupted, the entries of its completed steps are trimmed and the others are kept.

The first step writes the tombstone; from then on all clients find the session erased. Later steps remove the session's
keys. Keys that list other keys are removed last, so the next call can finish an interrupted erasure.

An erasure usually takes two round trips. One is not enough: a new entry wakes a reader that blocks on a stream, but the
deletion of the stream does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from secrets import token_urlsafe
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import anyio

from lanebus.bus.errors import (
    CursorTrimmed,
    EntriesMissing,
    EraseRefused,
    ForgedEntry,
    LogRolledBack,
    NoArchive,
    Refused,
    RewriteUnfinished,
    SessionErased,
    TrimRefused,
    WrongAgent,
)
from lanebus.bus.groups.status import parts_of
from lanebus.bus.log.lineage import unpin
from lanebus.bus.log.log import Script, batched
from lanebus.bus.log.reading import read_pages, stream_pages
from lanebus.bus.messages.base import Lane
from lanebus.bus.messages.extension import AgentStarted
from lanebus.bus.servers.calls import answered
from lanebus.bus.servers.health import server_infos
from lanebus.bus.text import number_in
from lanebus.bus.wire.codec import VERSION, Cursor, Selection, seed_of
from lanebus.bus.wire.keys import DEFAULT_AGENT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.media.store import MediaStore
    from lanebus.bus.servers.calls import Argument, Reply
    from lanebus.bus.wire.codec import Envelope
    from lanebus.bus.wire.keys import Keys


TRIMMED = "session.trimmed"
"""the kind of the extension message that a forced trim appends"""

_TRIM = Script("trim", shares=("damage", "proofs"))

_FARTHEST = 10**15
"""Lua numbers are exact up to this number. No session has so many entries."""


class Trimmed(NamedTuple):
    """The result of `Session.trim`: what was trimmed, or what would be trimmed if `dry_run` was given."""

    entries: int
    """number of trimmed entries of both lanes"""
    size_bytes: int
    """bytes of JSON of the trimmed messages"""
    first_kept: int
    """the first position that is kept. It is below `before` if a new holder, such as a fork, ended the trim early"""
    holders: Mapping[str, int]
    """the readers, forks and other holders that need some of the trimmed entries; `force` trims these entries
    nevertheless. Name, see `TrimRefused` → the position up to which the holder needs no entries"""


class _Answer(NamedTuple):
    outcome: str
    keep: int
    trimmed: int
    entries: int
    bytes: int
    holders: dict[str, int]
    agent: str


async def trim(
    log: Log,
    session: str,
    before: int,
    *,
    force: bool = False,
    dry_run: bool = False,
    holders: Mapping[str, int] | None = None,
    agent: str | None = None,
    known: Collection[str] | None = None,
) -> Trimmed:
    """See `Session.trim`.

    Args:
        log: the log.
        session: id of the session.
        before: first position to keep.
        force: trim even if holders need the entries.
        dry_run: change nothing.
        holders: more holders, besides those that the server knows: name → last position that the holder does not need.
        agent: the agent that the session must belong to; None means any.
        known: names of the forks that `force` may take entries from; None means any.
    """
    more, allowed = json.dumps(dict(holders or {})), "" if known is None else json.dumps(dict.fromkeys(known, True))
    mode = "look" if dry_run else "force" if force else "trim"
    keep, done, entries, size, attempts = min(max(before, 1), _FARTHEST), 0, 0, 0, 0
    found: dict[str, int] = {}
    believed = agent or DEFAULT_AGENT  # a guess, mostly right
    while True:
        answer = await _step(
            log,
            session,
            mode=mode,
            keep=keep,
            start=done + 1,
            announced=found,
            agent=believed,
            more=more,
            known=allowed,
        )
        if answer.outcome == "agent":
            if agent is not None:
                raise WrongAgent(session, agent, answer.agent)
            believed = answer.agent  # its order is among the keys of the next attempt
            continue
        if answer.outcome == "erased":
            raise SessionErased(session)
        if answer.outcome == "forged":
            ids = await log.quarantine(session, Lane.EXTENSION)
            attempts += 1
            if attempts > log.bounds.quarantine_attempts:
                raise ForgedEntry(f"{session}:{Lane.EXTENSION}", f"{ids}", "in the way of the note of a trim")
            continue
        found |= answer.holders
        if answer.outcome == "held" and not entries:
            raise TrimRefused(session, answer.keep, answer.holders)
        keep, done, entries, size = answer.keep, answer.trimmed, entries + answer.entries, size + answer.bytes
        if answer.outcome == "held" or answer.trimmed >= keep - 1:
            return Trimmed(entries, size, answer.trimmed + 1, found)


async def _step(
    log: Log,
    session: str,
    *,
    mode: str,
    keep: int,
    start: int,
    announced: Mapping[str, int],
    agent: str,
    more: str,
    known: str,
) -> _Answer:
    """Run one step of a trim.

    Args:
        log: the log.
        session: id of the session.
        mode: "trim", "force", or "look". "look" changes nothing.
        keep: first position to keep.
        start: position to start at, used only by "look".
        announced: holders that an earlier `session.trimmed` message of this trim has named.
        agent: the agent that the session is believed to belong to.
        more: holders that the server does not know, as JSON.
        known: forks that "force" may take entries from, as the keys of a JSON object; "" means any.
    """
    keys = log.keys
    bucket = keys.bucket(session)
    names = (
        keys.head(session),
        keys.lane(session, Lane.LLM),
        keys.lane(session, Lane.EXTENSION),
        *(keys.checkpoints(session), keys.index(bucket), keys.sessions(bucket)),
        *(keys.order(bucket, agent), keys.woken(bucket), keys.groups(bucket)),
    )
    bounds = log.bounds
    words: Sequence[Argument] = (session, keep, mode, start, token_urlsafe(6), VERSION, token_urlsafe(6))
    words = (*words, *log.work.notice_trim, bounds.incarnations)
    words = (*words, bounds.trim_entries, bounds.trim_bytes, bounds.trim_chunk)
    words = (*words, seed_of(VERSION, "log", Lane.EXTENSION), agent, more, known)
    reply = await log.run(_TRIM, names, (*words, *announced))
    return _Answer(**json.loads(cast("bytes", reply)))


_CONTEXT = Selection.of({Lane.LLM})
_LOOPS = Selection.of({Lane.EXTENSION}, {AgentStarted.KIND})


async def context_holder(log: Log, session: str, before: int) -> Mapping[str, int]:
    """Return the entries that the workers of a session's agent still need, as `{"a:<agent>": position}`.

    The workers need the entries after this position. The mapping is empty if they need no entries.

    A worker without the session in memory reads the LLM lane from its first entry. The workers need no entry if no
    worker has run a loop in the session, or if the context is already incomplete.

    Args:
        log: the log.
        session: id of the session.
        before: first position to keep.

    Raises:
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached.
    """
    while True:
        head = await log.head(session)
        own = head.own_start.position
        # A worker takes the lease before it runs a loop. Sessions without one are not searched.
        if not head.epoch or head.trimmed_llm > max(head.archived, own):
            return {}
        start = max(head.trimmed, own)
        try:
            first = await _first(log, session, _CONTEXT, start, before - 1)
            if first is None:
                return {}
            # The start of a loop may be in the archive alone. The archive is not searched: a loop is assumed.
            is_assumed = head.trimmed > own and head.archived > own
            if not is_assumed and await _first(log, session, _LOOPS, start, None) is None:
                return {}
        except EntriesMissing:  # the context is incomplete, and stays so
            return {}
        except (CursorTrimmed, LogRolledBack):  # another client trimmed meanwhile
            continue
        return {f"a:{head.agent}": first.position - 1}


async def _first(log: Log, session: str, selection: Selection, start: int, until: int | None) -> Envelope | None:
    """Return the first selected entry after one position and up to another position; None if no entry is selected."""
    async with aclosing(read_pages(log, session, selection, Cursor(start), until)) as pages:
        async for page in pages:
            if page.envelopes:
                return page.envelopes[0]
    return None


# Erase a session: remove everything of it for good, and leave a tombstone that refuses every writer.


_ERASE, _FORGET = Script("erase", shares=("damage", "agents")), Script("forget")
_REBUILD = Script("rebuild")

_MEDIA = re.compile(rb'"sha256"\s*:\s*"([0-9a-f]{64})"')


class SessionArchive(Protocol):
    """The methods of an archive that an erasure uses."""

    def bodies(self, session: str) -> AsyncGenerator[bytes, None]:
        """Yield the value of every field of every archived entry of a session."""
        ...

    async def require_here(self, session: str) -> None:
        """Raise ArchiveDamaged if entries of a session are archived, but this archive holds none of them."""
        ...

    async def erase(self, session: str) -> None:
        """Delete all archived entries of a session. Do nothing if the session has none."""
        ...


class Erased(NamedTuple):
    """The result of `Session.erase`."""

    media: tuple[str, ...] = ()
    """SHA-256 of the media that were deleted, sorted"""


async def erase(
    log: Log,
    session: str,
    *,
    force: bool = False,
    media: MediaStore | None = None,
    archive: SessionArchive | None = None,
    rewrite: bool = False,
) -> Erased:
    """Erase a session. See `Session.erase` for `force`, `rewrite` and the errors.

    Args:
        log: the log.
        session: id of the session.
        force: erase even if forks share the session's entries, or if `archive` has none of the session's archived
            entries.
        media: the store to delete media from. None deletes no media.
        archive: the archive of the bus. None means that the bus has no archive.
        rewrite: have the servers rewrite their append-only files, and wait until they have.
    """
    if archive is None:
        if media is not None:
            await _require_none_archived(log)
    elif not force:
        await archive.require_here(session)
    tombstone = await _write_tombstone(log, session, force=force, has_archive=archive is not None)
    # The media are deleted before the lanes that refer to them, so that a repeat of an interrupted erasure still finds
    # the references.
    deleted = () if media is None else await _erase_media(log, session, media, archive)
    if archive is not None:
        await archive.erase(session)
    await _remove_keys(log, session, tombstone)
    if tombstone.parent:
        await _leave_parent(log, session, tombstone.parent)
    if rewrite:
        live = log.keys.live_index(log.keys.bucket(session))
        for name in _shared_streams(log.keys, session, tombstone):  # one at a time, so that each call is short
            expiry = int(log.bounds.live_seconds * 1000) if name == live else ""
            await log.run(_REBUILD, (name, log.keys.rebuilt(name)), (expiry,))
        await rewrite_files(log)
    return Erased(deleted)


async def _require_none_archived(log: Log) -> None:
    """Check that no session has archived entries.

    Without the archive it is unknown whether archived entries refer to media that the erasure would delete.

    Raises:
        NoArchive: entries of any session are archived.
        Unavailable: the server cannot be reached.
    """
    for some in batched(await log.sessions(), log.bounds.heads):
        for head in await log.heads(some):
            if head.archived:
                raise NoArchive(head.session)


class _Tombstone(NamedTuple):
    """The result of the first step of an erasure, which the later steps need."""

    first: str
    """id of the first entry in shared streams that may name the session"""
    last_notice: str
    """id of the last change notice that may name the session"""
    last_wake_up: str
    """id of the last wake-up that may name the session"""
    notice: str
    """id of the change notice that announced the erasure; "" if none was written"""
    parent: str
    """the session's parent; "" if the session is not a fork"""
    groups: tuple[tuple[str, str], ...]
    """each agent that a consumer group has fetched for in this bucket, and the group"""
    checkpoints: tuple[bytes, ...]


async def _write_tombstone(log: Log, session: str, *, force: bool, has_archive: bool) -> _Tombstone:
    keys, bucket = log.keys, log.keys.bucket(session)
    words = (session, "1" if force else "", *log.work.notice_trim, "1" if has_archive else "")
    agent = DEFAULT_AGENT  # a guess, mostly right
    while True:
        names = (
            keys.head(session),
            *(keys.lane(session, lane) for lane in (Lane.LLM, Lane.EXTENSION)),
            *(keys.checkpoints(session), keys.index(bucket), keys.sessions(bucket)),
            *(keys.order(bucket, agent), keys.woken(bucket), keys.groups(bucket), keys.archive(session)),
        )
        reply = cast("list[list[bytes]]", await log.run(_ERASE, names, (*words, agent)))
        outcome, details, groups, checkpoints = reply
        if outcome != [b"agent"]:
            break
        agent = details[0].decode()  # its order is among the keys of the next attempt
    match outcome:
        case [b"archived"]:
            raise NoArchive(session)
        case [b"held"]:
            raise EraseRefused(session, tuple(word.decode(errors="replace") for word in details))
        case _:
            first, last_notice, last_wake_up, notice, parent = (word.decode() for word in details)
            return _Tombstone(first, last_notice, last_wake_up, notice, parent, parts_of(groups), tuple(checkpoints))


async def _remove_keys(log: Log, session: str, tombstone: _Tombstone) -> None:
    """Remove the references to the session in shared keys, and all keys of the session except the tombstone."""
    keys, bucket = log.keys, log.keys.bucket(session)
    streams: _Streams = {
        **dict.fromkeys(_shared_streams(keys, session, tombstone), ("-", "+")),
        keys.index(bucket): (tombstone.first, tombstone.last_notice),
        keys.wake_ups(bucket): (tombstone.first, tombstone.last_wake_up),
    }
    first, *others = await log.call_many(
        (
            _forget_command(log, session, streams),
            *(("HDEL", keys.open(bucket, agent, group), session) for agent, group in tombstone.groups),
            *(("ZREM", keys.due(bucket, agent, group), session) for agent, group in tombstone.groups),
            *((("XDEL", keys.index(bucket), tombstone.notice),) if tombstone.notice else ()),
            ("UNLINK", *_own_keys(keys, session, tombstone.checkpoints)),
            ("UNLINK", keys.checkpoints(session)),  # after the projections, because this key lists them
        )
    )
    for reply in others:
        answered(reply)
    if not (isinstance(first, Refused) and first.code == "NOSCRIPT"):  # on NOSCRIPT, `log.run` below sends the script
        streams = _rest(streams, answered(first))
    while streams:
        streams = _rest(streams, await log.run(_FORGET, tuple(streams), _forget_words(log, session, streams)))


def _shared_streams(keys: Keys, session: str, tombstone: _Tombstone) -> list[str]:
    """Return the streams of the session's bucket that may name the session."""
    bucket = keys.bucket(session)
    shared = (keys.index(bucket), keys.wake_ups(bucket), keys.forged(bucket), keys.live_index(bucket))
    return list(dict.fromkeys((*shared, *(keys.dead(bucket, group) for _, group in tombstone.groups))))


def _own_keys(keys: Keys, session: str, checkpoints: Sequence[bytes]) -> list[str]:
    """Return every key of the session except its head hash and its checkpoints hash."""
    stored = [field.decode(errors="replace")[2:].rpartition("@") for field in checkpoints if field.startswith(b"p:")]
    return [
        *(keys.lane(session, lane) for lane in Lane),
        *(keys.rebuilt(keys.lane(session, lane)) for lane in Lane),
        *(keys.live(session), keys.caller_keys(session), keys.archive(session)),
        *(
            keys.projection(session, name, version)
            for name, _, digits in stored
            if (version := number_in(digits)) is not None
        ),
    ]


_Streams = Mapping[str, tuple[str, str]]
"""The first and the last id to search in each stream."""


def _forget_command(log: Log, session: str, streams: _Streams) -> Sequence[Argument]:
    """Return the command that deletes the references to a session from one page of each shared stream."""
    return _FORGET.command(tuple(streams), _forget_words(log, session, streams))


def _forget_words(log: Log, session: str, streams: _Streams) -> Sequence[Argument]:
    return (session, log.bounds.forget_page, *(id for pair in streams.values() for id in pair))


def _rest(streams: _Streams, reply: Reply) -> _Streams:
    """Return the streams and ids that are left to search.

    Args:
        streams: what the last command searched.
        reply: reply to the command.
    """
    replies = zip(streams.items(), cast("list[bytes]", reply), strict=True)
    return {name: (next_id.decode(), last) for (name, (_, last)), next_id in replies if next_id}


async def _leave_parent(log: Log, session: str, parent: str) -> None:
    """Remove a fork's checkpoint from the parent, so that the parent no longer keeps entries for the fork."""
    await unpin(log, parent, session)
    await log.call("HDEL", log.keys.head(session), "parent")


async def _erase_media(log: Log, session: str, store: MediaStore, archive: SessionArchive | None) -> tuple[str, ...]:
    """Delete the media that only this session refers to, and return their SHA-256. Reads every log."""
    own: set[bytes] = set()
    async for body in _bodies(log, session, archive):
        own.update(_MEDIA.findall(body))
    for other in await log.sessions() if own else ():
        async for body in _bodies(log, other, archive):
            own = {sha256 for sha256 in own if sha256 not in body}
    unshared = tuple(sorted(sha256.decode() for sha256 in own))
    for sha256 in unshared:
        await store.delete(sha256)
    return unshared


async def _bodies(log: Log, session: str, archive: SessionArchive | None) -> AsyncGenerator[bytes, None]:
    """Yield every value of every entry without decoding it: entries that cannot be decoded may also refer to media."""
    if archive is not None:
        async for body in archive.bodies(session):
            yield body
    for lane in Lane:
        async with aclosing(stream_pages(log, log.keys.lane(session, lane))) as pages:
            async for page in pages:
                for _, fields in page:
                    for value in fields[1::2]:
                        yield value


# A rewrite that is under way when a session is erased may have copied the session already, so only a rewrite that
# starts later counts. Each server counts the rewrites that it started. Callers that erase at the same time share one
# rewrite.


async def rewrite_files(log: Log) -> None:
    """Have every primary rewrite its append-only file. Return after rewrites that started after this call have ended.

    A primary without an append-only file is left alone.

    Raises:
        RewriteUnfinished: a rewrite failed, or the rewrites took longer than `LogBounds.rewrite_seconds`.
        Refused: the user may not run BGREWRITEAOF or INFO.
        Unavailable: a server cannot be reached.
    """
    bounds = log.bounds
    with anyio.move_on_after(bounds.rewrite_seconds):
        await _rewrite(log)
        return
    raise RewriteUnfinished(f"it took longer than {bounds.rewrite_seconds:g} s")


async def _rewrite(log: Log) -> None:
    earlier: dict[str, int] = {}  # by process of a server: the rewrites that it had started when it was first seen
    was_asked = False
    while True:
        infos = [info for info in (await server_infos(log.pool)).values() if info.get("aof_enabled") == "1"]
        # A server that restarted, or took over, has a file of its own that no rewrite of its predecessor changed.
        due = [info for info in infos if _started(info) <= earlier.setdefault(info["run_id"], _started(info))]
        if not any(map(_is_rewriting, infos)):
            if was_asked and any(info.get("aof_last_bgrewrite_status") != "ok" for info in infos):
                raise RewriteUnfinished("it failed, see the server's log")
            if not due:
                return
            was_asked = True
            if await _ask(log):
                continue  # the next INFO shows it
        await anyio.sleep(log.bounds.rewrite_pause_seconds)


async def _ask(log: Log) -> bool:
    """Ask the servers to start a rewrite. Return whether none refused.

    A server refuses with ERR if another caller was faster or if the rewrite could not start. INFO tells which.
    """
    try:
        await log.call_each("BGREWRITEAOF")
    except Refused as refusal:
        if refusal.code != "ERR":
            raise
        return False
    return True


def _started(info: Mapping[str, str]) -> int:
    return int(info.get("aof_rewrites", "0"))


def _is_rewriting(info: Mapping[str, str]) -> bool:
    return info.get("aof_rewrite_in_progress") == "1" or info.get("aof_rewrite_scheduled") == "1"
