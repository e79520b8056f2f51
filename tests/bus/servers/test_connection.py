"""A broken connection raises the reason and never reconnects."""

import socket

import anyio
import anyio.lowlevel
import pytest

from lanebus import Bus, SetupError
from lanebus.bounds import ConnectionBounds
from lanebus.bus.errors import Redirected, Refused, Unavailable
from lanebus.bus.servers import Argument, Connection, Endpoint
from lanebus.bus.servers.connection import ConnectionPool
from lanebus.bus.servers.topology import Cluster, key_of, slot_of
from tests.support.log.said import said, words
from tests.support.servers.clusters import SERVICE, RealCluster, RealSentinel
from tests.support.servers.real import RealServer, blocked, eventually, shortly


async def client_count(connection: Connection) -> int:
    listed = await connection.call("CLIENT", "LIST")
    assert isinstance(listed, bytes)
    return len(listed.splitlines())


@pytest.mark.parametrize("closed_by", ["client", "server"])
async def test_a_closed_connection_raises_and_does_not_reconnect(shared_valkey: RealServer, closed_by: str) -> None:
    server = Endpoint(shared_valkey.url)
    watching, connection = await server.connect(), await server.connect()
    number = await connection.call("CLIENT", "ID")
    assert isinstance(number, int)
    if closed_by == "client":
        await connection.close()
    else:
        await watching.call("CLIENT", "KILL", "ID", number)
    async with shortly():
        while await client_count(watching) > 1:  # the server notices the end a little later
            await anyio.lowlevel.checkpoint()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await connection.call("PING")
    assert connection.is_broken
    assert await client_count(watching) == 1
    await connection.close()
    await watching.close()


async def test_a_cancelled_call_breaks_its_connection_and_never_answers_the_next_call(
    shared_valkey: RealServer,
) -> None:
    connection = await Endpoint(shared_valkey.url).connect()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.call, "XREAD", "BLOCK", 60_000, "STREAMS", "nothing", "0")
        await eventually(lambda: blocked(shared_valkey) == 1)
        tasks.cancel_scope.cancel()
    assert connection.is_broken
    with pytest.raises(Unavailable):
        await connection.call("PING")
    await connection.close()


async def test_a_pool_replaces_idle_connections_that_died(valkey: RealServer) -> None:
    pool = ConnectionPool(Endpoint(valkey.url))
    assert await pool.call("PING") == b"PONG"
    valkey.kill()
    valkey.start()
    assert await pool.call("PING") == b"PONG"
    await pool.close()


async def test_a_connection_in_use_while_the_idle_ones_are_dropped_is_not_reused(valkey: RealServer) -> None:
    pool = ConnectionPool(Endpoint(valkey.url))
    async with pool._borrow() as connection:  # pyright: ignore[reportPrivateUsage]  # in use while the others are dropped
        assert await connection.call("PING") == b"PONG"
        valkey.kill()
        valkey.start()
        await pool.drop_idle()  # as another call does that found its own connection dead
    assert pool.idle == ()
    assert await pool.call("PING") == b"PONG"
    await pool.close()


async def test_a_refusal_keeps_the_first_word_and_quotes_no_arguments(shared_valkey: RealServer) -> None:
    connection = await Endpoint(shared_valkey.url).connect()
    await connection.call("SET", "text", "a secret")
    replies = await connection.call_many([("XADD", "text", "*", "a secret", "b"), ("PING",), ("NOTHING", "a secret")])
    first, second, third = replies
    assert isinstance(first, Refused)
    assert first.code == "WRONGTYPE"
    assert second == b"PONG"
    assert isinstance(third, Refused)
    assert "secret" not in f"{first} {third}"
    await connection.close()


# --- where servers are --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "slot"),
    [("123456789", 12739), ("a{123456789}b", 12739), ("{}123", slot_of("{}123")), ("a{123456789}{x}", 12739)],
)
def test_the_slot_of_a_key_agrees_with_the_specification(key: str, slot: int) -> None:
    assert slot_of(key) == slot


def test_the_slot_of_a_key_agrees_with_the_server(shared_valkey: RealServer) -> None:
    with shared_valkey.talk() as say:
        for key in ("a", "{}x", "x{y}z", "lanebus:{7}:s:s:head", "lanebus:media:00", "{a", "a}", "é{ü}"):
            assert slot_of(key) == say.integer("CLUSTER", "KEYSLOT", key)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("HMGET", "k", "a"), "k"),
        (("EVALSHA", "digest", 2, "k", "l", "x"), "k"),
        (("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "k", ">"), "k"),
        (("XGROUP", "CREATE", "k", "g", "0"), "k"),
        (("CLIENT", "UNBLOCK", 7), ""),
    ],
)
def test_the_key_of_a_command_is_found(command: tuple[Argument, ...], key: str) -> None:
    assert key_of(command) == key


