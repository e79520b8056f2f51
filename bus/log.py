"""The log's own steps, one function each: append, preview, read, project, archive.

A script is sent by its digest and loaded again when the server has forgotten it. Milliseconds stop here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from bus.checksum import seed_of
from bus.codec import VERSION, Entry, position_of, token_in
from bus.envelope import Cursor
from bus.errors import (
    AnswerLost,
    BusError,
    CursorTrimmed,
    Fenced,
    LogRolledBack,
    NoSuchPosition,
    PreviewFull,
    Refused,
    ReplyTooLarge,
    SessionClosed,
    SessionErased,
    SessionExists,
)
from bus.head import (
    Incarnation,
    SessionHead,
    answered,
    head_command,
    read_head,
    read_incarnations,
    start_of,
)
from bus.keys import ALL_BYTES, Keys
from bus.messages.lanes import Lane
from bus.pager import Pager
from bus.work_bounds import WorkBounds

if TYPE_CHECKING:
    from bus.connection import Argument, Pool, Reply

__all__ = (
    "Append",
    "Checkpoint",
    "Fetched",
    "FirstPage",
    "Lease",
    "Log",
    "LogBounds",
    "Plan",
    "Previewed",
    "Script",
    "Shared",
    "Terms",
    "batched",
    "publish_command",
    "seeds_of",
    "size_of",
    "whole",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """What one reply may hold, and what a session keeps beside its entries."""

    page_bytes: int = 32 * 1_048_576
    """The most JSON that a reply should hold; half of the server's `client-output-buffer-limit` or less. Where sizes
    are not known, fewer entries are asked for, so that it holds even if each is as large as a message may be."""
    page_entries: int = 500
    """The most entries of one stream in a reply."""
    heads: int = 500
    """The most heads in a reply, so that none of them holds up the others for long."""
    buckets: int = 8
    """Buckets whose sessions are listed in one round trip."""
    incarnations: int = 8
    """The newest incarnations that a head lists. Cursors of older ones are proven by a look at their entry."""
    producers: int = 1_000
    """Processes whose last appends to a session its head keeps, to tell a repeat from a new one. Where more have
    published to it, those that did so longest ago begin anew with their next; see bus/outboxes.py."""
    live_bytes: int = 8 * 1_048_576
    """The most live deltas a session keeps, as JSON. A message of the greatest size that is spoken in many small
    pieces, 1 MiB in 12,000 of them, needs half of it."""
    live_seconds: float = 3_600.0
    """How long live deltas are kept after the last one: so long a message whose worker died waits for another one."""
    live_step: int = 500
    """Live deltas that one command takes out, so that none holds the server for long."""
    trim_entries: int = 1_000
    trim_bytes: int = 8 * 1_048_576
    """Positions that one step of a trim takes at most, and about how much JSON, so that none holds the server for
    long."""
    trim_chunk: int = 25
    """Positions of which a step of a trim has the entries in the server's memory: each may have a megabyte in each
    lane."""
    set_aside_attempts: int = 3
    """How often a step of a trim tries again after what others wrote was set aside."""
    forget_page: int = 1_000
    """Entries of a bucket's stream that one step looks through for those of a session that is erased."""
    size_seconds: float = 1.0
    """How old the count of what all sessions hold may be, where that has a limit."""
    live_bell: int = 1_000
    """How many pointers the bell of live deltas keeps at least."""


SMALL_BYTES = 16_384
"""No server closes a connection over so small a reply: it is sent from a buffer that the limit does not count."""


class Script:
    """A Lua script of this package: its text and the digest the server knows it by."""

    def __init__(self, name: str, *, shares: Sequence[str] = ()) -> None:
        """`shares`: the texts that stand before its own, which other scripts have too."""
        self._names = (*shares, name)

    @cached_property  # read when it is first needed: importing the bus does not wait for the files
    def text(self) -> str:
        """In Lua."""
        folder = files("bus").joinpath("scripts")
        *shared, own = (folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in self._names)
        flags, mark, rest = own.partition("\n") if own.startswith("#!") else ("", "", own)  # have to be the first line
        return "".join((flags, mark, *shared, rest))

    @cached_property
    def digest(self) -> str:
        """What the server knows it by."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], arguments: Iterable[Argument]) -> tuple[Argument, ...]:
        """The command that runs it, all keys declared."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)


