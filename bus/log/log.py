"""`Log` sends commands and scripts to the servers of a namespace. The head of a session, and cursors.

Other operations on the log are functions that take a `Log`, such as `begin_fork` in lineage.py. A `Script` is a Lua
file of `scripts/`. `LogBounds` and `WorkBounds` have the sizes and periods.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from lanebus.bus.errors import HeadMissing, InvalidCursor, Refused, SessionDamaged, check_bounds
from lanebus.bus.messages.base import Lane
from lanebus.bus.servers.calls import answered
from lanebus.bus.servers.health import name_forbidden
from lanebus.bus.wire.codec import START, Cursor, position_of, token_of
from lanebus.bus.wire.keys import ALL_AGENTS, ALL_BYTES, Keys, is_name, is_session_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lanebus.bus.servers.calls import Argument, Calling, Reply
    from lanebus.bus.servers.connection import Pool
    from lanebus.bus.wire.codec import Entry


# Load and run Lua scripts.
#
# A script is called by its digest. If the server does not know the digest, the script's text is sent.


class Script:
    """A Lua script of this package: its text, and its digest."""

    def __init__(self, name: str, *, shares: Sequence[str] = ()) -> None:
        """
        Args:
            name: name of the script's file in `scripts/`, without its extension.
            shares: names of the files with shared code. Their text is put before the script's own text.
        """
        self._names = (*shares, name)

    @cached_property  # read on first use, so that importing the bus does not wait for the files
    def text(self) -> str:
        """The Lua source, including the shared code."""
        folder = files("lanebus.bus.log").joinpath("scripts")
        *shared, own = (folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in self._names)
        flags, newline, rest = own.partition("\n") if own.startswith("#!") else ("", "", own)  # must be the first line
        return "".join((flags, newline, *shared, rest))

    @cached_property
    def digest(self) -> str:
        """The SHA-1 by which the server identifies the script."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], arguments: Iterable[Argument]) -> tuple[Argument, ...]:
        """Return the command that runs the script. `keys` are all keys that the script uses."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)


async def run_script(
    server: Calling, script: Script, keys: Sequence[str], arguments: Sequence[Argument], page: FirstPage | None = None
) -> Reply:
    """Run a script that is safe to run twice. Arguments and errors are those of `run_scripts`."""
    (reply,) = await run_scripts(server, script, ((keys, arguments),), page)
    return reply


async def run_scripts(
    server: Calling,
    script: Script,
    calls: Sequence[tuple[Sequence[str], Sequence[Argument]]],
    page: FirstPage | None = None,
) -> list[Reply]:
    """Run a script several times in one round trip. The script must be safe to run twice.

    Args:
        server: a connection or pool.
        script: the script to run.
        calls: keys and arguments of each run.
        page: a page to read in the same round trip, after the scripts. None reads no page.

    Raises:
        Refused: as for `Connection.call`. Some of the runs may have been executed.
        Unavailable: as for `Connection.call`. Some of the runs may have been executed.
    """
    commands = [(script, script.command(keys, arguments)) for keys, arguments in calls]
    return [answered(reply) for reply in await send_scripts(server, commands, page)]


async def send_scripts(
    server: Calling, commands: Sequence[tuple[Script, Sequence[Argument]]], page: FirstPage | None = None
) -> list[Reply | Refused]:
    """Run scripts in one round trip. If the server does not know a script, its text is sent in a second round trip.

    Args:
        server: a connection or pool.
        commands: each script with its command.
        page: a page to read in the same round trip, after the scripts. It stays empty if a second one is needed.

    Returns:
        The replies, in the order of the commands. A refused command has its error as its reply.

    Raises:
        Unavailable: as for `Connection.call_many`.
    """
    sent = [command for _, command in commands]
    answers = await server.call_many(sent if page is None else [*sent, *page.commands])
    replies, others = answers[: len(sent)], answers[len(sent) :]
    unknown = [at for at, reply in enumerate(replies) if isinstance(reply, Refused) and reply.code == "NOSCRIPT"]
    if unknown:
        texts = [("EVAL", commands[at][0].text, *sent[at][2:]) for at in unknown]
        for at, reply in zip(unknown, await server.call_many(texts), strict=True):
            replies[at] = reply
    elif page is not None and not any(isinstance(reply, Refused) for reply in others):
        page.replies = others
    if any(isinstance(reply, Refused) and reply.code == "NOPERM" and not reply.command for reply in replies):
        return await name_forbidden(server, [(script.text, command) for script, command in commands], replies)
    return replies


_FINGERPRINT, _QUARANTINE = Script("fingerprint"), Script("quarantine", shares=("damage",))


class Log:
    """Sends commands and scripts over a pool of connections. Each command and script must be safe to run twice."""

    def __init__(self, pool: Pool, keys: Keys, bounds: LogBounds | None = None, work: WorkBounds | None = None) -> None:
        self.pool, self._keys = pool, keys
        self.bounds, self.work = bounds or LogBounds(), work or WorkBounds()
        """`bounds` are the bounds of pages and heads, `work` those of consumer groups"""
        self.is_emptied = False
        """whether `NamespaceLog.look` found that the log was emptied; publishes are refused meanwhile"""

    @property
    def keys(self) -> Keys:
        """The key names of the namespace."""
        return self._keys

    async def call(self, *command: Argument) -> Reply:
        """Run a command that is safe to run twice. Raises Refused, Unavailable."""
        return await self.pool.call(*command)

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply | Refused]:
        """Run several commands in one round trip. Each command must be safe to run twice.

        The reply to a refused command is its error.
        """
        return await self.pool.call_many(commands)

    async def call_shared(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        """Read keys that many sessions share, in one round trip. The reply for a key of the wrong type is None.

        So a key that a foreign client has replaced does not hide the others. Raises Refused, Unavailable.
        """
        return [
            None if isinstance(reply, Refused) and reply.code == "WRONGTYPE" else answered(reply)
            for reply in await self.pool.call_many(commands)
        ]

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        """Run a command without keys on every server. It must be safe to run twice. Raises Refused, Unavailable."""
        return await self.pool.call_each(*command)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        """Run a script that is safe to run twice. Raises Refused, Unavailable."""
        return await run_script(self.pool, script, keys, arguments)

    async def head(self, session: str) -> SessionHead:
        """Return a session's head. If the session has no entries, all numbers in the head are 0.

        Raises:
            SessionDamaged: the head is damaged.
            HeadMissing: the session has no head, but entries of the bus.
            Unavailable: the server cannot be reached.
        """
        (head,) = await self.each_head((session,))
        if isinstance(head, SessionDamaged | HeadMissing):
            raise head
        return head

    async def heads(self, sessions: Sequence[str]) -> list[SessionHead]:
        """Return the heads of those sessions whose heads can be read, in order. See `each_head`."""
        return [head for head in await self.each_head(sessions) if isinstance(head, SessionHead)]

    async def each_head(self, sessions: Sequence[str]) -> list[SessionHead | SessionDamaged | HeadMissing]:
        """Return the heads of several sessions, in order, or the error of a head that is damaged or missing.

        Each round trip reads a bounded number of heads. Raises Refused, Unavailable.
        """
        heads: list[SessionHead | SessionDamaged | HeadMissing] = []
        for some in batched(sessions, self.bounds.heads):
            replies = await self.pool.call_many([head_command(self._keys, session) for session in some])
            found = [_head_or_fault(*each) for each in zip(some, replies, strict=True)]
            again = await self._without_head([each.session for each in found if _is_missing(each)])
            heads += (again.get(each.session, each) for each in found)
        return heads

    async def _without_head(self, sessions: Sequence[str]) -> dict[str, SessionHead | SessionDamaged | HeadMissing]:
        """Return the heads of sessions whose heads were not found, or the errors of those that have entries.

        A head is read again after the lanes, as the session may just have begun.
        """
        commands: list[Sequence[Argument]] = []
        for session in sessions:
            commands += (("XREVRANGE", self._keys.lane(session, lane), "+", "-", "COUNT", 1) for lane in Lane)
            commands.append(head_command(self._keys, session))
        replies = await self.pool.call_many(commands) if commands else []
        found = dict[str, SessionHead | SessionDamaged | HeadMissing]()
        for session, *ends, reply in zip(sessions, replies[::3], replies[1::3], replies[2::3], strict=True):
            found[session] = head = _head_or_fault(session, reply)
            pages = [cast("list[Entry]", end) for end in ends if not isinstance(end, Refused)]
            last = max((position_of(page[0]) for page in pages if page and token_of(page[0])), default=0)
            if last and _is_missing(head):
                found[session] = HeadMissing(session, last)
        return found

    async def fingerprints(self, sessions: Sequence[str]) -> dict[str, bytes]:
        """Return the `SessionHead.fingerprint` of each session. This call costs much less than `heads`."""
        found: dict[str, bytes] = {}
        by_bucket: defaultdict[int, list[str]] = defaultdict(list)
        for session in sessions:
            by_bucket[self._keys.bucket(session)].append(session)
        for together in by_bucket.values():
            for some in batched(together, self.bounds.heads):
                replies = await self.run(_FINGERPRINT, [self._keys.head(session) for session in some], ())
                found.update(zip(some, cast("list[bytes]", replies), strict=True))
        return found

    async def sessions(self, bucket: int | None = None, agent: str | None = None) -> list[str]:
        """Return every session that was ever published to and not erased, in no particular order.

        Args:
            bucket: return only the sessions of this bucket; None means all buckets.
            agent: return only the sessions of this agent; None means all agents.
        """
        suffix = b"" if agent is None else f" {agent}".encode()
        names: dict[str, None] = {}
        chosen = range(self._keys.buckets) if bucket is None else (bucket,)
        for buckets in batched(chosen, self.bounds.buckets):
            places = dict.fromkeys(buckets, b"0")
            while places:
                commands = [
                    ("HSCAN", self._keys.sessions(each), place, "COUNT", self.bounds.page_entries)
                    for each, place in places.items()
                ]
                for scanned, reply in zip(tuple(places), await self.call_shared(commands), strict=True):
                    places[scanned], found = cast("tuple[bytes, list[bytes]]", reply or (b"0", []))
                    pairs = zip(found[::2], found[1::2], strict=True)
                    names |= dict.fromkeys(
                        name.decode() for name, text in pairs if text.endswith(suffix) and is_session_id(name)
                    )
                places = {each: place for each, place in places.items() if place != b"0"}
        return list(names)

    async def agents(self) -> dict[str, int]:
        """Return the number of sessions of each agent, by the agent's name. Agents without sessions are left out.

        The sessions of a bucket whose counts are damaged are left out too."""
        counts: dict[str, int] = {}
        commands = [("HGET", self._keys.sessions(bucket), ALL_AGENTS) for bucket in range(self._keys.buckets)]
        for text in cast("list[bytes | None]", await self.call_shared(commands)):
            for agent, count in _counts_in(text).items():
                counts[agent] = counts.get(agent, 0) + count
        return counts

    async def key_counts(self, sessions: Sequence[str]) -> dict[str, int]:
        """Return the number of publish keys that each session remembers. A damaged count is 0."""
        found: dict[str, int] = {}
        for some in batched(sessions, self.bounds.heads):
            counts = await self.call_shared([("HLEN", self._keys.caller_keys(session)) for session in some])
            found.update(zip(some, (count or 0 for count in cast("list[int | None]", counts)), strict=True))
        return found

    async def size_bytes(self) -> int:
        """Return the size of all messages of all sessions, as JSON, and of all stored media. A damaged count is 0."""
        places = [self._keys.media_sizes(), *(self._keys.sessions(bucket) for bucket in range(self._keys.buckets))]
        commands = [("HGET", place, ALL_BYTES) for place in places]
        return sum(map(count_in, cast("list[bytes | None]", await self.call_shared(commands))))

    async def quarantine(self, session: str, lane: Lane) -> list[str]:
        """Quarantine the entries at the end of a lane that foreign clients wrote. Return their ids, 1,000 at most.

        Raises:
            HeadMissing: the session has no head, and the entries are of the bus. Nothing was quarantined.
        """
        names = (
            self._keys.head(session),
            self._keys.lane(session, lane),
            self._keys.forged(self._keys.bucket(session)),
            self._keys.rebuilt(self._keys.lane(session, lane)),
        )
        reply = cast("list[bytes] | bytes", await self.run(_QUARANTINE, names, (session, lane.value)))
        if isinstance(reply, bytes):
            raise HeadMissing(session, int(reply.split(b" ")[1]))
        return [name.decode() for name in reply]

    async def unblock(self, client_id: int, session: str) -> None:
        """End a blocking read of another connection. The read then returns no entries.

        Args:
            client_id: id of the connection, from the server's `CLIENT ID`.
            session: any session on that server.
        """
        await self.pool.call("CLIENT", "UNBLOCK", client_id, at=self._keys.head(session))


def _head_or_fault(session: str, reply: Reply | Refused) -> SessionHead | SessionDamaged:
    try:
        return read_head(session, reply)
    except SessionDamaged as damage:
        return damage


def _is_missing(head: SessionHead | SessionDamaged) -> bool:
    return isinstance(head, SessionHead) and not head.is_there


def count_in(text: bytes | None) -> int:
    """Return a stored count; 0 if it is missing or damaged."""
    return int(text) if text is not None and text.isdigit() and len(text) < 19 else 0


def _counts_in(text: bytes | None) -> dict[str, int]:
    """Return the counts of a bucket's sessions by agent, without those that are damaged."""
    try:
        stored = cast("object", json.loads(text or b"{}"))
    except (ValueError, RecursionError):
        return {}
    counts: dict[str, int] = {}
    for agent, count in cast("dict[str, object]", stored).items() if isinstance(stored, dict) else ():
        if type(count) is int and is_name(agent):
            counts[agent] = max(count, 0)
    return counts


