"""Connection pools for short calls that may be cancelled: reads, and scripts that may run twice."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, cast

import anyio

from lanebus.bus.errors import Closed, Refused, Unavailable, Unconnectable
from lanebus.bus.origin import BusOrigin
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.servers.bounds import ConnectionBounds
from lanebus.bus.servers.connection import Connection, ServerRoute
from lanebus.bus.servers.replies import Argument, Reply, answered

__all__ = ("ConnectionPool", "Pool", "is_settled", "patient_backoff")


class Pool(Protocol):
    """Sends each command to the server that holds its key."""

    @property
    def has_connected(self) -> bool:
        """Whether a connection succeeded at least once."""
        ...

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        """Send one command and return its reply.

        The command may be sent twice, so it must be a read or an idempotent script, unless `again` is False.

        Args:
            command: the command's name and arguments.
            at: for a command without keys, a key on the server to use. None means the command's first key.
            more_seconds: seconds that the call may take in addition to those of a short call.
            again: whether the command may run twice. If False, it is sent again only if the server refused it.

        Raises:
            Refused: as for `Connection.call`. A refusal that is expected to pass within seconds is retried first.
            Unavailable: as for `Connection.call`.
        """
        ...

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        """Send several commands, in one write to each server. Commands for one session keep their order.

        See `call` for repetition and errors. The reply to a refused command is a `Refused`, which is not raised.
        """
        ...

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        """Send a command without keys to every primary, as `call` does. Return the replies by `ServerRoute.address`."""
        ...

    def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        """Yield the keys that match a pattern, from all servers, in pages. A key may be yielded twice.

        Raises:
            Unavailable: a server did not answer.
        """
        ...

    async def close(self) -> None:
        """Close idle connections now, and connections in use when they are returned."""
        ...


class ConnectionPool:
    """The `Pool` of one server. Broken connections are not reused."""

    def __init__(self, route: ServerRoute, limit: int = 8, bounds: ConnectionBounds | None = None) -> None:
        """
        Args:
            route: route to the server.
            limit: maximum number of connections; further callers wait.
            bounds: timeouts and pauses; None means the defaults.
        """
        self._route, self._origin = route, BusOrigin()
        self._bounds = bounds or ConnectionBounds()
        self._limiter = anyio.CapacityLimiter(limit)
        self._idle: list[Connection] = []
        self._drops = 0
        self._is_closed = False
        self.has_connected = False
        """See `Pool`."""

    @property
    def borrowed(self) -> int:
        """Number of connections in use."""
        return self._limiter.borrowed_tokens

    @property
    def idle(self) -> tuple[Connection, ...]:
        """The idle connections."""
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

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        """See `Pool`."""
        reply = await self.call(*command)
        return {self._route.address: reply}

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
            # Send all commands again, because the reads of one call keep their order.
            replies = await self.attempt(commands, more_seconds, again=again)
        return replies

    async def attempt(
        self, commands: Sequence[Sequence[Argument]], more_seconds: float, *, again: bool
    ) -> list[Reply | Refused]:
        """Send commands in one write.

        If there is no answer and `again` is True, send the commands once more on a new connection.
        """
        try:
            return await self._once(commands, more_seconds)
        except Unconnectable:
            raise
        except Unavailable:
            await self.drop_idle()
            if not again:
                raise
            return await self._once(commands, more_seconds)

    async def _once(self, commands: Sequence[Sequence[Argument]], more_seconds: float) -> list[Reply | Refused]:
        async with self._borrow() as connection:
            return await connection.call_many(commands, more_seconds=more_seconds)

    @asynccontextmanager
    async def _borrow(self) -> AsyncGenerator[Connection, None]:
        """Borrow a connection for the length of the block.

        Raises:
            Closed: the bus is closed.
            OpenedElsewhere: this is another process or event loop than that of the bus.
            Unavailable: as for `Route.connect`.
        """
        self._origin.check_running()
        async with self._limiter:
            if self._is_closed:
                raise Closed("bus")
            connection = self._idle.pop() if self._idle else await self._route.connect()
            self.has_connected = True
            drops = self._drops
            try:
                yield connection
            finally:
                if connection.is_broken or self._is_closed or drops != self._drops:
                    await connection.close()
                else:
                    self._idle.append(connection)

    async def drop_idle(self) -> None:
        """Close all connections after a connection was found dead, because the others may be dead too.

        Idle connections are closed now, connections in use when they are returned. A dead connection is noticed only
        when it is used.
        """
        self._drops += 1
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """See `Pool`."""
        self._is_closed = True
        await self.drop_idle()


def is_settled(replies: Sequence[Reply | Refused]) -> bool:
    """Return whether the replies are final: no reply is a refusal that is expected to pass within seconds."""
    return not any(isinstance(reply, Refused) and reply.is_retryable for reply in replies)


def patient_backoff(bounds: ConnectionBounds) -> Backoff:
    """Return the backoff for a short call. The backoff gives up after `retrying_seconds`."""
    return Backoff(bounds.first_pause_seconds, bounds.longest_pause_seconds, patience=bounds.retrying_seconds)
