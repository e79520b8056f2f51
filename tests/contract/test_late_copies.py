"""A delayed request reaches the server after its caller has given up."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from lanebus import Bus, Session
from lanebus.bounds import ConnectionBounds, PublishBounds
from lanebus.bus import Bounds
from lanebus.errors import OutcomeUnknown
from tests.support.log.said import assert_gap_free, read, said, told, word, words
from tests.support.servers.proxy import Proxy, proxy
from tests.support.servers.real import RealServer, eventually

SOON = Bounds(connection=ConnectionBounds(answer_seconds=0.3), publish=PublishBounds(longest_pause_seconds=0.02))
"""An answer that is late is given up soon."""

REFUSALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "OOM": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    "NOREPLICAS": (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
    "READONLY": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    "NOPERM": (("ACL", "SETUSER", "default", "-evalsha", "-eval"), ("ACL", "SETUSER", "default", "+evalsha", "+eval")),
}
"""code → what makes the server refuse with it, and what ends that"""


@asynccontextmanager
async def delayed(server: RealServer, name: str = "s") -> AsyncGenerator[tuple[Bus, Proxy], None]:
    """Yield a bus that has published "a" to a session; its connections are delayed from then on."""
    async with proxy(server.socket) as way, Bus.open(way.url, bounds=SOON) as bus:
        await bus.session(name).publish(said("a"))
        way.delay()
        yield bus, way


def refusing_from_the_next_script(server: RealServer, command: tuple[str, ...]) -> Callable[[], object]:
    """Return a function that makes the server refuse writes, to call once a request is held back."""
    return partial(server.do, *command)


async def is_told_unknown(session: Session, text: str, seconds: float) -> bool:
    """Publish; return whether that raises OutcomeUnknown."""
    try:
        await session.publish(said(text), seconds=seconds)
    except OutcomeUnknown:
        return True
    except Exception as error:  # anything else would be a claim that it is not in the log
        raise AssertionError(f"told {error!r}") from error
    return False


@pytest.mark.parametrize("code", ["NOREPLICAS", "READONLY", "NOPERM"])
async def test_publish_refused_after_an_unanswered_send_is_unknown_until_it_is_settled(
    process: RealServer, code: str
) -> None:
    refuse, allow = REFUSALS[code]
    async with delayed(process) as (bus, way):
        session = bus.session("s")
        way.on_delayed = refusing_from_the_next_script(process, refuse)
        assert await is_told_unknown(session, "b", 2.0)
        process.do(*allow)
        await way.deliver()  # before or after the number was taken: it is one of both, and "c" is not mistaken for it
        receipt = await session.publish(said("c"), seconds=20)
        assert word((await read(session))[receipt.position - 1]) == "c"
        assert await words(session) in (["a", "c"], ["a", "b", "c"])
        assert_gap_free(await read(session))


async def test_settled_publish_is_never_appended_however_late_its_copy(process: RealServer) -> None:
    refuse, allow = REFUSALS["NOREPLICAS"]
    async with delayed(process) as (bus, way):
        session = bus.session("s")
        way.on_delayed = refusing_from_the_next_script(process, refuse)
        assert await is_told_unknown(session, "b", 2.0)
        process.do(*allow)
        assert (await session.publish(said("c"), seconds=20)).positions == (2,)
        assert way.delayed_bytes > 0
        await way.deliver()
        assert (await session.publish(said("d"))).positions == (3,)
        assert await words(session) == ["a", "c", "d"]


@pytest.mark.full
async def test_publish_that_is_refused_for_lack_of_memory_is_settled_and_known(process: RealServer) -> None:
    """Settling needs no memory, so a caller that waits long enough learns that nothing was appended."""
    refuse, allow = REFUSALS["OOM"]
    for seconds in (4.0, 16.0, 64.0):  # what is long enough depends on the machine; a publish waits for all of it
        name = f"s{seconds:g}"
        async with delayed(process, name) as (bus, way):
            session = bus.session(name)
            way.on_delayed = refusing_from_the_next_script(process, refuse)
            with pytest.raises(Exception, match=r"OOM|unknown") as caught:
                await session.publish(said("b"), seconds=seconds)
            process.do(*allow)
            await way.deliver()
            if isinstance(caught.value, OutcomeUnknown):
                continue
            assert (await session.publish(said("c"), seconds=20)).positions == (2,)
            await way.deliver()
            assert await words(session) == ["a", "c"]
            return
    pytest.fail("the outcome stayed unknown")


async def test_publish_whose_late_copy_comes_first_is_acknowledged_as_that(process: RealServer) -> None:
    refuse, allow = REFUSALS["NOREPLICAS"]
    async with delayed(process) as (bus, way), anyio.create_task_group() as tasks:
        session, places = bus.session("s"), list[int]()

        async def publish() -> None:
            places.extend((await session.publish(said("b"), told("c"), seconds=60)).positions)

        way.on_delayed = refusing_from_the_next_script(process, refuse)
        tasks.start_soon(publish)
        await eventually(lambda: process.do("CONFIG", "GET", "min-replicas-to-write") == ["min-replicas-to-write", "1"])
        process.do(*allow)
        await way.deliver()
        await eventually(lambda: places != [])
        assert places == [2, 3]
        assert await words(session) == ["a", "b", "c"]


async def test_publishes_after_an_unsettled_one_keep_their_order(process: RealServer) -> None:
    refuse, allow = REFUSALS["NOPERM"]
    async with delayed(process) as (bus, way), anyio.create_task_group() as tasks:
        session, places = bus.session("s"), dict[str, int]()

        async def publish(text: str) -> None:
            places[text] = (await session.publish(said(text), seconds=60)).position

        way.on_delayed = refusing_from_the_next_script(process, refuse)
        for text in "bcdef":
            tasks.start_soon(publish, text)
            await anyio.lowlevel.checkpoint()
        await eventually(lambda: way.delayed_bytes > 0)
        for text in "ghi":
            tasks.start_soon(publish, text)
            await anyio.lowlevel.checkpoint()
        process.do(*allow)
        await eventually(lambda: len(places) == 8)
        await way.deliver()
        assert await words(session) == list("abcdefghi")
        assert places == {text: at for at, text in enumerate("bcdefghi", 2)}


async def test_session_that_cannot_be_settled_does_not_hold_up_others(process: RealServer) -> None:
    async with delayed(process) as (bus, way):
        session = bus.session("s")

        def forbid() -> None:
            of_all = (f"~*:{name}" for name in ("config", "sessions", "index", "order:*", "woken", "wakeups"))
            process.do("ACL", "SETUSER", "default", "resetkeys", "~*:s:t:*", *of_all)

        way.on_delayed = forbid
        assert await is_told_unknown(session, "b", 1.0)
        for text in "xyz":
            await bus.session("t").publish(said(text), seconds=20)
        process.do("ACL", "SETUSER", "default", "~*")
        assert (await session.publish(said("c"), seconds=20)).positions == (2,)
        await way.deliver()
        assert await words(session) == ["a", "c"]