PUBLISH, SETTLE = Script("publish", shares=("wake", "producers")), Script("settle", shares=("producers",))
PREVIEW, TRIM_LIVE = Script("preview"), Script("trim_live")
SET_ASIDE, PROJECT = Script("set_aside"), Script("project")
FIRST_SIZE, WRITTEN_BY, GLANCE = Script("first_size"), Script("written_by"), Script("glance")
ARCHIVE, PIN, FORK = Script("archive"), Script("pin"), Script("fork")


class Checkpoint(NamedTuple):
    """A projection's state, and the place it was folded up to."""

    state: bytes
    cursor: Cursor

    @property
    def position(self) -> int:
        """Up to which it was folded."""
        return self.cursor.position


class Lease(NamedTuple):
    """The right to run a session's loop. A later epoch ends it, whatever the clock says."""

    session: str
    owner: str
    epoch: int


class Previewed(NamedTuple):
    """What appending live deltas gave."""

    last: str
    """the id of the last one"""
    bytes_before: int
    bytes_after: int
    """of all that the session keeps; the same as before where it was a repeat"""


class Shared(NamedTuple):
    """What a fork shares with its parent, as the parent stood when it promised to keep it."""

    cursor: Cursor
    """of the last entry"""
    incarnations: tuple[Incarnation, ...]
    trimmed: int
    """the highest position of it that cannot be read any more; 0 if all can"""

    def ending_with(self, token: str) -> Shared:
        """Return the same, once it is known which incarnation wrote the last entry; "" if nobody knows."""
        listed = (Incarnation(token, start_of(token)),) if token else ()
        return self._replace(cursor=self.cursor._replace(incarnation=token), incarnations=listed)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page of a session's lanes."""

    head: SessionHead
    pages: list[list[Entry]]
    """one a lane"""
    count: int
    """entries that were asked for of each lane: a page of so many may not be the last"""

    def complete(self, until: int) -> int:
        """Return the position up to which the pages hold all there is, `until` at most.

        A foreign client may have written below a position, such as 7-5 behind 7-0. So a full page is not known to hold
        all of its last position, unless that is its only one, whose rest `Log.page` reads.
        """
        return min([until, *(whole(page) for page in self.pages if len(page) >= self.count)])


def whole(page: Sequence[Entry]) -> int:
    """Return the position up to which a full page, as `Log.with_rest` returns it, holds all of its lane."""
    first, last = position_of(page[0]), position_of(page[-1])
    return last if first == last else last - 1


class FirstPage:
    """The first page of a reading, asked for with another command, in one write and behind it: whatever that did, the
    page has seen."""

    def __init__(self, session: str, after: int, commands: Sequence[Sequence[Argument]]) -> None:
        self.session, self.after, self.commands = session, after, commands
        self.replies: list[Reply | Refused] = []
        """empty until they are there, and where the server refused one of the commands"""

    def take(self, after: int) -> list[Reply | Refused]:
        """Return the replies, once; empty if there are none, or if they do not begin behind that position."""
        replies, self.replies = self.replies, []
        return replies if after == self.after else []


class Plan(NamedTuple):
    """One publish as the script takes it: the plan's text, then the checksum and the JSON of each message."""

    text: str
    parts: Sequence[bytes]
    """checksum and JSON in turn"""
    wakes: bool = False
    """it wakes a worker"""

    @property
    def message_count(self) -> int:
        """How many messages it has."""
        return len(self.parts) // 2


class Append(NamedTuple):
    """What one producer appends to one session in one step."""

    session: str
    term: int
    """of the producer: its appends are numbered from 1 in each"""
    number: int
    plans: Sequence[Plan]


class Terms(NamedTuple):
    """What a publish may not go beyond."""

    session_bytes: int | None = None
    """the most JSON a session may hold; None is no limit"""
    reserve_bytes: int = 0
    """how much more of it control messages may use"""
    work: WorkBounds = WorkBounds()
    """how long the streams of notices and of wake-ups are"""
    incarnations: int = LogBounds().incarnations
    """how many a head lists"""
    producers: int = LogBounds().producers
    """how many a head keeps"""


def seeds_of(producer: str) -> dict[Lane, int]:
    """Return what the checksums of a producer's messages go on from, in each lane."""
    return {lane: seed_of(VERSION, producer, lane) for lane in Lane}