class FirstPage:
    """The first page of a read, requested in the same round trip as another command.

    The server reads the page after the other command, so the page includes the command's effect.
    """

    def __init__(self, session: str, after: int, commands: Sequence[Sequence[Argument]]) -> None:
        self.session, self.after, self.commands = session, after, commands
        self.replies: list[Reply | Refused] = []
        """the replies to `commands`. Empty until they arrive, and if the server refused one of the commands"""

    def take(self, after: int) -> list[Reply | Refused]:
        """Return the replies and forget them. Return an empty list on later calls, or if the page was requested for
        another position than `after`."""
        replies, self.replies = self.replies, []
        return replies if after == self.after else []


T = TypeVar("T")


def batched(items: Sequence[T], count: int) -> Iterable[Sequence[T]]:
    """Return the items in groups of `count`; the last group may be smaller."""
    return (items[at : at + count] for at in range(0, len(items), count))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Bounds of replies, and of what a session stores besides its entries."""

    page_bytes: int = 32 * 1_048_576
    """Maximum number of bytes of JSON in a reply. Set at most half of the server's `client-output-buffer-limit`.

    A reader that does not know the entries' sizes assumes the largest allowed size, and requests few enough entries for
    this bound."""
    page_entries: int = 500
    """Maximum number of entries of one stream in a reply."""
    heads: int = 500
    """Maximum number of heads in a reply. A larger number would delay other commands."""
    catalog_notices: int = 128
    """Number of change notices of each bucket that are read to find the sessions that changed last."""
    buckets: int = 8
    """Maximum number of buckets whose sessions are listed in one round trip."""
    incarnations: int = 8
    """Maximum number of incarnations that a head lists; older incarnations are dropped. A cursor of an older
    incarnation is checked by reading the entry at its position."""
    producers: int = 1_000
    """Maximum number of producers whose last appends a head keeps, to detect repeats. If more producers publish to a
    session, the head drops those that published longest ago. A dropped producer starts a new numbering of its
    appends."""
    live_bytes: int = 8 * 1_048_576
    """Maximum number of bytes of live deltas, as JSON, that the server keeps for a session. The largest message, 1 MiB
    streamed in 12,000 deltas, needs half of this space."""
    live_seconds: float = 3_600.0
    """Seconds that the server keeps a session's live deltas after the last delta. If a worker dies, its unfinished
    message can wait this long for a new worker."""
    live_step: int = 500
    """Maximum number of live deltas that one command removes, so that the command does not block the server for
    long."""
    trim_entries: int = 1_000
    """Maximum number of positions that one step of a trim removes, so that the step does not block the server for
    long."""
    trim_bytes: int = 8 * 1_048_576
    """Approximate maximum number of bytes of JSON that one step of a trim removes."""
    trim_chunk: int = 25
    """Maximum number of positions whose entries a step of a trim loads at once. Each position may hold a megabyte."""
    quarantine_attempts: int = 3
    """Maximum number of retries of a step of a trim after entries of foreign clients were quarantined."""
    forget_page: int = 1_000
    """Maximum number of entries of a bucket's stream that one step of an erasure searches for references to the
    session."""
    rewrite_seconds: float = 600.0
    """Seconds that an erasure waits until the servers have rewritten their append-only files. A rewrite copies all
    data."""
    rewrite_pause_seconds: float = 0.1
    """Seconds between two checks whether a server has rewritten its append-only file."""
    size_seconds: float = 1.0
    """Seconds after which the count of all sessions' bytes is stale. A stale count is refreshed before a publish is
    compared with the limit."""
    live_index: int = 1_000
    """Minimum number of entries that a trim keeps in a bucket's index of live deltas."""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.log", zero=("quarantine_attempts", "size_seconds"))


