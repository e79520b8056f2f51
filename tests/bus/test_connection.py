"""A link is one connection: what ended it is told, and it never becomes another one."""

import anyio
import anyio.lowlevel
import pytest

from bus.connection import Link, LinkPool, Server
from bus.errors import Refused, Unavailable
from tests.servers import RealServer, shortly


async def client_count(link: Link) -> int:
    listed = await link.call("CLIENT", "LIST")
    assert isinstance(listed, bytes)
    return len(listed.splitlines())


async def test_a_closed_link_is_told_and_opens_no_connection(valkey: RealServer) -> None:
    server = Server(valkey.url)
    watching = await server.connect()
    link = await server.connect()
    await link.close()
    async with shortly():
        while await client_count(watching) > 1:  # the server is told of the end by and by
            await anyio.lowlevel.checkpoint()
    with pytest.raises(Unavailable):
        await link.call("PING")
    assert await client_count(watching) == 1
    await watching.close()


async def test_a_link_whose_connection_was_cut_stays_broken(valkey: RealServer) -> None:
    server = Server(valkey.url)
    watching = await server.connect()
    link = await server.connect()
    number = await link.call("CLIENT", "ID")
    assert isinstance(number, int)
    await watching.call("CLIENT", "KILL", "ID", number)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await link.call("PING")
    assert link.is_broken
    assert await client_count(watching) == 1
    await link.close()
    await watching.close()


async def test_a_cancelled_call_breaks_its_link_and_never_answers_the_next_one(valkey: RealServer) -> None:
    link = await Server(valkey.url).connect()
    with anyio.move_on_after(0.05) as scope:
        await link.call("XREAD", "BLOCK", 60_000, "STREAMS", "nothing", "0")
    assert scope.cancelled_caught
    assert link.is_broken
    with pytest.raises(Unavailable):
        await link.call("PING")
    await link.close()


async def test_a_pool_goes_on_after_its_idle_links_died(valkey: RealServer) -> None:
    pool = LinkPool(Server(valkey.url))
    assert await pool.call("PING") == b"PONG"
    valkey.kill()
    valkey.start()
    assert await pool.call("PING") == b"PONG"
    await pool.close()


async def test_a_link_that_had_its_answer_before_the_others_died_is_not_used_again(valkey: RealServer) -> None:
    pool = LinkPool(Server(valkey.url))
    async with pool.link() as link:
        assert await link.call("PING") == b"PONG"
        valkey.kill()
        valkey.start()
        await pool.drop_idle()  # as another call does, which found its own link dead
    assert pool.idle == ()
    assert await pool.call("PING") == b"PONG"
    await pool.close()


async def test_what_the_server_refuses_is_named_by_its_first_word_and_quotes_nothing(valkey: RealServer) -> None:
    link = await Server(valkey.url).connect()
    await link.call("SET", "text", "a secret")
    replies = await link.call_many([("XADD", "text", "*", "a secret", "b"), ("PING",), ("NOTHING", "a secret")])
    first, second, third = replies
    assert isinstance(first, Refused)
    assert first.code == "WRONGTYPE"
    assert second == b"PONG"
    assert isinstance(third, Refused)
    assert "secret" not in f"{first} {third}"
    await link.close()
