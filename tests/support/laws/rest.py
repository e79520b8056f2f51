"""Find what a call left behind: a connection in use, a follower, a task, a connection at the server."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar
from unittest.mock import patch

from lanebus.bus.following.hub import Hub
from lanebus.bus.publishing.outbox import Recovery
from lanebus.bus.publishing.publisher import Publisher
from lanebus.bus.servers import Connection
from lanebus.bus.servers.connection import ConnectionPool
from tests.support.servers.real import RealServer

T = TypeVar("T")


class Watch:
    """What a server and this process hold, compared with the start of the watch."""

    def __init__(
        self,
        server: RealServer,
        links: list[Connection],
        pools: list[ConnectionPool],
        hubs: list[Hub],
        writers: list[Publisher | Recovery],
    ) -> None:
        self._server, self._links, self._pools, self._hubs = server, links, pools, hubs
        self._writers = writers
        self._tasks = asyncio.all_tasks()

    @property
    def connections(self) -> int:
        """Return the server's number of connections, without the one that asks."""
        return str(self._server.do("CLIENT", "LIST")).count("id=") - 1

    @property
    def unclaimed(self) -> int:
        """The number of open connections in no pool and of no publisher: those of hubs, and leaked ones.

        Those of publishers and of their recoveries do not count: a server that answers slowly loses them, and they are
        made again with the next publish.
        """
        written = [link for each in self._writers if (link := vars(each)["_connection"]) in self._open]
        return len(self._open) - sum(len(pool.idle) for pool in self._pools) - len(written)

    @property
    def _open(self) -> list[Connection]:
        self._links[:] = [link for link in self._links if not link.is_broken]
        return self._links

    def begin(self) -> None:
        """Take the present tasks as those that belong there."""
        self._tasks = asyncio.all_tasks()

    @property
    def leaks(self) -> list[str]:
        """Return in words what a call has left behind; empty if nothing."""
        found = [f"a link of {pool!r} is in use" for pool in self._pools if pool.borrowed]
        found += [f"a broken link is kept by {pool!r}" for pool in self._pools if any(x.is_broken for x in pool.idle)]
        found += [f"{session} is followed" for hub in self._hubs for session in hub.followed]
        found += [f"{task!r} goes on" for task in asyncio.all_tasks() - self._tasks if not task.done()]
        if (connections := self.connections) != len(self._open):
            found.append(f"the server has {connections} connections, of which {len(self._open)} are links")
        return found


@contextmanager
def watching(server: RealServer) -> Generator[Watch, None, None]:
    """Watch every connection, pool and hub that is created in the block, by any bus."""
    links: list[Connection] = []
    pools: list[ConnectionPool] = []
    hubs: list[Hub] = []
    writers: list[Publisher | Recovery] = []
    with (
        _noting(Connection, links),
        _noting(ConnectionPool, pools),
        _noting(Hub, hubs),
        _noting(Publisher, writers),
        _noting(Recovery, writers),
    ):
        yield Watch(server, links, pools, hubs, writers)


@contextmanager
def _noting(kind: type[T], made: list[T]) -> Generator[None, None, None]:
    """Keep every object of a class that is created in the block."""
    make = kind.__init__

    def noted(self: T, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)
        made.append(self)

    with patch.object(kind, "__init__", noted):
        yield