_EXACT = 100
"""Streams shorter than this are trimmed exactly. Approximate trimming is cheaper and keeps up to 100 more entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBounds:
    """Bounds and periods of consumer groups, of wake-ups and of change notices. Times are in seconds."""

    wake_ups: int = 1_000
    """maximum number of entries of a bucket's stream of wake-ups. If a wake-up was trimmed, a sweep finds the work"""
    notices: int = 10_000
    """maximum number of entries of a bucket's stream of change notices. A follower that missed a notice finds the
    change when it next compares its cursor with the session's head"""
    sweep_seconds: float = 5.0
    """seconds between two sweeps, which find work in all buckets even if a wake-up was lost. Consumers and
    `Session.wait_for_wake_up` use sweeps. A consumer with a shorter heartbeat sweeps more often"""
    block_seconds: float = 5.0
    """longest time that a read for wake-ups blocks. A shorter `sweep_seconds` shortens this time"""
    silence_seconds: float = 3.0
    """seconds beyond the block time of a read after which a missing reply means that the connection is dead"""
    read_wake_ups: int = 100
    """maximum number of wake-ups of one stream in one read of a consumer. The next read returns later wake-ups"""
    watched_wake_ups: int = 1_000
    """maximum number of wake-ups of one stream in one read for `Session.wait_for_wake_up`. After a read
    that returns this number, all waiting calls wake up, because wake-ups may have been missed"""
    watch_pause_seconds: float = 0.008
    """pause between two reads for `Session.wait_for_wake_up` that found wake-ups. The pause delays a wake-up by at most
    this time. It limits a worker with a busy stream to about a hundred reads per second instead of a thousand"""
    linger_seconds: float = 5.0
    """how long to keep reading wake-ups after the last call of `Session.wait_for_wake_up` has ended"""
    wait_seconds: float = 0.5
    """longest time that a consumer waits for wake-ups at a stretch"""
    cluster_wait_seconds: float = 1.0
    """the value of `wait_seconds` on a cluster, where each bucket has its own read"""
    first_pause_seconds: float = 0.01
    """shortest wait of a consumer, and its first backoff after the server became unreachable. The backoff doubles"""
    longest_pause_seconds: float = 0.5
    """longest backoff between two attempts to reach an unreachable server"""
    sweep_window_seconds: float = 0.02
    """buckets whose sweeps are due within this time are swept together"""
    named_sessions: int = 100
    """maximum number of sessions of a bucket to remember from wake-ups. A fetch also takes the leases of these
    sessions"""
    dead_letters: int = 250
    """maximum number of dead letters that a bucket keeps. Older letters are dropped"""
    redrive_page: int = 500
    """maximum number of dead letters to redrive in one step"""
    error_length: int = 500
    """maximum number of characters to keep of the reason for a retry"""
    reason_length: int = 2_000
    """maximum number of characters to keep of the reason for a dead letter"""
    raw_bytes: int = 16_384
    """maximum number of bytes to keep in a dead letter of the data that caused the failure"""
    forget_seconds: float = 86_400.0
    """a consumer that was silent for this long is no longer listed"""
    away_seconds: float = 7 * 86_400.0
    """a group is reported as away if all its consumers were silent for this long"""
    status_sessions: int = 50
    """maximum number of pending sessions that a group's status lists for each bucket"""
    lag_sessions: int = 2_000
    """maximum number of sessions of a bucket to count for `GroupStatus.lag`"""

    def __post_init__(self) -> None:
        check_bounds(
            self,
            "bounds.work",
            zero=(
                "wake_ups",
                "notices",
                "watch_pause_seconds",
                "linger_seconds",
                "error_length",
                "reason_length",
                "raw_bytes",
            ),
        )

    @property
    def wake_up_trim(self) -> tuple[str, int]:
        """The MAXLEN arguments of XADD for the stream of wake-ups."""
        return ("=" if self.wake_ups < _EXACT else "~"), self.wake_ups

    @property
    def notice_trim(self) -> tuple[str, int]:
        """The MAXLEN arguments of XADD for the stream of change notices."""
        return ("=" if self.notices < _EXACT else "~"), self.notices


