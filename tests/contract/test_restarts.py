"""Cursors stay valid over any number of restarts, and a log that lost its end raises however late."""

import shutil
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from lanebus import START, Bounds, Bus, Cursor, Delta, Envelope, Lane, Session
from lanebus.archive import DirectoryArchive
from lanebus.bus import LogBounds
from lanebus.bus.embedded.server import find_binary
from lanebus.errors import CursorTrimmed, LogRolledBack
from lanebus.handlers.projections import USAGE
from lanebus.projections import project
from tests.support.log.said import read, said, told, word, words
from tests.support.servers.real import RealServer, real_server
from tests.support.suite.scale import count

KEPT = 3
"""Incarnations that a head lists."""

EXTENSION = frozenset({Lane.EXTENSION})


@pytest.fixture
def restarting() -> Iterator[RealServer]:
    """A server that counts as restarted after a command; its heads list few incarnations."""
    with real_server(find_binary(), "--enable-debug-command", "yes", "--appendfsync", "no") as server:
        server.bounds = Bounds(log=LogBounds(incarnations=KEPT))
        yield server


async def restart(server: RealServer, session: Session, times: int = KEPT + 2) -> None:
    """Publish once after each of several restarts, alternating between the lanes."""
    with server.talk() as say:
        for number in range(times):
            say("DEBUG", "CHANGE-REPL-ID")
            await session.publish(told(f"t{number}") if number % 2 else said(f"s{number}"))


async def behind(session: Session, cursor: Cursor, lanes: frozenset[Lane] = frozenset(Lane)) -> list[Envelope]:
    return [envelope async for envelope in session.read(after=cursor, lanes=lanes)]


@pytest.mark.full
async def test_cursors_stay_good_over_any_number_of_restarts_and_the_head_does_not_grow(restarting: RealServer) -> None:
    lives = count(10_000, least=100)
    async with restarting.bus() as bus:
        session = bus.session("s")
        first = await session.publish(said("a"), told("b"), said("c"), key="mine")
        await project(session, USAGE)
        await session.save_checkpoint("reader", first.cursor)
        await restart(restarting, session, lives)
        head = await session.head()
        assert head.position == 3 + lives
        assert len(head.incarnations) == KEPT
        again = await session.publish(said("a"), told("b"), said("c"), key="mine")
        assert again.is_duplicate
        assert again.cursor == first.cursor
        stored = await session.load_projection(USAGE.name, USAGE.version)
        assert stored is not None
        for cursor in (first.cursor, again.cursor, stored.cursor, await session.load_checkpoint("reader") or START):
            assert cursor.incarnation == first.incarnation
            assert (await behind(session, cursor))[0].position == 4
            async with aclosing(session.follow(after=cursor)) as envelopes:
                assert (await anext(envelopes)).position == 4
        assert await session.save_checkpoint("another", first.cursor)
        entries = await read(session)
        assert len({envelope.incarnation for envelope in entries}) == lives + 1
        for envelope in (*entries[:8], *entries[-8:]):  # each entry's own cursor, in a list of one lane too
            wanted = [each for each in entries[envelope.position :] if each.lane is Lane.EXTENSION]
            assert await behind(session, envelope.cursor, EXTENSION) == wanted


async def test_a_stored_projection_of_a_trimmed_session_is_folded_on(restarting: RealServer) -> None:
    async with restarting.bus() as bus:
        for keep in (4, 6):  # the entry at the projection's checkpoint is there, or was the last to go
            session = bus.session(f"s{keep}")
            await session.publish(*(said("x") for _ in range(5)))
            before = await project(session, USAGE)
            await session.trim(keep)
            await restart(restarting, session)
            assert (await project(session, USAGE)).position == 5 + KEPT + 2
            assert before.position == 5


async def test_a_cursor_of_one_lane_is_good_at_a_position_of_the_other(restarting: RealServer) -> None:
    async with restarting.bus() as bus:
        session = bus.session("s")
        await session.publish(told("a"))
        await restart(restarting, session)
        await session.publish(*(said("x") for _ in range(3)))
        await restart(restarting, session)
        for until in range(1, 10):
            pages = [page async for page in session.pages(lanes=EXTENSION, until=until)]
            cursor = pages[-1].cursor
            assert cursor == (await read(session))[until - 1].cursor
            assert [e.position for e in await behind(session, cursor)] == [*range(until + 1, 15)]


