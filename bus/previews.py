"""Show messages that a model is still streaming, as live deltas.

Live deltas are not part of the durable lanes. A preview ends with the whole message or with a cut. `Previews` reads
open messages, and `PreviewWriter` publishes deltas.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, cast
from weakref import WeakValueDictionary

import anyio

from lanebus.bus.errors import (
    AnswerLost,
    DecodeError,
    Fenced,
    LogRolledBack,
    MessageTooLarge,
    PreviewFull,
    Refused,
    SessionClosed,
    SessionErased,
    Unavailable,
    check_bounds,
)
from lanebus.bus.log.log import Script, batched
from lanebus.bus.log.reading import Pager, fetch_page, stream_pages
from lanebus.bus.messages.base import Lane
from lanebus.bus.messages.message import Delta
from lanebus.bus.servers.calls import Backoff
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES, VERSION, decode, decode_delta, encode, position_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.messages.message import TurnId
    from lanebus.bus.servers.calls import Argument
    from lanebus.bus.wire.codec import Cursor, Entry, Envelope


# Read the messages that are still being streamed.
#
# A message is open from its first delta until it is cut, or until the LLM lane has the complete message with its id.
# Only the live stream and the log decide whether a message is open, so every process gets the same result.

_LLM = (Lane.LLM,)


class PreviewCatchUp(NamedTuple):
    """The live deltas that a follower has missed when it joins."""

    snapshots: list[Envelope]
    """text of the open messages up to the follower's cursor, as one snapshot for each block"""
    pieces: deque[Envelope]
    """deltas of the open messages after the follower's cursor, in order"""
    ended: set[str]
    """ids of the messages that have ended but still have deltas in the live stream"""


