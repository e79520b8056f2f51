"""Servers that fall silent, refuse a password or die while a bus opens: every wait ends, and calls name the fault."""

import asyncio
import gc
import socket
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from lanebus import Bounds, Bus, Closed, Cursor, Session, SetupError, Unavailable
from lanebus.bounds import ConnectionBounds, PublishBounds
from lanebus.bus.servers import Argument, Endpoint
from lanebus.errors import LoginRefused, OutcomeUnknown, Refused
from tests.support.log.following import Follower
from tests.support.log.said import said, told, words
from tests.support.servers.clusters import RealCluster
from tests.support.servers.proxy import proxy
from tests.support.servers.real import RealServer, background, eventually, shortly

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
        background() as tasks,
    ):
        await author.session("s").publish(said("a"))
        way.silent_at = at
        follower = Follower(bus.session("s")).start(tasks)
        await eventually(lambda: way.silent_at is None)
        await author.session("s").publish(told("b"))
        await eventually(lambda: follower.words == ["a", "b"])


async def test_opening_a_bus_at_a_silent_server_fails_in_bounded_time(valkey: RealServer) -> None:
    async with proxy(valkey.socket) as way, shortly():
        way.is_dark = True
        with pytest.raises(Unavailable):
            async with Bus.open(way.url, bounds=BOUNDS):
                pass


async def test_callers_that_share_a_write_fail_together(valkey: RealServer) -> None:
    """If they failed one after another, the last would wait 132 times as long."""
    async with proxy(valkey.socket) as way, Bus.open(way.url, bounds=BOUNDS) as bus, shortly():
        way.is_dark = True
        way.silence()
        told_of: list[Unavailable] = []

        async def call() -> None:
            try:
                await bus.session("s", grouped=True).head()
            except Unavailable as error:
                told_of.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(call)
        assert len(told_of) == 200


def secured(server: RealServer) -> str:
    """Create a user with a password; return the URL for it."""
    server.do("ACL", "SETUSER", "app", "on", ">old", "~*", "+@all")
    return f"unix://app:old@{server.socket}"


def rotate(server: RealServer, password: str) -> None:
    """Change the password, and end every connection of its user."""
    server.do("ACL", "SETUSER", "app", "resetpass", f">{password}")
    server.do("CLIENT", "KILL", "USER", "app")


async def refused_publish(session: Session) -> Refused:
    """Publish until the server has refused a publish in time; return the error."""
    with anyio.fail_after(120):
        while True:
            try:
                await session.publish(said("refused"), seconds=0.5)
            except OutcomeUnknown:
                continue
            except Unavailable as error:
                if isinstance(error, Refused):
                    return error
                continue  # a slow machine sent nothing within the time
            raise AssertionError("it was not refused")


async def test_bus_goes_on_when_a_password_that_was_refused_is_right_again(process: RealServer) -> None:
    async with Bus.open(secured(process)) as bus, background() as tasks:
        session, woken = bus.session("s"), anyio.Event()

        async def wait_for_wake_up(after: Cursor) -> None:
            while not woken.is_set():
                with suppress(Unavailable):  # it is waited for only once it has begun
                    await session.wait_for_wake_up(after)
                    woken.set()

        receipt = await session.publish(said("a"))
        follower = Follower(session).start(tasks)
        tasks.start_soon(wait_for_wake_up, receipt.cursor)
        await eventually(lambda: follower.words == ["a"])
        rotate(process, "new")
        error = await refused_publish(session)
        assert isinstance(error, LoginRefused)
        assert error.code == "WRONGPASS"
        with pytest.raises(LoginRefused):
            await session.head()
        rotate(process, "old")
        assert (await session.publish(said("c"), seconds=60)).position == receipt.position + 1
        await eventually(lambda: follower.words == ["a", "c"])
        await eventually(woken.is_set)


