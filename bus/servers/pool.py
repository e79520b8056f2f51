"""Links for short calls that are safe to cut off: reads, and scripts that may run twice."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, cast

import anyio

from lanebus.bus.errors import Closed, Refused, Unavailable
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.servers.bounds import ConnectionBounds
from lanebus.bus.servers.connection import Connection, Route
from lanebus.bus.servers.replies import Argument, Reply, answered

__all__ = ("ConnectionPool", "Pool", "is_settled", "patient_backoff")


class Pool(Protocol):
    """Links to all servers that hold a part of the bus; each command goes to the one that holds its key."""

    @property
    def has_connected(self) -> bool:
        """A server was there at least once."""
        ...

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        """One command; a pure read or an idempotent script, as it is sent again once.

        Args:
            at: the key whose server is meant, for a command that names none.
            more_seconds: how much longer than a short call it may take.
            again: False if it may not be carried out twice: it is then sent again only where it was refused.

        Raises:
            Refused, Unavailable: as for `Connection.call`. What will pass in seconds is waited for before it is raised.
        """
        ...

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """Several commands in one write a server; sent again once, as `call` says. A session's keep their order."""
        ...

    async def call_each(self, *command: Argument) -> list[Reply]:
        """One command that names no key, on every server that may be written to; as `call`."""
        ...

    def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """The names of all keys that match a pattern, on every server, some at a time; one may come twice.

        Raises:
            Unavailable: a server cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Close what is idle, and what is in use when it comes back."""
        ...


class ConnectionPool:
    """The `Pool` of one server. A link that was cut off is not used again."""

    def __init__(self, route: Route, limit: int = 8, bounds: ConnectionBounds | None = None) -> None:
        """Takes the most links to have open at once; callers beyond it wait."""
        self._route = route
        self._bounds = bounds or ConnectionBounds()
        self._limiter = anyio.CapacityLimiter(limit)
        self._idle: list[Connection] = []
        self._drops = 0
        self._is_closed = False
        self.has_connected = False
        """See `Pool`."""

    @property
    def borrowed(self) -> int:
        """How many links are in use."""
        return self._limiter.borrowed_tokens

    @property
    def idle(self) -> tuple[Connection, ...]:
        """The links that wait for their next use."""
        return tuple(self._idle)

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        """See `Pool`."""
        del at  # all keys are on one server
        (reply,) = await self._patiently((command,), more_seconds, again=again)
        return answered(reply)

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """See `Pool`."""
        return await self._patiently(commands, more_seconds, again=True)

    async def call_each(self, *command: Argument) -> list[Reply]:
        """See `Pool`."""
        return [await self.call(*command)]

    async def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """See `Pool`."""
        cursor = b"0"
        while True:
            reply = await self.call("SCAN", cursor, "MATCH", match, "COUNT", self._bounds.scan_count)
            cursor, found = cast("tuple[bytes, list[bytes]]", reply)
            yield found
            if cursor == b"0":
                return

    async def _patiently(
        self, commands: Sequence[Sequence[Argument]], more_seconds: float, *, again: bool
    ) -> list[Reply | Refused]:
        replies = await self.attempt(commands, more_seconds, again=again)
        if is_settled(replies):
            return replies
        backoff = patient_backoff(self._bounds)
        while not is_settled(replies) and await backoff.wait():
            # All of them: what is read in one call is read in order.
            replies = await self.attempt(commands, more_seconds, again=again)
        return replies

    async def attempt(
        self, commands: Sequence[Sequence[Argument]], more_seconds: float, *, again: bool
    ) -> list[Reply | Refused]:
        """Send commands in one write, and if no answer comes and `again`, once more on a new link."""
        try:
            return await self._once(commands, more_seconds)
        except Unavailable:
            await self.drop_idle()
            if not again:
                raise
            return await self._once(commands, more_seconds)

    async def _once(self, commands: Sequence[Sequence[Argument]], more_seconds: float) -> list[Reply | Refused]:
        async with self._link() as link:
            return await link.call_many(commands, more_seconds=more_seconds)

    @asynccontextmanager
    async def _link(self) -> AsyncGenerator[Connection, None]:
        """Borrow a link for the length of the block.

        Raises:
            Closed: the bus is closed.
            Unavailable: as for `Route.connect`.
        """
        async with self._limiter:
            if self._is_closed:
                raise Closed("bus")
            link = self._idle.pop() if self._idle else await self._route.connect()
            self.has_connected = True
            drops = self._drops
            try:
                yield link
            finally:
                if link.is_broken or self._is_closed or drops != self._drops:
                    await link.close()
                else:
                    self._idle.append(link)

    async def drop_idle(self) -> None:
        """Close what is idle: a link may have died unseen, which only shows at its next use, and then all may have.

        What is in use is closed when it comes back: its answer may be the last that it gave.
        """
        self._drops += 1
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """See `Pool`."""
        self._is_closed = True
        await self.drop_idle()


def is_settled(replies: Sequence[Reply | Refused]) -> bool:
    """None of them is a refusal that passes by itself in seconds."""
    return not any(isinstance(reply, Refused) and reply.is_retryable for reply in replies)


def patient_backoff(bounds: ConnectionBounds) -> Backoff:
    """Return the pauses of a short call that is repeated, for `patience_seconds`."""
    return Backoff(bounds.retry_seconds, bounds.retry_most_seconds, patience=bounds.patience_seconds)
