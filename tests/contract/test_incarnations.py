"""A log that lost its end and grew again: every outdated cursor raises, on every server."""

import shutil

import pytest

from lanebus import Bus, Cursor
from lanebus.bus import Incarnation, SessionHead
from lanebus.context import WarmContext
from lanebus.errors import LogRolledBack
from lanebus.handlers.projections import USAGE
from lanebus.projections import project
from tests.support.log.said import read, said, words
from tests.support.servers.real import AnyServer, RealServer


def head(position: int, *incarnations: tuple[str, int]) -> SessionHead:
    return SessionHead(
        "s", position, 0.0, 0.0, 0, 0, 0, is_closed=False, incarnations=tuple(Incarnation(*i) for i in incarnations)
    )


@pytest.mark.parametrize(
    ("cursor", "agreed"),
    [
        (Cursor(0), 0),
        (Cursor(5), 5),
        (Cursor(25), 20),
        (Cursor(10, 0, "a"), 10),
        (Cursor(11, 0, "a"), 10),
        (Cursor(15, 0, "b"), 15),
        (Cursor(20, 3, "b"), 20),
        (Cursor(21, 0, "b"), 20),
        (Cursor(3, 0, "lost"), 0),
    ],
)
def test_a_cursor_is_valid_up_to_the_end_of_its_incarnation(cursor: Cursor, agreed: int) -> None:
    assert head(20, ("a", 0), ("b", 10)).common_position(cursor) == agreed


def test_an_entry_is_of_the_incarnation_that_wrote_it() -> None:
    log = head(20, ("a", 0), ("b", 10))
    assert [log.incarnation_of(position) for position in (0, 1, 10, 11, 20)] == ["", "a", "a", "b", "b"]


async def test_a_restart_begins_another_incarnation_and_keeps_the_cursors(process: RealServer) -> None:
    async with process.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), said("b"))
        before = (await read(session))[-1].cursor
        process.kill()
        process.start()
        await session.publish(said("c"))
        now = await session.head()
        assert [i.start for i in now.incarnations] == [0, 2]
        assert before.incarnation == now.incarnations[0].token != now.incarnations[1].token
        assert now.common_position(before) == 2
        assert [e.cursor.incarnation for e in await read(session)] == [before.incarnation] * 2 + [
            now.incarnations[1].token
        ]
        assert [e.position async for e in session.read(after=before)] == [3]


async def test_a_log_that_lost_its_end_and_grew_again_raises_in_readers_and_projections(process: RealServer) -> None:
    async with process.bus() as bus:
        await bus.session("s").publish(said("a"), said("b"))
    process.kill()
    shutil.copytree(process.directory / "appendonlydir", process.directory / "copy")
    process.start()
    async with process.bus() as bus:
        session = bus.session("s")
        await session.publish(said("c"), said("d"))
        await project(session, USAGE)
        lost, kept = (await session.head()).cursor, (await read(session))[1].cursor
    process.kill()
    shutil.rmtree(process.directory / "appendonlydir")
    (process.directory / "copy").rename(process.directory / "appendonlydir")
    process.start()
    async with process.bus() as bus:
        session = bus.session("s")
        await session.publish(said("C"), said("D"), said("E"))
        for ask in (session.read, session.follow):
            with pytest.raises(LogRolledBack) as caught:
                await anext(ask(after=lost))
            assert caught.value.seen == 4
        assert [e.position async for e in session.read(after=kept)] == [3, 4, 5]
        assert (await project(session, USAGE)).position == 5
        assert await words(session) == ["a", "b", "C", "D", "E"]


async def test_a_projection_of_lost_entries_is_folded_again(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), said("b"))
        await session.save_projection(USAGE.name, USAGE.version, b"{}", cursor=Cursor(2, 0, "lost"), expected=0)
        assert (await project(session, USAGE)).position == 2
        checkpoint = await session.load_projection(USAGE.name, USAGE.version)
        assert checkpoint is not None
        assert checkpoint.cursor == (await session.head()).cursor


@pytest.mark.cluster("smoke test of incarnations")
@pytest.mark.sentinel("smoke test of incarnations")
async def test_a_session_that_vanished_and_came_again_is_another_one(server: AnyServer) -> None:
    async with server.bus() as bus:
        await bus.session("s").publish(said("a"))
        cursor = (await bus.session("s").head()).cursor
    server.do("FLUSHALL")
    async with Bus.open(server.url) as bus:
        await bus.session("s").publish(said("b"), said("c"))
        with pytest.raises(LogRolledBack):
            _ = [e async for e in bus.session("s").read(after=cursor)]


async def test_a_cached_context_of_a_lost_log_raises(server: AnyServer) -> None:
    async with server.bus() as bus:
        await bus.session("s").publish(said("a"))
        warm = WarmContext(bus.session("s"))
        assert len((await warm.refresh()).messages) == 1
        server.do("FLUSHALL")
        async with server.bus() as other:
            await other.session("s").publish(said("b"), said("c"))
        with pytest.raises(LogRolledBack):
            await warm.refresh()