async def test_a_plain_url_of_a_cluster_server_is_refused(cluster: RealCluster) -> None:
    with pytest.raises(SetupError, match="redis\\+cluster"):
        async with Bus.open(cluster.nodes[0].url):
            pass


async def test_a_cluster_url_of_a_single_server_is_refused(sentinel: RealSentinel) -> None:
    with pytest.raises(SetupError, match="is not in a cluster"):
        async with Bus.open(f"redis+cluster://127.0.0.1:{sentinel.primary_port}"):
            pass


async def test_a_cluster_opens_while_one_of_its_seeds_is_down(cluster: RealCluster) -> None:
    async with Bus.open(f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.ports[2]}") as bus:
        for name in ("a", "b", "c", "d"):
            assert (await bus.session(name).publish(said("x"))).position == 1
        assert {head.session for head in await bus.sessions()} == {"a", "b", "c", "d"}
    with pytest.raises(Unavailable):
        async with Bus.open("redis+cluster://127.0.0.1:1,127.0.0.1:2"):
            pass


async def test_a_server_that_does_not_know_its_address_keeps_the_host_of_the_url(cluster: RealCluster) -> None:
    for node in cluster.nodes:
        node.do("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint")
    own = Cluster([Endpoint(f"redis://localhost:{port}") for port in cluster.ports])
    assert {server.host for server in await own.primaries()} == {"localhost"}
    connection = await Endpoint(f"redis://localhost:{cluster.ports[0]}").connect()
    (moved,) = await connection.call_many([("GET", "123456789")])
    assert isinstance(moved, Redirected)
    assert (moved.slot, moved.host, moved.port) == (12739, "", cluster.ports[2])
    await connection.close()


async def test_connections_of_one_slot_break_together(cluster: RealCluster) -> None:
    own = Cluster([Endpoint(f"redis://127.0.0.1:{cluster.ports[0]}")])
    one, same = own.route("k"), own.route("k")
    first, second, other = await one.connect(), await same.connect(), await own.route("other").connect()
    first.note_redirect(Refused("READONLY"))
    assert (first.is_broken, second.is_broken, other.is_broken) == (True, True, False)
    for connection in (first, second, other, again := await one.connect()):
        await connection.close()
    assert again is not first


async def test_a_service_that_no_sentinel_knows_raises_a_setup_error(sentinel: RealSentinel) -> None:
    with pytest.raises(SetupError, match="no service 'other'"):
        async with Bus.open(f"redis+sentinel://127.0.0.1:{sentinel.port}/other"):
            pass
    with pytest.raises(Unavailable, match="no Sentinel of 2"):  # the one that is down might know it
        async with Bus.open(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/other"):
            pass
    async with Bus.open(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/{SERVICE}?db=3") as bus:
        await bus.session("s").publish(said("x"))
        assert await words(bus.session("s")) == ["x"]


async def test_a_replica_that_sentinels_name_as_primary_is_refused(sentinel: RealSentinel) -> None:
    (replica,) = sentinel.servers.keys() - {sentinel.primary_port}
    sentinel.ask("SENTINEL", "MONITOR", "other", "127.0.0.1", str(replica), "1")
    with pytest.raises(Unavailable, match="not a primary yet"):
        async with Bus.open(f"redis+sentinel://127.0.0.1:{sentinel.port}/other"):
            pass


async def test_sentinels_get_their_own_password(sentinel: RealSentinel) -> None:
    sentinel.ask("ACL", "SETUSER", "default", ">own", "resetpass", ">own")
    with pytest.raises(SetupError, match="Sentinel refused"):
        async with sentinel.bus():
            pass
    async with Bus.open(f"{sentinel.url}?sentinel_password=own") as bus:
        await bus.session("s").publish(said("x"))


async def test_the_kernel_detects_a_dead_tcp_connection_too(cluster: RealCluster) -> None:
    connection = await Endpoint(f"redis://127.0.0.1:{cluster.ports[0]}", ConnectionBounds(answer_seconds=7)).connect()
    connected = connection.socket
    assert connected is not None
    assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7_000
    if hasattr(socket, "TCP_KEEPIDLE"):
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    await connection.close()