async def test_bus_takes_a_rotated_password_from_its_file(process: RealServer, tmp_path: Path) -> None:
    secured(process)
    file = tmp_path / "password"
    file.write_text("old\n")
    async with Bus.open(f"unix://app@{process.socket}?password_file={file}") as bus:
        session = bus.session("s")
        first = await session.publish(said("a"))
        file.write_text("new\n")
        rotate(process, "new")
        assert (await session.publish(said("b"), seconds=60)).position == first.position + 1
        file.unlink()  # as while it is replaced: the password that was read last is used on
        process.do("CLIENT", "KILL", "USER", "app")
        assert (await session.publish(said("c"), seconds=60)).position == first.position + 2


async def test_bus_closes_while_its_password_is_refused(process: RealServer) -> None:
    async with anyio.create_task_group() as tasks:
        async with Bus.open(secured(process)) as bus:
            session = bus.session("s")
            await session.publish(said("a"))
            follower = Follower(session).start(tasks)
            await eventually(lambda: follower.words == ["a"])
            rotate(process, "new")
            assert isinstance(await refused_publish(session), LoginRefused)
        await eventually(lambda: isinstance(follower.error, Closed))


async def test_server_that_begins_to_require_a_password_is_retried(session: Session, process: RealServer) -> None:
    await session.publish(said("a"))
    with process.talk() as say:
        say("CONFIG", "SET", "requirepass", "secret")
        say("AUTH", "secret")
        say("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        error = await refused_publish(session)
        assert isinstance(error, Refused)
        assert error.code in {"NOAUTH", "WRONGPASS"}
        say("CONFIG", "SET", "requirepass", "")
    assert (await session.publish(said("c"), seconds=60)).position == 2
    assert await words(session) == ["a", "c"]


async def test_cluster_whose_password_is_refused_is_waited_for(cluster: RealCluster) -> None:
    for node in cluster.nodes:
        node.do("ACL", "SETUSER", "app", "on", ">old", "~*", "+@all")
    url = cluster.url.replace("://", "://app:old@")
    async with Bus.open(url) as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        for node in cluster.nodes:
            rotate(node, "new")
        assert isinstance(await refused_publish(session), LoginRefused)
        for node in cluster.nodes:
            rotate(node, "old")
        await session.publish(said("c"), seconds=60)
        assert await words(session) == ["a", "c"]


async def test_fault_of_the_bus_itself_leaves_as_one_error(valkey: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_: object) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    monkeypatch.setattr("lanebus.bus.following.hub.Hub.run", run)
    with pytest.raises(ZeroDivisionError):
        async with valkey.bus():
            await anyio.sleep_forever()


async def test_opening_waits_for_a_server_that_dies_meanwhile(process: RealServer) -> None:
    async with proxy(process.socket) as way, shortly():
        way.lose_at = b"HMGET"
        way.on_lost = partial(restart, process)
        async with Bus.open(way.url) as bus:
            assert way.lost == 1
            await bus.session("s").publish(said("a"), seconds=60)


async def test_opening_with_a_wrong_password_or_a_server_that_stays_away_ends(process: RealServer) -> None:
    url = secured(process)
    rotate(process, "new")
    async with shortly():
        with pytest.raises(SetupError):
            async with Bus.open(url):
                pass
    bounds = Bounds(connection=ConnectionBounds(retrying_seconds=0.3))
    async with proxy(process.socket) as way, shortly():
        way.lose_at = b"HMGET"
        way.on_lost = process.kill
        with pytest.raises(Unavailable):
            async with Bus.open(way.url, bounds=bounds):
                pass
        assert way.lost == 1


def restart(server: RealServer) -> None:
    """Kill the server and start it again after 0.3 s, in which several attempts fail."""
    server.kill()
    asyncio.get_running_loop().call_later(0.3, server.start)


@pytest.mark.parametrize("steps", range(8))
def test_proxy_closes_its_connections_at_any_step_of_the_loop(short_dir: Path, steps: int) -> None:
    """A connection left open warns when it is collected, and a warning fails the test."""

    async def connect_and_end() -> None:
        with ExitStack() as clients:
            async with proxy(short_dir / "server") as way:
                way.is_dark = True
                for _ in range(24):
                    client = clients.enter_context(socket.socket(socket.AF_UNIX))
                    client.connect(str(way.socket))
                for _ in range(steps):
                    await asyncio.sleep(0)

    asyncio.run(connect_and_end())
    gc.collect()