# Read a session's head, the facts that are known without reading entries, and check cursors against a head.


class Incarnation(NamedTuple):
    """The part of a log that one server process wrote. After a restart or failover, a new incarnation begins.

    A cursor holds the token of its incarnation. The token shows whether the log has lost the cursor's entry.
    """

    token: str
    """`<start>_<random>`; it is in the header of each entry of this incarnation"""
    start: int
    """the position before the incarnation's first entry"""


def start_of(token: str) -> int:
    """Return the position before the first entry of the incarnation `token`; -1 if `token` is not a valid token."""
    start, is_token, _ = token.partition("_")
    return int(start) if is_token and _START.fullmatch(start) else -1


class Origin(NamedTuple):
    """The origin of a fork: its parent session, and the last entry that it shares with the parent."""

    session: str
    """id of the parent"""
    cursor: Cursor
    """cursor of the last shared entry. Its incarnation shows whether the parent still has the shared entries"""

    @property
    def position(self) -> int:
        """The position of the last shared entry; 0 if no entry is shared."""
        return self.cursor.position


class SessionHead(NamedTuple):
    """The state of a session, without its entries."""

    session: str
    position: int
    """position of the last entry; 0 if the session has no entries"""
    created: float
    """time of the first append, in seconds since 1970 UTC by the server's clock; 0.0 if the session is empty"""
    updated: float
    """time of the last append, in seconds since 1970 UTC by the server's clock; 0.0 if the session is empty"""
    size_bytes: int
    """size of all messages, as JSON"""
    epoch: int
    """epoch of the latest lease; 0 if no lease was ever acquired"""
    trimmed: int
    """the highest trimmed position; 0 if no entry was trimmed"""
    is_closed: bool
    is_erased: bool = False
    incarnations: tuple[Incarnation, ...] = ()
    """the newest incarnations, in the order in which they began"""
    origin: Origin | None = None
    """the origin of a fork; None if the session is not a fork"""
    archived: int = 0
    """the last archived position; 0 if no entry is archived"""
    trimmed_llm: int = 0
    """the highest position that was trimmed from the LLM lane"""
    trimmed_extension: int = 0
    """the highest position that was trimmed from the extension lane"""
    trimmed_by: str = ""
    """token of the incarnation that wrote the entry at `trimmed`; "" if it is unknown"""
    live_id: str = ""
    """the highest id of any live delta so far; "" if the session never had a live delta"""
    agent: str = ""
    """the agent that the session belongs to; "" before its first message"""
    last_llm: int = 0
    """position of the last entry that was appended to the LLM lane; 0 if there is none, or if it is unknown because an
    older version appended it"""
    last_extension: int = 0
    """the same of the extension lane"""
    lost_llm: int = 0
    """all entries of the LLM lane up to this position are missing, as another client deleted the lane's stream; 0 if it
    was never deleted"""
    lost_extension: int = 0
    """the same of the extension lane"""
    ends: str = ""
    """`<position>.<proof>` of the last entries of the last three appends, the newest last; "" if unknown"""
    trimmed_proof: str = ""
    """proof of the entry at `trimmed`; "" if it is unknown"""

    @property
    def is_there(self) -> bool:
        """Whether the server has the head of a session that was ever published to. A lease alone is no such head."""
        return bool(self.created or self.position or self.is_erased)

    @property
    def own_start(self) -> Cursor:
        """The cursor before the session's own entries. For a fork, it is after the entries shared with the parent."""
        return START if self.origin is None else self.origin.cursor

    @property
    def fingerprint(self) -> bytes:
        """A text that changes with an append, a new incarnation, a close and an erasure, and if another log takes the
        session's place, but not with a trim."""
        state = "closed" if self.is_closed else "erased" if self.is_erased else ""
        token = self.incarnations[-1].token if self.incarnations else ""
        return f"{self.position} {token} {state} {self.ends}".encode()

    @property
    def first_kept(self) -> int:
        """The first position that was not trimmed. It may not exist yet."""
        return self.trimmed + 1

    def lacks(self, lanes: Collection[Lane], after: int) -> bool:
        """Return whether any entry of `lanes` after position `after` was trimmed."""
        if after >= self.trimmed:
            return False  # the most frequent case
        if len(lanes) == len(Lane):
            return True
        gone = {Lane.LLM: self.trimmed_llm, Lane.EXTENSION: self.trimmed_extension}
        return any(after < gone[lane] for lane in lanes)

    def last_in(self, lanes: Collection[Lane]) -> int:
        """Return the position of the last entry of `lanes`, as far as the head knows. It may have been trimmed."""
        if len(lanes) == len(Lane):
            return self.position
        last = {Lane.LLM: self.last_llm, Lane.EXTENSION: self.last_extension}
        return max(last[lane] for lane in lanes)

    def lost_in(self, lane: Lane) -> int:
        """Return the position up to which all entries of a lane are missing, although they were not trimmed; 0 if no
        entry is."""
        lost, trimmed = (
            (self.lost_llm, self.trimmed_llm) if lane is Lane.LLM else (self.lost_extension, self.trimmed_extension)
        )
        return lost if lost > trimmed else 0

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen all entries."""
        return self.cursor_at(self.position)

    def cursor_at(self, position: int) -> Cursor:
        """Return the cursor of a reader that has seen all entries up to a position.

        If the head does not know the incarnation or the proof at this position, the cursor has "" for it. Of a cursor
        without incarnation, only the position is checked against the log.
        """
        return Cursor(position, 0, self.incarnation_of(position) or "", self.proof_of(position))

    def incarnation_of(self, position: int) -> str | None:
        """Return the incarnation that wrote the entry at a position: "" for position 0, None if the head does not list
        the incarnation."""
        if position <= 0:
            return ""
        for token, start in reversed(self.incarnations):
            if start < position:
                return token
        if self.origin is not None and position == self.origin.position:
            return self.origin.cursor.incarnation or None
        return self.trimmed_by or None if position == self.trimmed else None

    def proof_of(self, position: int) -> str:
        """Return the proof of the entry at a position; "" if the head does not list it."""
        if self.ends and position > 0:
            _, is_listed, rest = f" {self.ends} ".partition(f" {position}.")
            if is_listed:
                return rest.partition(" ")[0]
        if self.origin is not None and position == self.origin.position:
            return self.origin.cursor.proof
        return self.trimmed_proof if position == self.trimmed else ""

    def common_position(self, cursor: Cursor) -> int | None:
        """Return the last position up to which the log still holds the entries that a reader saw.

        This is the cursor's position, unless the log was rolled back. Return None if the incarnations and proofs that
        the head lists are not enough to find the position. In that case, entries have to be read.

        Args:
            cursor: the reader's cursor.
        """
        position = min(cursor.position, self.position)
        if not cursor.incarnation or not position:
            return position
        end = self.position
        for token, start in reversed(self.incarnations):
            if token == cursor.incarnation:
                return self._unchanged(cursor, end)
            end = start
        if self.incarnations and end <= 0:
            return 0  # the head lists all incarnations, and none of them is the cursor's
        if position <= end and self.incarnation_of(position) == cursor.incarnation:
            return self._unchanged(cursor, position)
        return None

    def _unchanged(self, cursor: Cursor, end: int) -> int | None:
        """Do the work of `common_position`, for an incarnation whose last position is `end`."""
        if cursor.position > end:
            # The newest incarnation may have gone back and then grown again, without a restart.
            return None if cursor.proof and end == self.position else end
        if not cursor.proof:
            return cursor.position
        if not (proof := self.proof_of(cursor.position)):
            return None
        return cursor.position if proof == cursor.proof else max(start_of(cursor.incarnation), 0)


def head_command(keys: Keys, session: str) -> tuple[Argument, ...]:
    """Return the command that reads a session's head."""
    return ("HMGET", keys.head(session), *_HEAD)