class Previews:
    """Reads the live deltas of all sessions, for one process."""

    def __init__(self, log: Log, bounds: LiveBounds | None = None) -> None:
        self.bounds = bounds or LiveBounds()
        self._log = log
        self._streams = LiveStreams(log, pieces=self.bounds.cached_deltas, seconds=self.bounds.cached_seconds)

    async def open_messages(self, session: str, log: Log | None = None) -> list[OpenMessage]:
        """Return the open messages in the order in which they began.

        Args:
            session: id of the session.
            log: the log to read; None means the log given at construction.

        Raises:
            Unavailable: the server did not answer.
        """
        found = await self._open(session, await self._streams.read(session, log))
        return [preview.open_message(id) for id, preview in found.items()]

    async def catch_up(self, session: str, after: Cursor, start: Cursor, until: Cursor) -> PreviewCatchUp:
        """Return the live deltas that a follower has missed: those after its cursor that the hub will not deliver.

        The hub is the shared reader that delivers new entries and deltas to all followers.

        Args:
            session: id of the session.
            after: cursor of the follower.
            start: cursor of the hub; the hub delivers the entries after it.
            until: cursor of the last live delta that the hub does not deliver.

        Raises:
            Unavailable: the server did not answer.
        """
        deltas = await self._streams.read(session)
        silent = deltas.silent(self._log.bounds.live_seconds)
        previews = {id: preview for id, preview in deltas.messages.items() if id not in silent}
        relevant: dict[str, MessageDeltas] = {}
        for id, preview in previews.items():
            cut = preview.cut
            # Only a follower that may have seen a message begin needs the message's cut.
            if cut is None or (
                cut.is_after(after) and (cut.is_after(until) or not preview.pieces[0].cursor.is_after(after))
            ):
                relevant[id] = preview
        ended = previews.keys() - relevant.keys()
        for id in await self._complete(session, relevant, max(start.position, after.position)):
            ended.add(id)
            del relevant[id]
        snapshots = [each for preview in relevant.values() for each in preview.snapshots(after)]
        return PreviewCatchUp(snapshots, deque(deltas.since(after, until, relevant)), ended)

    async def ended_ids(self, session: str) -> list[str]:
        """Return the ids of the live deltas that may be removed.

        These are the deltas of ended messages. A delta of kind "cut" is kept for `LiveBounds.cut_seconds`.

        Raises:
            Unavailable: the server did not answer.
        """
        live = await self._streams.read(session)
        is_open = await self._open(session, live)
        ids: list[str] = []
        for each in live.deltas:
            message = each.message
            if type(message) is not Delta or message.message_id in is_open:
                continue
            if message.kind != "cut" or each.time < live.deltas[-1].time - self.bounds.cut_seconds:
                ids.append(each.cursor.id)
        return ids

    async def _open(self, session: str, deltas: SessionDeltas) -> dict[str, MessageDeltas]:
        """Return the messages that are neither cut nor complete, and not silent (`SessionDeltas.silent`)."""
        silent = deltas.silent(self._log.bounds.live_seconds)
        found = {id: preview for id, preview in deltas.messages.items() if preview.cut is None and id not in silent}
        complete = await self._complete(session, found, None)
        return {id: preview for id, preview in found.items() if id not in complete}

    async def _complete(self, session: str, deltas: Mapping[str, MessageDeltas], until: int | None) -> set[str]:
        """Return the ids of the messages that the LLM lane holds complete, up to position `until` (None: its end)."""
        complete: set[str] = set()
        if not deltas:
            return complete
        # Search the entries' bytes before decoding, because most entries are other messages and may be long.
        wanted = {id: f'"id":{json.dumps(id, ensure_ascii=False)}'.encode() for id in deltas}
        after = min(preview.pieces[0].position for preview in deltas.values())
        pager = Pager(self._log.bounds.page_bytes, self._log.bounds.page_entries)
        while until is None or after < until:
            fetched = await fetch_page(self._log, session, _LLM, after, until, pager=pager)
            (page,) = fetched.pages
            for entry in page:
                for id, id_text in wanted.items():
                    if id_text in entry[1][-1] and getattr(decode(session, Lane.LLM, entry).message, "id", None) == id:
                        complete.add(id)
            if len(page) < fetched.count:
                break
            after = position_of(page[-1])
        return complete


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBounds:
    """When a process removes the live deltas of ended messages, and how many live deltas it caches."""

    trim_bytes: int = 256 * 1024
    """Each time a session's live deltas have grown by this many bytes, the deltas of ended messages are removed."""
    cut_seconds: float = 60.0
    """Minimum time in seconds for which a delta of kind "cut" is kept. Readers that have seen the beginning of the cut
    message need this delta."""
    endings: int = 1_000
    """Maximum number of ended messages that a follower remembers, to drop live deltas that arrive after the end."""
    first_pause_seconds: float = 0.05
    """Seconds between the first two attempts to reach the server. Each further pause is twice as long."""
    longest_pause_seconds: float = 1.0
    """Longest pause between two attempts to reach the server, in seconds."""
    sessions: int = 1_000
    """Maximum number of sessions for which this process remembers which live deltas it published last."""
    cached_deltas: int = 20_000
    """Maximum number of decoded live deltas that are cached for the next follower, over all sessions. A single session
    may have more."""
    cached_seconds: float = 10.0
    """Seconds for which a session's live deltas stay in the cache after a follower has read them."""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.live", zero=("cut_seconds", "cached_seconds"))


# The decoded live deltas of one session, indexed for followers that join. Pure.
#
# Deltas are only appended. The text up to any cursor is found by bisection and joined, without examining each delta. So
# many followers that join a message of 10,000 deltas cost little more than one follower.

_Key = tuple[int, int]
"""A cursor's position, and the number of the live delta at this position."""


class OpenMessage(NamedTuple):
    """A message that a model is still streaming: neither complete in the log nor cut."""

    message_id: str
    """id that the complete message will have"""
    turn_id: TurnId | None
    """turn that the message belongs to; None if no delta names it"""
    blocks: tuple[Delta, ...]
    """the text so far, as one snapshot for each block, in order"""
    time: float
    """time of the last delta: seconds since 1970 UTC, by the server's clock"""


@dataclass(slots=True)
class _Block:
    """The deltas of one block of a message."""

    first: Delta
    tool_name: str | None = None
    keys: list[_Key] = field(default_factory=list[_Key])
    texts: list[str] = field(default_factory=list[str])

    def snapshot(self, count: int) -> Delta:
        """Return one snapshot with the text of the first `count` deltas."""
        text = "".join(self.texts[:count])
        return self.first.model_copy(update={"delta": text, "tool_name": self.tool_name, "is_snapshot": True})


