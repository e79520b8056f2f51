"""Open connections that never answer: every wait is bounded."""

from functools import partial

import anyio
import pytest

from lanebus import Bus, Unavailable
from lanebus.bounds import ConnectionBounds, PublishBounds
from lanebus.bus import Bounds
from lanebus.bus.servers import Argument, Endpoint
from lanebus.bus.servers.connection import ConnectionPool
from lanebus.bus.servers.grouped_pool import GroupedPool
from tests.support.log.said import said, told, word, words
from tests.support.servers.proxy import proxy
from tests.support.servers.real import RealServer, eventually, shortly

SOON = ConnectionBounds(connect_seconds=0.3, answer_seconds=0.3, retrying_seconds=0.3)
BOUNDS = Bounds(connection=SOON, publish=PublishBounds(longest_pause_seconds=0.02))


@pytest.mark.parametrize(
    "command", [("PING",), ("SET", "k", "x" * 4_000_000), ("XREAD", "BLOCK", 50, "STREAMS", "k", "0")]
)
@pytest.mark.parametrize(("requests", "answers"), [(True, False), (False, True), (True, True)])
async def test_connection_breaks_when_no_byte_moves(
    valkey: RealServer, command: tuple[Argument, ...], *, requests: bool, answers: bool
) -> None:
    async with proxy(valkey.socket) as way, shortly():
        connection = await Endpoint(way.url, ConnectionBounds(answer_seconds=0.3)).connect()
        way.hole(requests=requests, answers=answers)
        with pytest.raises(Unavailable, match="no answer within"):
            await connection.call(*command)
        assert connection.is_broken
        await connection.close()


async def test_connection_with_a_blocked_read_waits_as_long_as_the_read_blocks(valkey: RealServer) -> None:
    connection = await Endpoint(valkey.url, ConnectionBounds(answer_seconds=1)).connect()
    assert await connection.call("XREAD", "BLOCK", 1_500, "STREAMS", "nothing", "0") is None
    assert await connection.call("PING") == b"PONG"
    await connection.close()


async def test_connection_with_a_slow_answer_does_not_break_while_bytes_move(valkey: RealServer) -> None:
    async with proxy(valkey.socket) as way:
        connection = await Endpoint(way.url, ConnectionBounds(answer_seconds=2)).connect()
        await connection.call("SET", "k", "x" * 1_000_000)
        way.step = 0.2  # 3 s in all
        reply = await connection.call("GET", "k")
        assert isinstance(reply, bytes)
        assert len(reply) == 1_000_000
        await connection.close()


@pytest.mark.parametrize("at", [b"SCRIPT", b"EVALSHA"])
async def test_publish_replaces_a_connection_that_falls_silent(process: RealServer, at: bytes) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url, bounds=BOUNDS) as bus, shortly():
        way.silent_at = at
        await bus.session("s").publish(said("a"), seconds=60)
        assert way.silent_at is None
        assert await words(bus.session("s")) == ["a"]


async def test_publish_replaces_a_connection_that_accepts_no_bytes(process: RealServer) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url, bounds=BOUNDS) as bus, shortly():
        session = bus.session("s")
        await session.publish(said("a"))
        way.hole(requests=True)
        async with anyio.create_task_group() as tasks:
            for letter in "bcdefghi":
                tasks.start_soon(partial(session.publish, said(letter * 900_000), seconds=60))
        assert [text[0] for text in await words(session)] == list("abcdefghi")


@pytest.mark.parametrize("at", [b"$2\r\nID\r\n", b"XREAD", b"HMGET"])
async def test_follower_replaces_a_connection_that_falls_silent(process: RealServer, at: bytes) -> None:
    async with (
        proxy(process.socket) as way,
        Bus.open(way.url, bounds=BOUNDS) as bus,
        Bus.open(process.url) as author,
        anyio.create_task_group() as tasks,
    ):
        await author.session("s").publish(said("a"))
        seen: list[str] = []

        async def follow() -> None:
            async for envelope in bus.session("s").follow():
                seen.append(word(envelope))  # noqa: PERF401  it has no end

        way.silent_at = at
        tasks.start_soon(follow)
        await eventually(lambda: way.silent_at is None)
        await author.session("s").publish(told("b"))
        await eventually(lambda: seen == ["a", "b"])
        tasks.cancel_scope.cancel()


async def test_opening_a_bus_at_a_silent_server_fails_in_bounded_time(valkey: RealServer) -> None:
    async with proxy(valkey.socket) as way, shortly():
        way.is_dark = True
        with pytest.raises(Unavailable):
            async with Bus.open(way.url, bounds=BOUNDS):
                pass


async def test_callers_that_share_a_write_fail_together(valkey: RealServer) -> None:
    """If they failed one after another, the last would wait 132 times as long."""
    async with proxy(valkey.socket) as way, shortly():
        pool = ConnectionPool(Endpoint(way.url, SOON), bounds=SOON)
        grouped = GroupedPool(pool, SOON)
        way.is_dark = True
        told_of: list[Unavailable] = []

        async def call() -> None:
            try:
                await grouped.call("PING")
            except Unavailable as error:
                told_of.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(call)
        assert len(told_of) == 200
        await grouped.close()
        await pool.close()