_HEAD = (
    *("position", "created", "updated", "bytes", "epoch", "trimmed", "archived"),
    *("state", "incarnations", "parent", "fork", "trimmed_llm", "trimmed_ext", "trimmed_by", "live", "agent"),
    *("last_llm", "last_ext", "lost", "ends", "trimmed_proof"),
)


def read_head(session: str, reply: Reply | Refused) -> SessionHead:
    """Return the head that the reply to `head_command` describes.

    Raises:
        SessionDamaged: the key is not a hash, or one of its fields is not as the bus writes it.
        Refused: the server refused the command.
    """
    if isinstance(reply, Refused) and reply.code == "WRONGTYPE":
        raise SessionDamaged(session, "head")
    found = cast("list[bytes | None]", answered(reply))
    *numbers, state, incarnations, parent, fork, llm, extension, by, live, agent = found[:16]
    last_llm, last_extension, lost, ends, trimmed_proof = found[16:]
    try:
        position, created, updated, size_bytes, epoch, trimmed, archived = (
            0 if number is None else _number(number) for number in numbers
        )
        head = SessionHead(
            session,
            position,
            created / 1000,
            updated / 1000,
            size_bytes,
            epoch,
            trimmed,
            state == b"closed",
            state == b"erased",
            read_incarnations(incarnations),
            None if parent is None or fork is None else _origin(parent, fork),
            archived,
            trimmed if llm is None else _number(llm),
            trimmed if extension is None else _number(extension),
            _matched(_TOKEN, by),
            _matched(_LIVE, live).partition(" ")[0],
            (agent or b"").decode(errors="replace"),
            0 if last_llm is None else _number(last_llm),
            0 if last_extension is None else _number(last_extension),
            *_pair(lost),
            _matched(_ENDS, ends),
            _matched(_PROOF, trimmed_proof),
        )
    except ValueError:
        raise SessionDamaged(session, f"head, {_damaged_field(found)}") from None
    # An append first begins an incarnation, then sets position and time. A torn file may have the incarnation alone.
    if not position and head.incarnations and updated:
        raise SessionDamaged(session, "head, position")
    return head


