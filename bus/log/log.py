"""The log of a namespace: how its commands and scripts are sent, and the steps that read heads and sessions.

Every other step is a function that takes the log, in the module of its noun.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, cast

from lanebus.bus.log.batches import batched
from lanebus.bus.log.bounds import LogBounds
from lanebus.bus.log.head import SessionHead, head_command, read_head
from lanebus.bus.log.script import Script, run_script
from lanebus.bus.log.work_bounds import WorkBounds
from lanebus.bus.servers.replies import call_all
from lanebus.bus.wire.keys import ALL_BYTES, Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.servers.topology import Argument, Pool, Reply

__all__ = ("Log",)

_GLANCE, _QUARANTINE = Script("glance"), Script("quarantine")


class Log:
    """Sends commands and scripts that may run twice, over a pool of links."""

    def __init__(self, pool: Pool, keys: Keys, bounds: LogBounds | None = None, work: WorkBounds | None = None) -> None:
        self.pool, self._keys = pool, keys
        self.bounds, self.work = bounds or LogBounds(), work or WorkBounds()
        """of the parts that use this log: of pages and heads, and of work"""

    @property
    def keys(self) -> Keys:
        """The names of its keys."""
        return self._keys

    async def call(self, *command: Argument) -> Reply:
        """One command that may run twice. Raises Refused, Unavailable."""
        return await self.pool.call(*command)

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply | Refused]:
        """Several commands in one round trip, as `call`; a refusal stands in the place of its answer."""
        return await self.pool.call_many(commands)

    async def call_each(self, *command: Argument) -> list[Reply]:
        """One command that names no key, on every server; it may run twice. Raises Refused, Unavailable."""
        return await self.pool.call_each(*command)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        """One script that may run twice. Raises Refused, Unavailable."""
        return await run_script(self.pool, script, keys, arguments)

    async def head(self, session: str) -> SessionHead:
        """The session's head; of an empty session all zeros."""
        (head,) = await self.heads((session,))
        return head

    async def heads(self, sessions: Sequence[str]) -> list[SessionHead]:
        """The heads of several sessions, a bounded number in a round trip."""
        heads: list[SessionHead] = []
        for some in batched(sessions, self.bounds.heads):
            replies = await self.pool.call_many([head_command(self._keys, session) for session in some])
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
                replies = await self.run(_GLANCE, [self._keys.head(session) for session in some], ())
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
                replies = await call_all(self.pool, commands)
                for bucket, reply in zip(tuple(places), replies, strict=True):
                    places[bucket], found = cast("tuple[bytes, list[bytes]]", reply)
                    names |= dict.fromkeys(name.decode() for name in found[::2])
                places = {bucket: place for bucket, place in places.items() if place != b"0"}
        names.pop(ALL_BYTES, None)
        return list(names)

    async def size_bytes(self) -> int:
        """The JSON of all sessions' messages."""
        commands = [("HGET", self._keys.sessions(bucket), ALL_BYTES) for bucket in range(self._keys.buckets)]
        return sum(int(size or 0) for size in cast("list[bytes | None]", await call_all(self.pool, commands)))

    async def quarantine(self, session: str, lane: Lane) -> list[str]:
        """Move what the bus did not write from a lane's end to the stream of forged entries; gives their ids."""
        names = (
            self._keys.head(session),
            self._keys.lane(session, lane),
            self._keys.forged(self._keys.bucket(session)),
            self._keys.rebuilt(session, lane),
        )
        return [
            name.decode() for name in cast("list[bytes]", await self.run(_QUARANTINE, names, (session, lane.value)))
        ]

    async def unblock(self, client_id: int, session: str) -> None:
        """Let the blocked read of another link, to this session's server, come back with nothing."""
        await self.pool.call("CLIENT", "UNBLOCK", client_id, at=self._keys.head(session))