class MessageDeltas:
    """The live deltas of one message, up to the delta of kind "cut" that ends the message."""

    def __init__(self) -> None:
        self.pieces: list[Envelope] = []
        self.last_time = 0.0
        """time of the message's last delta, even if that is after the cut: seconds since 1970 UTC, by the server's
        clock"""
        self.cut: Cursor | None = None
        """cursor of the cut; None if the message is not cut"""
        self._keys: list[_Key] = []
        self._blocks: dict[int, _Block] = {}

    def add(self, key: _Key, piece: Envelope, delta: Delta) -> None:
        """Add the message's next delta."""
        self.pieces.append(piece)
        self._keys.append(key)
        if delta.kind == "cut":
            self.cut = piece.cursor
            return
        block = self._blocks.get(delta.block)
        if block is None:
            block = self._blocks[delta.block] = _Block(delta)
        if block.tool_name is None:
            block.tool_name = delta.tool_name
        block.keys.append(key)
        block.texts.append(delta.delta)

    def snapshots(self, at: Cursor) -> Iterator[Envelope]:
        """Yield one snapshot for each block, with the block's text up to cursor `at`. Each snapshot has this cursor."""
        key = at[:2]
        if not (index := bisect_right(self._keys, key)):
            return
        last = self.pieces[index - 1]
        for _, block in sorted(self._blocks.items()):
            if count := bisect_right(block.keys, key):
                message = block.snapshot(count)
                yield last._replace(
                    position=at.position, delta=0, incarnation=at.incarnation, proof=at.proof, message=message
                )

    def open_message(self, id: str) -> OpenMessage:
        """Return the message with its text so far."""
        blocks = tuple(block.snapshot(len(block.texts)) for _, block in sorted(self._blocks.items()))
        turn_id = next((block.turn_id for block in blocks if block.turn_id is not None), None)
        return OpenMessage(id, turn_id, blocks, self.pieces[-1].time)


class _Run(NamedTuple):
    """Index range in `SessionDeltas.deltas` of adjacent deltas with the same message, block, kind and position.

    An unreadable entry has a range of its own.
    """

    start: int
    end: int
    message_id: str | None
    """id of the deltas' message; None for an unreadable entry, which every follower gets"""


class SessionDeltas:
    """All live deltas of one session."""

    def __init__(self) -> None:
        self.deltas: list[Envelope] = []
        """all deltas in order, including unreadable entries, and deltas after a cut"""
        self.messages: dict[str, MessageDeltas] = {}
        """the messages by id, in the order in which they began"""
        self._keys: list[_Key] = []
        self._texts: list[str] = []
        self._runs: list[_Run] = []
        self._starts: list[int] = []

    def add(self, delta: Envelope) -> None:
        """Add the session's next delta."""
        message, key, index = delta.message, (delta.position, delta.delta), len(self.deltas)
        self.deltas.append(delta)
        self._keys.append(key)
        self._texts.append(message.delta if type(message) is Delta else "")
        if type(message) is not Delta:
            self._run(index, None)
            return
        message_deltas = self.messages.get(message.message_id)
        if message_deltas is None:
            message_deltas = self.messages[message.message_id] = MessageDeltas()
        message_deltas.last_time = delta.time
        if message_deltas.cut is None:
            message_deltas.add(key, delta, message)
            self._run(index, message)

    def _run(self, index: int, message: Delta | None) -> None:
        last = self._runs[-1] if self._runs else None
        if message is not None and last is not None and last.end == index and self._continues(index, message):
            self._runs[-1] = last._replace(end=index + 1)
        else:
            self._runs.append(_Run(index, index + 1, None if message is None else message.message_id))
            self._starts.append(index)

    def _continues(self, index: int, message: Delta) -> bool:
        previous = self.deltas[index - 1].message
        return (
            self._keys[index - 1][0] == self._keys[index][0]
            and type(previous) is Delta
            and (previous.message_id, previous.block, previous.kind)
            == (message.message_id, message.block, message.kind)
            and message.kind != "cut"
        )

    def silent(self, seconds: float) -> set[str]:
        """Return the ids of the messages whose last delta is more than `seconds` older than the newest delta.

        A message without a delta for `LogBounds.live_seconds` counts as ended. The server still keeps its deltas only
        because the session has streamed another message since.
        """
        last = self.deltas[-1].time if self.deltas else 0.0
        return {id for id, message_deltas in self.messages.items() if message_deltas.last_time < last - seconds}

    def since(self, after: Cursor, until: Cursor, ids: Collection[str]) -> Iterator[Envelope]:
        """Yield the deltas of the messages `ids` between two cursors, and all unreadable entries between them.

        Adjacent deltas of one block are joined into one delta, which has the cursor of the last joined delta. So a
        reader that stops after any delta has everything up to the delta's cursor.

        Args:
            after: start after this cursor.
            until: stop at this cursor.
            ids: ids of the messages.
        """
        low, high = (bisect_right(self._keys, cursor[:2]) for cursor in (after, until))
        for at in range(max(bisect_right(self._starts, low) - 1, 0), len(self._runs)):
            start, end, id = self._runs[at]
            if start >= high:
                return
            start, end = max(start, low), min(end, high)
            if start < end and (id is None or id in ids):
                yield self._joined(self.deltas[start:end], self._texts[start:end])

    def _joined(self, run: Sequence[Envelope], texts: Sequence[str]) -> Envelope:
        first = run[0].message
        if len(run) == 1 or type(first) is not Delta:
            return run[-1]
        names = (each.message.tool_name for each in run if type(each.message) is Delta)
        name = next((name for name in names if name is not None), None)
        return run[-1]._replace(message=first.model_copy(update={"delta": "".join(texts), "tool_name": name}))