def read_incarnations(text: bytes | None) -> tuple[Incarnation, ...]:
    """Return the incarnations that a head lists, the newest last. Raises ValueError if the text is no such list."""
    return _incarnations(text) if text else ()


@lru_cache(maxsize=1024)  # the head of a followed session is read repeatedly
def _incarnations(text: bytes) -> tuple[Incarnation, ...]:
    tokens = text.decode("ascii").split(" ")
    if not all(map(_TOKEN.fullmatch, map(str.encode, tokens))):
        raise ValueError
    return tuple(Incarnation(token, start_of(token)) for token in tokens)


_START = re.compile("[0-9]{1,18}")
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{0,32}")
_PARENT = re.compile(rb"[A-Za-z0-9_-]{1,64}")
_PROOF = re.compile(rb"[0-9a-f]{0,8}")
_ENDS = re.compile(rb"(?:[0-9]{1,18}\.[0-9a-f]{1,8}(?: |$)){0,3}")
_LIVE = re.compile(rb"(?:[0-9]{1,18}-[0-9]{1,18} [0-9]{1,18}(?: [0-9a-f]*)?)?")


def _number(text: bytes) -> int:
    """Return a stored number. Raises ValueError if the text is not digits alone."""
    if text.isdigit() and len(text) < 19:  # as many digits as `_START` allows; a pattern would take twice as long
        return int(text)
    raise ValueError


