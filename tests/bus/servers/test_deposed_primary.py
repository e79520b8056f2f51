"""A primary that Sentinels have deposed, and that still answers: the bus leaves it, and tells what it lost."""

import anyio
import pytest

from lanebus import Bounds
from lanebus.bounds import ConnectionBounds
from lanebus.errors import LogRolledBack
from tests.support.log.following import Subscriber
from tests.support.log.said import said, words
from tests.support.servers.clusters import SERVICE, RealSentinel
from tests.support.servers.real import RealServer, eventually, shortly
from tests.support.servers.resp import Resp

pytestmark = pytest.mark.sentinel("the primary changes while the previous one still answers")

WATCHFUL = Bounds(connection=ConnectionBounds(watch_seconds=0.02, answer_seconds=600.0))
"""No answer is given up, so that only the Sentinel's word ends a connection."""


def other(sentinel: RealSentinel, primary: RealServer) -> tuple[RealServer, int]:
    return next((server, port) for port, server in sentinel.servers.items() if server is not primary)


def forget(sentinel: RealSentinel) -> None:
    """Let the Sentinel forget the service, so that it changes no server's role."""
    sentinel.ask("SENTINEL", "REMOVE", SERVICE)


def name(sentinel: RealSentinel, port: int) -> None:
    """Let the Sentinel name the server at this port as the primary. It does not touch the previous one."""
    sentinel.ask("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", str(port), "1")


async def test_what_a_deposed_primary_acknowledged_is_told_to_publisher_and_follower(sentinel: RealSentinel) -> None:
    primary = sentinel.primary
    replica, port = other(sentinel, primary)
    async with sentinel.bus(bounds=WATCHFUL) as bus, anyio.create_task_group() as tasks, shortly():
        session = bus.session("s")
        await session.publish(said("kept"))
        follower = Subscriber(session).start(tasks)
        assert primary.do("WAIT", "1", "0") == 1
        forget(sentinel)
        replica.do("REPLICAOF", "NO", "ONE")
        await session.publish(said("lost"))
        await eventually(follower.has_taken(2))
        name(sentinel, port)
        await eventually(follower.has_failed)
        assert isinstance(follower.error, LogRolledBack)
        with pytest.raises(LogRolledBack):
            await session.publish(said("told"))
        await session.publish(said("new"))
        assert await words(session) == ["kept", "new"]
        tasks.cancel_scope.cancel()
    assert "role:master" in str(primary.do("INFO", "replication"))


async def test_a_publish_that_a_stopped_primary_does_not_answer_goes_to_the_new_one(sentinel: RealSentinel) -> None:
    primary = sentinel.primary
    replica, port = other(sentinel, primary)
    async with sentinel.bus(bounds=WATCHFUL) as bus, shortly():
        session = bus.session("s")
        await session.publish(said("kept"))
        assert primary.do("WAIT", "1", "0") == 1
        forget(sentinel)
        replica.do("REPLICAOF", "NO", "ONE")
        primary.pause()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.publish, said("sent"))
                name(sentinel, port)
            assert await words(session) == ["kept", "sent"]
        finally:
            primary.resume()


async def test_the_bus_goes_on_while_no_sentinel_answers(sentinel: RealSentinel) -> None:
    async with sentinel.bus(bounds=WATCHFUL) as bus, shortly():
        session = bus.session("s")
        await session.publish(said("before"))
        with Resp(sentinel.port) as say:
            say("ACL", "SETUSER", "default", "resetpass", ">another")  # it refuses all further questions
            say("CLIENT", "KILL", "TYPE", "normal")
            connections = say.info()["total_connections_received"]
            await eventually(lambda: say.info()["total_connections_received"] != connections)  # it asks again
        await session.publish(said("after"))
        assert await words(session) == ["before", "after"]