# Cache the decoded live streams of sessions, for followers that join shortly after one another.
#
# A stream only grows, unless entries are trimmed. If no entry was trimmed, a read fetches only the new entries. To find
# out, a read compares the server's count of removed entries and the last entry with those of the previous read.


@dataclass(slots=True)
class _CachedStream:
    """The live stream of one session in the cache."""

    deltas: SessionDeltas
    last: Entry | None = None
    """the last entry that was read"""
    removed: int | None = None
    """number of entries that the server had removed from the stream; None if the stream did not exist"""
    forget: asyncio.TimerHandle | None = None
    """timer that removes the stream from the cache"""


class LiveStreams:
    """Reads the live deltas of sessions, and caches them for the next follower."""

    def __init__(self, log: Log, *, pieces: int, seconds: float) -> None:
        """
        Args:
            log: the log to read.
            pieces: maximum number of deltas to cache over all streams. A single stream may have more.
            seconds: how long a stream is cached after its last read.
        """
        self._log, self._pieces, self._seconds = log, pieces, seconds
        self._cached: dict[str, _CachedStream] = {}
        """the cached streams by session, in the order in which they were last read"""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, session: str, log: Log | None = None) -> SessionDeltas:
        """Return all live deltas of a session that the server keeps.

        The result is shared: later calls add deltas to the same object, and callers must not change it.

        Args:
            session: id of the session.
            log: the log to read; None means the log given at construction.

        Raises:
            Unavailable: the server did not answer.
        """
        log = log or self._log
        async with self._turns.setdefault(session, asyncio.Lock()):
            stream = self._cached.get(session)
            if stream is None or not await _continue_stream(log, session, stream):
                stream = await _read_stream(log, session)
            self._cache(session, stream)
            return stream.deltas

    def _cache(self, session: str, stream: _CachedStream) -> None:
        self._forget(session)
        self._cached[session] = stream
        stream.forget = asyncio.get_running_loop().call_later(self._seconds, self._forget, session)
        count = sum(len(each.deltas.deltas) for each in self._cached.values())
        for oldest, each in list(self._cached.items())[:-1]:
            if count <= self._pieces:
                break
            count -= len(each.deltas.deltas)
            self._forget(oldest)

    def _forget(self, session: str) -> None:
        stream = self._cached.pop(session, None)
        if stream is not None and stream.forget is not None:
            stream.forget.cancel()