def publish_command(
    keys: Keys, producer: str, terms: Terms, fresh: str, appends: Sequence[Append]
) -> tuple[Argument, ...]:
    """The command that appends to sessions of one server; answers as scripts/publish.lua says.

    Args:
        fresh: a token that was never used before, for the sessions that begin an incarnation with this.
    """
    names: list[str] = []
    limit = "" if terms.session_bytes is None else terms.session_bytes
    work = terms.work
    arguments: list[Argument] = [producer, VERSION, *work.notice_trim, fresh, limit, terms.reserve_bytes]
    arguments += (*work.wake_up_trim, terms.incarnations, terms.producers)
    for session, term, number, plans in appends:
        names += keys.appending(session)
        arguments += (session, term, number, len(plans))
        place, wakes = len(arguments) - 1, False
        for text, parts, is_waking in plans:
            arguments.append(text)
            arguments += parts
            wakes = wakes or is_waking
        if wakes:
            names += keys.work(keys.bucket(session))
            arguments[place] = -len(plans)
    return PUBLISH.command(names, arguments)


T = TypeVar("T")


def size_of(entry: Entry) -> int:
    """Return the bytes of an entry's message."""
    return len(entry[1][-1]) if entry[1] else 0


def batched(items: Sequence[T], count: int) -> Iterable[Sequence[T]]:
    """Return the items in groups of `count`, the last one smaller."""
    return (items[at : at + count] for at in range(0, len(items), count))