async def test_a_cursor_of_a_live_delta_is_good_after_restarts(restarting: RealServer) -> None:
    async with restarting.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(session.follow(live=True)) as envelopes:
            await anext(envelopes)
            await session.preview(Delta(kind="text", message_id="m", delta="x"))
            seen = (await anext(envelopes)).cursor
        assert seen[:2] == (1, 1)
        await restart(restarting, session)
        async with aclosing(session.follow(after=seen, live=True)) as envelopes:
            assert word(await anext(envelopes)) == "s0"


async def test_cursors_of_what_a_fork_shares_are_good_after_restarts(restarting: RealServer) -> None:
    async with restarting.bus() as bus:
        parent = bus.session("p")
        await restart(restarting, parent)
        middle = await parent.fork(4)
        await restart(restarting, middle)
        child = await middle.fork(7)
        cursors = [envelope.cursor for envelope in await read(child)]
        for session in (parent, middle, child):
            await restart(restarting, session)
        assert [envelope.cursor for envelope in (await read(child))[:7]] == cursors
        for cursor in cursors:
            assert (await behind(child, cursor))[0].position == cursor.position + 1
            with pytest.raises(LogRolledBack):
                await behind(child, cursor._replace(incarnation=f"{cursor.position - 1}_lost"))


async def test_cursors_of_archived_entries_stay_valid_after_restarts_and_others_raise(
    restarting: RealServer, tmp_path: Path
) -> None:
    archive = DirectoryArchive(tmp_path)
    async with Bus.open(restarting.url, archive=archive, bounds=restarting.bounds) as bus:
        session = bus.session("s")
        await restart(restarting, session, 10)
        cursors = [envelope.cursor for envelope in await read(session)]
        await session.archive()
        await session.trim(8)
        await restart(restarting, session)
        for cursor in cursors:
            assert (await behind(session, cursor))[0].position == cursor.position + 1
            with pytest.raises(LogRolledBack):
                await behind(session, cursor._replace(incarnation=f"{cursor.position - 1}_lost"))


async def test_a_cursor_that_nothing_proves_raises_as_trimmed(restarting: RealServer) -> None:
    async with restarting.bus() as bus:
        session = bus.session("s")
        old = (await session.publish(told("a"))).cursor
        await session.publish(*(said("x") for _ in range(5)))
        await restart(restarting, session)
        await session.trim(5)  # of the extension lane only the cursor's own entry was trimmed, and none after it
        with pytest.raises(CursorTrimmed):
            await behind(session, old, EXTENSION)


async def test_a_rollback_names_the_last_common_position_after_any_number_of_restarts(restarting: RealServer) -> None:
    async with restarting.bus() as bus:
        session = bus.session("s")
        await restart(restarting, session)
        await session.publish(said("a"), said("b"))
    restarting.kill()
    shutil.copytree(restarting.directory / "appendonlydir", restarting.directory / "copy")
    restarting.start()
    async with restarting.bus() as bus:
        session = bus.session("s")
        with restarting.talk() as say:
            say("DEBUG", "CHANGE-REPL-ID")
        await session.publish(said("c"), said("d"))
        lost = (await session.head()).cursor
        kept = [envelope.cursor for envelope in await read(session)][:7]
    restarting.kill()
    shutil.rmtree(restarting.directory / "appendonlydir")
    (restarting.directory / "copy").rename(restarting.directory / "appendonlydir")
    restarting.start()
    async with restarting.bus() as bus:
        session = bus.session("s")
        await restart(restarting, session)
        for cursor in kept:
            assert (await behind(session, cursor))[0].position == cursor.position + 1
        beyond = kept[-1]._replace(position=9)  # as if its server had written more before it lost its end
        for cursor, found in ((lost, 0), (beyond, 7)):
            for ask in (session.read, session.follow):
                with pytest.raises(LogRolledBack) as caught:
                    await anext(ask(after=cursor))
                assert (caught.value.seen, caught.value.found) == (9, found)
            with pytest.raises(LogRolledBack):
                await session.save_checkpoint("reader", cursor)
        assert (await words(session))[5:8] == ["a", "b", "s0"]