async def _read_stream(log: Log, session: str) -> _CachedStream:
    reply = (await log.call_many([("XINFO", "STREAM", log.keys.live(session))]))[0]
    stream = _CachedStream(SessionDeltas(), removed=None if isinstance(reply, Refused) else _removed_count(reply))
    async for page in stream_pages(log, log.keys.live(session)):
        _take_page(session, stream, page)
    return stream


async def _continue_stream(log: Log, session: str, stream: _CachedStream) -> bool:
    """Add the new entries to a cached stream.

    Return False if entries were removed from the stream, or if it was deleted and created again.
    """
    if stream.last is None or stream.removed is None:
        return False
    name, most, last = log.keys.live(session), log.bounds.page_entries, stream.last
    # Read the last entry again to compare it, because a server that was emptied starts with the same ids.
    commands = (("XINFO", "STREAM", name), ("XRANGE", name, last[0], "+", "COUNT", most + 1))
    try:
        info, reply = await log.call_many(commands)
    except AnswerLost:  # perhaps the reply was too large
        return False
    if isinstance(info, Refused) or isinstance(reply, Refused) or _removed_count(info) != stream.removed:
        return False
    page = cast("list[Entry]", reply)
    if not page or page[0] != last:
        return False
    del page[0]
    _take_page(session, stream, page)
    if len(page) == most:
        async for more in stream_pages(log, name, f"({page[-1][0].decode()}"):
            _take_page(session, stream, more)
    return True


def _take_page(session: str, stream: _CachedStream, page: list[Entry]) -> None:
    for entry in page:
        stream.deltas.add(decode_delta(session, entry))
    if page:
        stream.last = page[-1]


def _removed_count(info: object) -> int:
    """Return how many entries were removed from a stream, according to the stream's XINFO reply."""
    words = cast("list[bytes | int]", info)
    fields = dict(zip(words[::2], words[1::2], strict=True))
    return cast("int", fields[b"entries-added"]) - cast("int", fields[b"length"])


class PreviewWriter:
    """Publishes the live deltas that one process sends, for any number of sessions."""

    def __init__(self, log: Log, producer: str, previews: Previews) -> None:
        self._log, self._producer, self._previews, self._bounds = log, producer, previews, previews.bounds
        # All sessions share one counter, because a number only has to be higher than the previous number.
        self._numbers = count(1)
        self._shown: dict[str, int] = {}
        """number of the last answered call by session, for the sessions used last"""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def preview(self, session: str, deltas: Sequence[Delta], *, epoch: int | None, seconds: float) -> None:
        """Append deltas after the deltas of earlier calls. They are appended once, even if they have to be sent again.

        Args:
            session: id of the session.
            deltas: the deltas, in order. If there are none, the call does nothing.
            epoch: the epoch that the session's lease must have; None means that no lease is needed.
            seconds: time limit of the call.

        Raises:
            DecodeError: a delta is a snapshot; nothing was appended.
            MessageTooLarge: a delta is too large; nothing was appended.
            Fenced: the lease of `epoch` is lost; nothing was appended.
            SessionClosed: the session is closed; nothing was appended.
            PreviewFull: the session's previews are at their limit; nothing was appended.
            LogRolledBack: the server has lost this process's previous deltas; nothing was appended. The next call may
                succeed.
            Unavailable: the server did not answer within `seconds`; the deltas may have been appended.
        """
        bodies = [_delta_body(delta) for delta in deltas]
        if not bodies:
            return
        is_end = all(delta.kind == "cut" for delta in deltas)
        shown: Previewed | None = None
        with anyio.move_on_after(seconds):
            async with self._turns.setdefault(session, asyncio.Lock()):
                shown = await self._show(session, bodies, epoch=epoch, is_end=is_end)
        if shown is None:
            what = f"preview in session {session!r}: no answer within {seconds:g} s"
            raise Unavailable(f"{what}; the deltas may have been shown", "continue with the next ones")
        step = self._bounds.trim_bytes
        if shown.bytes_before // step < shown.bytes_after // step:
            await self._trim_if_possible(session)

    async def _show(self, session: str, bodies: Sequence[bytes], *, epoch: int | None, is_end: bool) -> Previewed:
        number, may_be_full = next(self._numbers), True
        backoff = Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)
        previous = self._shown.pop(session, 0)
        while True:
            try:
                shown = await show_deltas(
                    self._log, session, self._producer, number, bodies, epoch=epoch, is_end=is_end, shown=previous
                )
                self._shown[session] = number
                if len(self._shown) > self._bounds.sessions:
                    del self._shown[next(iter(self._shown))]
                return shown
            except PreviewFull:
                if not may_be_full:
                    raise
                may_be_full = False
                await self._trim_if_possible(session)
            except Unavailable as error:
                if not error.is_transient:
                    raise
                await backoff.wait()

    async def drop_ended(self, session: str) -> None:
        """Remove the live deltas of ended messages.

        A delta of kind "cut" is kept for `LiveBounds.cut_seconds`, because only this delta may show that its message
        has ended.

        Raises:
            Unavailable: the server did not answer.
        """
        await trim_deltas(self._log, session, await self._previews.ended_ids(session))

    async def _trim_if_possible(self, session: str) -> None:
        try:
            await self.drop_ended(session)
        except Unavailable:  # the next preview tries again
            return


