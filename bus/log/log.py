"""`Log` sends commands and scripts to the servers of a namespace, and reads heads and the list of sessions.

Other operations on the log are functions that take a `Log`, such as `begin_fork` in fork.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import HeadMissing, Refused, SessionDamaged
from lanebus.bus.log.batches import batched
from lanebus.bus.log.bounds import LogBounds
from lanebus.bus.log.head import SessionHead, head_command, read_head
from lanebus.bus.log.script import Script, run_script
from lanebus.bus.log.work_bounds import WorkBounds
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.servers.replies import answered
from lanebus.bus.wire.codec import position_of, token_of
from lanebus.bus.wire.keys import ALL_AGENTS, ALL_BYTES, Keys, is_name, is_session_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.servers.replies import Argument, Reply
    from lanebus.bus.wire.codec import Entry

__all__ = ("Log", "count_in")

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