class Log:
    """The steps that are not group-committed, on a pool of links. All of them are safe to send twice."""

    def __init__(self, pool: Pool, keys: Keys, bounds: LogBounds | None = None, work: WorkBounds | None = None) -> None:
        self._pool, self._keys = pool, keys
        self.bounds, self.work = bounds or LogBounds(), work or WorkBounds()
        """of the parts that use this log: of pages and heads, and of work"""

    @property
    def keys(self) -> Keys:
        """The names of its keys."""
        return self._keys

    async def call(self, *command: Argument) -> Reply:
        """One command that may run twice. Raises Refused, Unavailable."""
        return await self._pool.call(*command)

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply | Refused]:
        """Several commands in one round trip, as `call`; a refusal stands in the place of its answer."""
        return await self._pool.call_many(commands)

    async def call_each(self, *command: Argument) -> list[Reply]:
        """One command that names no key, on every server; it may run twice. Raises Refused, Unavailable."""
        return await self._pool.call_each(*command)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        """One script that may run twice. Raises Refused, Unavailable."""
        return await self._run(script, keys, arguments)

    async def head(self, session: str) -> SessionHead:
        """The session's head; of an empty session all zeros."""
        (head,) = await self.heads((session,))
        return head

    async def heads(self, sessions: Sequence[str]) -> list[SessionHead]:
        """The heads of several sessions, a bounded number in a round trip."""
        heads: list[SessionHead] = []
        for some in batched(sessions, self.bounds.heads):
            replies = await self._pool.call_many([head_command(self._keys, session) for session in some])
            heads += [read_head(session, reply) for session, reply in zip(some, replies, strict=True)]
        return heads

    async def glances(self, sessions: Sequence[str]) -> dict[str, bytes]:
        """Where sessions stand, as `SessionHead.glance`; much cheaper than their heads."""
        found: dict[str, bytes] = {}
        by_bucket: defaultdict[int, list[str]] = defaultdict(list)
        for session in sessions:
            by_bucket[self._keys.bucket(session)].append(session)
        for together in by_bucket.values():
            for some in batched(together, self.bounds.heads):
                replies = await self._run(GLANCE, [self._keys.head(session) for session in some], ())
                found.update(zip(some, cast("list[bytes]", replies), strict=True))
        return found

    async def sessions(self) -> list[str]:
        """Every session that was ever published to, in no order."""
        names: dict[str, None] = {}
        for buckets in batched(range(self._keys.buckets), self.bounds.buckets):
            places = dict.fromkeys(buckets, b"0")
            while places:
                commands = [
                    ("HSCAN", self._keys.sessions(bucket), place, "COUNT", self.bounds.page_entries)
                    for bucket, place in places.items()
                ]
                replies = await self._pool.call_many(commands)
                for bucket, reply in zip(tuple(places), replies, strict=True):
                    places[bucket], found = cast("tuple[bytes, list[bytes]]", answered(reply))
                    names |= dict.fromkeys(name.decode() for name in found[::2])
                places = {bucket: place for bucket, place in places.items() if place != b"0"}
        names.pop(ALL_BYTES, None)
        return list(names)

    async def size_bytes(self) -> int:
        """The JSON of all sessions' messages."""
        commands = [("HGET", self._keys.sessions(bucket), ALL_BYTES) for bucket in range(self._keys.buckets)]
        replies = await self._pool.call_many(commands)
        return sum(int(cast("bytes", answered(reply)) or 0) for reply in replies)

    async def page(
        self,
        session: str,
        lanes: Sequence[Lane],
        after: int,
        until: int | None,
        pager: Pager,
        *,
        first: FirstPage | None = None,
    ) -> Fetched:
        """The head, then some entries of each lane above `after` and up to `until`, oldest first.

        The head is read first: whatever it counts is in the lanes by the time they are read. And once more last: it
        tells of what was trimmed or erased in between.

        Args:
            pager: how many to ask for; it hears what came, and asks for less where the answer is lost.
            first: this page, if it was asked for already; for a pager that has not heard anything.

        Raises:
            ReplyTooLarge: one entry is larger than what the server sends in a reply.
            Refused, Unavailable: the server cannot answer.
        """
        replies = [] if first is None else first.take(after)
        while True:
            count = pager.count
            commands = self._page_commands(session, lanes, after, until, count)
            try:
                replies = replies or [
                    reply
                    for group in ([[each] for each in commands] if pager.is_apart else [commands])
                    for reply in await self._pool.call_many(group)
                ]
            except AnswerLost as lost:
                if not pager.shrink():
                    raise await self._too_large(session, lanes, after, lost) from None
                continue
            head, later = read_head(session, replies[0]), read_head(session, replies[-1])
            if later.trimmed > head.trimmed or later.is_erased:
                head = head._replace(
                    trimmed=later.trimmed,
                    trimmed_by=later.trimmed_by,
                    trimmed_llm=later.trimmed_llm,
                    trimmed_extension=later.trimmed_extension,
                    is_erased=later.is_erased,
                )
            found = [cast("list[Entry]", answered(page)) for page in replies[1:-1]]
            found = [await self.with_rest(session, lane, page, count) for lane, page in zip(lanes, found, strict=True)]
            pager.took(sum(map(len, found)), sum(size_of(e) for page in found for e in page), head.size_bytes)
            return Fetched(head, found, count)

    def first_page(self, session: str, lanes: Sequence[Lane], after: int) -> FirstPage:
        """The commands that read the first page of a session's lanes above `after`, for who sends them."""
        pager = Pager(self.bounds.page_bytes, self.bounds.page_entries, len(lanes))
        return FirstPage(session, after, self._page_commands(session, lanes, after, None, pager.count))

    def _page_commands(
        self, session: str, lanes: Sequence[Lane], after: int, until: int | None, count: int
    ) -> list[Sequence[Argument]]:
        end = "+" if until is None else str(until)  # with what others wrote below that position; feeds go on behind it
        head = head_command(self._keys, session)
        return [
            head,
            *(("XRANGE", self._keys.lane(session, lane), f"{after + 1}-0", end, "COUNT", count) for lane in lanes),
            head,
        ]

    async def with_rest(self, session: str, lane: Lane, page: list[Entry], count: int) -> list[Entry]:
        """Add to a full page that holds a single position what a foreign client wrote below that, as far as a reply
        can hold it.

        Raises:
            Refused, Unavailable: the server cannot answer.
        """
        if len(page) < count or position_of(page[0]) != (only := position_of(page[-1])):
            return page
        behind, most = f"({page[-1][0].decode()}", self.bounds.page_entries
        while most:
            try:
                rest = await self._pool.call("XRANGE", self._keys.lane(session, lane), behind, only, "COUNT", most)
            except AnswerLost:
                most //= 2
            else:
                return page + cast("list[Entry]", rest)
        return page

    async def written_by(self, session: str, position: int) -> str | None:
        """Which incarnation wrote the entry at a position of the session's own streams; None if it is in neither."""
        names = [self._keys.lane(session, lane) for lane in Lane]
        header = cast("bytes | None", await self._run(WRITTEN_BY, names, (position,)))
        return None if header is None else token_in(header)

    async def _too_large(self, session: str, lanes: Sequence[Lane], after: int, lost: AnswerLost) -> BusError:
        """Why one entry behind a position cannot be read: `ReplyTooLarge` if it is large, else the lost answer itself.

        Raises:
            Unavailable: the server cannot be reached now, so the entry is not the reason.
        """
        for lane in lanes:
            found = await self._run(FIRST_SIZE, (self._keys.lane(session, lane),), (after,))
            match cast("list[int]", found):
                case [position, size_bytes] if size_bytes > SMALL_BYTES:
                    return ReplyTooLarge(session, position, size_bytes)
                case _:
                    pass
        return lost

    async def entries(self, key: str, first: str = "-", last: str = "+") -> AsyncGenerator[list[Entry], None]:
        """The entries of one stream, in pages that fit into a reply.

        Raises:
            Refused, Unavailable: the server cannot answer.
        """
        pager = Pager(self.bounds.page_bytes, self.bounds.page_entries)
        while True:
            count = pager.count
            try:
                page = cast("list[Entry]", await self._pool.call("XRANGE", key, first, last, "COUNT", count))
            except AnswerLost:
                if not pager.shrink():
                    raise
                continue
            pager.took(len(page), sum(map(size_of, page)))
            if page:
                yield page
            if len(page) < count:
                return
            first = f"({page[-1][0].decode()}"

    async def deltas(self, session: str) -> list[Entry]:
        """All live deltas that are still kept, oldest first."""
        return [entry async for page in self.entries(self._keys.live(session)) for entry in page]

    async def preview(
        self,
        session: str,
        producer: str,
        number: int,
        bodies: Sequence[bytes],
        *,
        epoch: int | None,
        is_end: bool,
        shown: int = 0,
    ) -> Previewed:
        """Append live deltas below the newest position; a repeat with the same number adds nothing.

        Args:
            shown: number of the producer's last call in this session that was answered; 0 is none.

        Raises:
            LogRolledBack: the server has lost what was shown then; nothing was added.
            Fenced, SessionClosed, SessionErased, PreviewFull: refused; nothing was added.
        """
        bell = self._keys.live_bell(self._keys.bucket(session))
        names = (self._keys.head(session), self._keys.live(session), bell)
        arguments: list[Argument] = [producer, VERSION, number, "" if epoch is None else epoch]
        arguments += (
            self.bounds.live_bytes,
            int(self.bounds.live_seconds * 1000),
            int(is_end),
            session,
            self.bounds.live_bell,
            shown,
            *bodies,
        )
        word, *rest = cast("bytes", await self._run(PREVIEW, names, arguments)).decode().split(" ")
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
                raise PreviewFull(session, int(rest[0]), self.bounds.live_bytes)
            case _:
                return Previewed(rest[0], int(rest[1]), int(rest[2]))

    async def trim_live(self, session: str, ids: Sequence[str]) -> None:
        """Take live deltas out again; what is gone already is left out."""
        names = (self._keys.head(session), self._keys.live(session))
        for some in batched(ids, self.bounds.live_step):
            await self._run(TRIM_LIVE, names, some)

    async def set_aside(self, session: str, lane: Lane) -> list[str]:
        """Move what the bus did not write from a lane's end to the stream of forged entries; gives their ids."""
        names = (
            self._keys.head(session),
            self._keys.lane(session, lane),
            self._keys.forged(self._keys.bucket(session)),
            self._keys.rebuilt(session, lane),
        )
        return [name.decode() for name in cast("list[bytes]", await self._run(SET_ASIDE, names, (session, lane.value)))]

    async def unblock(self, client_id: int, session: str) -> None:
        """Let the blocked read of another link, to this session's server, come back with nothing."""
        await self._pool.call("CLIENT", "UNBLOCK", client_id, at=self._keys.head(session))

    async def load_projection(self, session: str, name: str, version: int) -> Checkpoint | None:
        """The stored state of a projection; None if there is none."""
        key = self._keys.projection(session, name, version)
        reply = await self._pool.call("HMGET", key, "state", "position", "incarnation")
        state, position, incarnation = cast("list[bytes | None]", reply)
        if state is None or position is None:
            return None
        return Checkpoint(state, Cursor(int(position), 0, (incarnation or b"").decode()))

    async def save_projection(
        self, session: str, name: str, version: int, state: bytes, *, cursor: Cursor, expected: int
    ) -> bool:
        """Store state and checkpoint in one step, if the stored checkpoint is still at `expected` (0: none).

        Raises:
            SessionErased: there is nothing to project.
        """
        names = (
            self._keys.projection(session, name, version),
            self._keys.checkpoints(session),
            self._keys.head(session),
        )
        arguments = (expected, cursor.position, state, cursor.incarnation, f"p:{name}@{version}")
        reply = await self._run(PROJECT, names, arguments)
        if reply == -1:
            raise SessionErased(session)
        return reply == 1

    async def archive_tip(self, session: str) -> str:
        """The end of the session's chain of archived segments, as `extend_archive` has put it; "" if there is none."""
        tip = await self._pool.call("HGET", self._keys.head(session), "archive")
        return cast("bytes", tip or b"").decode()

    async def archived_segments(self, session: str, position: int = 0, count: int = -1) -> list[str]:
        """Names of archived segments, in order, from the one that holds a position, or goes on behind it.

        Args:
            count: the most to give; -1 is all.
        """
        reply = await self._pool.call("ZRANGEBYSCORE", self._keys.archive(session), position, "+inf", "LIMIT", 0, count)
        return [name.decode() for name in cast("list[bytes]", reply)]

    async def extend_archive(
        self, session: str, tip: str, new_tip: str, incarnation: str, segments: Sequence[tuple[int, str]]
    ) -> str:
        """Have the archive of a session go on with segments, each its last position and name, if it ends at `tip`.

        Args:
            incarnation: that wrote the last position of the last segment.

        Returns:
            A word, as scripts/archive.lua says.
        """
        names = (
            self._keys.head(session),
            self._keys.archive(session),
            *(self._keys.lane(session, lane) for lane in Lane),
        )
        pairs = [word for pair in segments for word in pair]
        reply = await self._run(ARCHIVE, names, (tip, new_tip, incarnation, *pairs))
        return cast("bytes", reply).decode()

    async def pin(self, parent: str, child: str, at: int | None) -> Shared:
        """Have a session keep what a fork at a position shares with it; None is its last position.

        Raises:
            NoSuchPosition, CursorTrimmed, SessionErased: it cannot; nothing was noted.
        """
        names = (self._keys.head(parent), self._keys.checkpoints(parent))
        reply = await self._run(PIN, names, (f"f:{child}", "" if at is None else at))
        if isinstance(reply, bytes):
            word, _, number = reply.decode().partition(" ")
            if word == "erased":
                raise SessionErased(parent)
            if word == "trimmed":
                raise CursorTrimmed(parent, str(Cursor(at or 0)), int(number) + 1)
            raise NoSuchPosition(parent, at or 0, int(number))
        position, incarnations, trimmed = cast("tuple[int, bytes, int]", reply)
        shared = tuple(each for each in read_incarnations(incarnations) if each.start < position)
        return Shared(Cursor(position, 0, shared[-1].token if shared else ""), shared, trimmed)

    async def unpin(self, parent: str, child: str) -> None:
        """A session need not keep anything for a fork any more."""
        await self._pool.call("HDEL", self._keys.checkpoints(parent), f"f:{child}")

    async def fork(self, parent: str, child: str, shared: Shared) -> None:
        """Begin a session as a fork of another one that was told to keep what they share.

        Raises:
            SessionExists, SessionErased: the id is taken; nothing was written.
        """
        keys, cursor = self._keys, shared.cursor
        names = (keys.head(child), keys.checkpoints(child), keys.sessions(keys.bucket(child)))
        incarnations = " ".join(each.token for each in shared.incarnations)
        arguments = (child, parent, str(cursor), cursor.position, incarnations, shared.trimmed)
        reply = await self._run(FORK, names, arguments)
        if reply == b"erased":
            raise SessionErased(child)
        if reply != b"forked":
            _, other, begin = (word.decode() for word in cast("list[bytes]", reply))
            raise SessionExists(child, other or None, Cursor.parse(begin).position if begin else 0)

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        """Run a script, again where no answer comes: every step here may run twice."""
        command = script.command(keys, arguments)
        try:
            return await self._pool.call(*command)
        except Refused as error:
            if error.code != "NOSCRIPT":
                raise
        return await self._pool.call("EVAL", script.text, *command[2:])