def _delta_body(delta: Delta) -> bytes:
    if delta.is_snapshot:
        raise DecodeError("isSnapshot", "a publisher sends pieces, and only followers get snapshots: leave it out")
    body = encode(delta)
    if len(body) > MESSAGE_LIMIT_BYTES:
        raise MessageTooLarge(len(body), MESSAGE_LIMIT_BYTES)
    return body


# The script calls that append and remove live deltas.

_PREVIEW, _TRIM_LIVE = Script("preview", shares=("damage", "proofs")), Script("trim_live")


class Previewed(NamedTuple):
    """The result of appending live deltas."""

    last: str
    """id of the last delta"""
    bytes_before: int
    """size of the session's live deltas before the call"""
    bytes_after: int
    """size of the session's live deltas after the call; equal to `bytes_before` if an earlier call had appended the
    deltas"""


async def show_deltas(
    log: Log,
    session: str,
    producer: str,
    number: int,
    bodies: Sequence[bytes],
    *,
    epoch: int | None,
    is_end: bool,
    shown: int = 0,
) -> Previewed:
    """Append live deltas to a session. A second call with the same `number` adds nothing.

    Args:
        log: the log to append to.
        session: id of the session.
        producer: name of the producer.
        number: number of this call, higher than the number of the producer's last call in this session.
        bodies: the JSON of each delta.
        epoch: the epoch that the session's lease must have; None means that no lease is needed.
        is_end: whether all deltas are of kind "cut". Such deltas may exceed the limit.
        shown: number of the producer's last answered call in this session; 0 means that no call was answered.

    Raises:
        LogRolledBack: the server has lost the deltas of call `shown`; nothing was added.
        Fenced: the lease of `epoch` is lost; nothing was added.
        SessionClosed: the session is closed; nothing was added.
        SessionErased: the session was erased; nothing was added.
        PreviewFull: the session's previews are at their limit; nothing was added.
    """
    index = log.keys.live_index(log.keys.bucket(session))
    names = (log.keys.head(session), log.keys.live(session), index)
    arguments: list[Argument] = [producer, VERSION, number, "" if epoch is None else epoch]
    arguments += (
        log.bounds.live_bytes,
        int(log.bounds.live_seconds * 1000),
        int(is_end),
        session,
        log.bounds.live_index,
        shown,
        *bodies,
    )
    word, *rest = cast("bytes", await log.run(_PREVIEW, names, arguments)).decode().split(" ")
    match word:
        case "fenced":
            raise Fenced(session, epoch or 0, int(rest[0]))
        case "closed":
            raise SessionClosed(session)
        case "erased":
            raise SessionErased(session)
        case "lost":
            raise LogRolledBack(session, int(rest[0]), int(rest[0]))
        case "full":
            raise PreviewFull(session, int(rest[0]), log.bounds.live_bytes)
        case _:
            return Previewed(rest[0], int(rest[1]), int(rest[2]))


async def trim_deltas(log: Log, session: str, ids: Sequence[str]) -> None:
    """Remove live deltas by their ids. Ids that do not exist are ignored."""
    names = (log.keys.head(session), log.keys.live(session))
    for group in batched(ids, log.bounds.live_step):
        await log.run(_TRIM_LIVE, names, group)
