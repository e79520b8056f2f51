"""Checkpoints of readers and projections, stored with the log, on every server."""

import pytest

from lanebus import START, Bus, Cursor, Session
from lanebus.bus.wire import Keys
from lanebus.errors import InvalidName, LogRolledBack
from lanebus.handlers.projections import USAGE
from lanebus.projections import project
from tests.support.log.said import read, said
from tests.support.servers.real import AnyServer, RealServer


@pytest.mark.cluster("smoke test of checkpoints")
@pytest.mark.sentinel("smoke test of checkpoints")
async def test_a_reader_resumes_at_its_checkpoint(other: Bus, session: Session) -> None:
    await session.publish(said("a"), said("b"), said("c"))
    assert await session.load_checkpoint("mirror") is None
    second = (await read(session))[1].cursor
    assert await session.save_checkpoint("mirror", second)
    after = await other.session("s").load_checkpoint("mirror")
    assert after is not None
    assert after == second
    assert after.incarnation
    assert [e.position async for e in session.read(after=after)] == [3]


async def test_an_older_checkpoint_is_refused_unless_forced(session: Session) -> None:
    await session.publish(said("a"), said("b"))
    first, second = (e.cursor for e in await read(session))
    assert await session.save_checkpoint("r", second)
    assert await session.save_checkpoint("r", second)
    assert not await session.save_checkpoint("r", first)
    assert not await session.save_checkpoint("r", Cursor(1))
    assert await session.load_checkpoint("r") == second
    assert await session.save_checkpoint("r", first, rewind=True)
    assert await session.load_checkpoint("r") == first
    assert await session.save_checkpoint("r", first._replace(delta=3))
    assert not await session.save_checkpoint("r", first._replace(delta=2))


async def test_an_older_checkpoint_of_an_earlier_incarnation_is_refused_too(bus: Bus, server: AnyServer) -> None:
    session = bus.session("s")
    await session.publish(said("a"))
    server.do("HSET", Keys().head("s"), "run", "another")  # as if the server had started again
    await session.publish(said("b"))
    first, second = (e.cursor for e in await read(session))
    assert first.incarnation != second.incarnation
    assert await session.save_checkpoint("r", second)
    assert not await session.save_checkpoint("r", first)
    assert await session.load_checkpoint("r") == second


async def test_a_checkpoint_that_the_log_lost_is_refused_and_may_be_replaced(bus: Bus, server: AnyServer) -> None:
    session = bus.session("s")
    await session.publish(said("a"), said("b"))
    first = (await read(session))[0].cursor
    for lost in (Cursor(2, 0, "lost"), Cursor(3), Cursor(3, 0, first.incarnation)):
        with pytest.raises(LogRolledBack) as caught:
            await session.save_checkpoint("r", lost)
        assert caught.value.seen == lost.position
        assert caught.value.found == (0 if lost.incarnation == "lost" else 2)
    # As after a rollback: what was saved is of an incarnation that the log knows nothing of.
    server.do("HSET", Keys().checkpoints("s"), "r:r", "9-0.lost")
    assert await session.save_checkpoint("r", first)
    assert await session.load_checkpoint("r") == first


async def test_all_readers_that_need_entries_are_listed(session: Session, server: AnyServer) -> None:
    assert await session.checkpoints() == {}
    await session.publish(said("a"))
    cursor = (await session.head()).cursor
    await session.save_checkpoint("ui.1", START)
    await session.save_checkpoint("mirror", cursor)
    await project(session, USAGE)
    projection = f"p:{USAGE.name}@{USAGE.version}"
    assert await session.checkpoints() == {"r:mirror": cursor, "r:ui.1": START, projection: Cursor(1)}
    assert await session.drop_checkpoint("ui.1")
    assert not await session.drop_checkpoint("ui.1")
    assert await session.drop_projection(USAGE.name, USAGE.version)
    assert not await session.drop_projection(USAGE.name, USAGE.version)
    assert await session.load_projection(USAGE.name, USAGE.version) is None
    assert await session.checkpoints() == {"r:mirror": cursor}
    server.do("HSET", Keys().checkpoints("s"), "r:broken", "\udcff")
    assert (await session.checkpoints())["r:broken"] == START
    assert await session.load_checkpoint("broken") == START
    assert await session.save_checkpoint("broken", cursor)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a@1", "x" * 65, "é", "a\n"])
async def test_a_name_that_is_none_is_refused(session: Session, name: str, shared_valkey: RealServer) -> None:
    for step in (
        session.save_checkpoint(name, START),
        session.load_checkpoint(name),
        session.drop_checkpoint(name),
    ):
        with pytest.raises(InvalidName) as caught:
            await step
        assert caught.value.name == name
    assert shared_valkey.do("KEYS", "*:s:*") == []