def _pair(text: bytes | None) -> tuple[int, int]:
    """Return two stored numbers; zeros if they are missing. Raises ValueError if the text has another form."""
    llm, extension = (b"0", b"0") if text is None else text.split(b" ")
    return _number(llm), _number(extension)


def _matched(form: re.Pattern[bytes], text: bytes | None) -> str:
    """Return a stored text of a form; "" if it is missing. Raises ValueError if it has another form."""
    if text and form.fullmatch(text) is None:
        raise ValueError
    return (text or b"").decode()


def _origin(parent: bytes, fork: bytes) -> Origin:
    try:
        return Origin(_matched(_PARENT, parent), Cursor.parse(fork.decode()))
    except InvalidCursor:
        raise ValueError from None


def _damaged_field(values: Sequence[bytes | None]) -> str:
    """Return the name of the first damaged field of a head. The values are those of `head_command`."""
    forms: dict[str, re.Pattern[bytes]] = {
        "incarnations": re.compile(rb"|[A-Za-z0-9_-]{1,32}(?: [A-Za-z0-9_-]{1,32})*"),
        "parent": _PARENT,
        "trimmed_by": _TOKEN,
        "live": _LIVE,
        "lost": re.compile(rb"[0-9]{1,18} [0-9]{1,18}"),
        "ends": _ENDS,
        "trimmed_proof": _PROOF,
    }
    number = re.compile(_START.pattern.encode())
    for name, value in zip(_HEAD, values, strict=False):
        form = forms.get(name, number)
        if name not in {"state", "fork", "agent"} and value is not None and form.fullmatch(value) is None:
            return name
    return "fork"
