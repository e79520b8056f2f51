"""Entries at the end of a log that no trim removed are missing: every reader is told, on every server."""

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from time import time_ns
from typing import cast

import anyio
import pytest

from lanebus import ALL_LANES, Bounds, Bus, Cursor, Envelope, Lane, Session
from lanebus.archive import DirectoryArchive
from lanebus.bounds import HubBounds, LogBounds
from lanebus.bus.wire import Keys
from lanebus.context import WarmContext, build_context
from lanebus.errors import CursorTrimmed, EntriesMissing, HeadMissing
from lanebus.handlers.context import PastContexts
from lanebus.projections import USAGE, project, rebuild
from tests.support.log.said import read, said, told, word, words
from tests.support.servers.real import AnyServer, RealServer, background, blocked, eventually

LLM, EXTENSION = frozenset({Lane.LLM}), frozenset({Lane.EXTENSION})
TOLD = {
    ("last", Lane.LLM, "both"): ("1234", 6),
    ("last", Lane.LLM, "one"): ("13", 6),
    ("last", Lane.EXTENSION, "both"): ("12345", 7),
    ("last", Lane.EXTENSION, "one"): ("24", 7),
    ("all", Lane.LLM, "both"): ("", 2),
    ("all", Lane.LLM, "one"): ("", 6),
    ("all", Lane.EXTENSION, "both"): ("1", 3),
    ("all", Lane.EXTENSION, "one"): ("", 7),
}
"""what `lose` removes, its lane, the lanes that are read → the words before the error, and its first kept position"""


async def fill(session: Session) -> None:
    """Publish the entries 1 to 6, in two milliseconds at least: the odd positions are in the LLM lane."""
    for number in range(1, 7):
        await session.publish((said if number % 2 else told)(str(number)), wake=False)
        if number == 2:  # what was written in one millisecond may be one append, which a torn file has without its head
            await next_millisecond()


async def next_millisecond() -> None:
    now = time_ns() // 1_000_000
    await eventually(lambda: time_ns() // 1_000_000 > now)


def lose(server: AnyServer, what: str, lane: Lane, session: str = "s") -> None:
    """Delete the last entry of a lane of `fill`, or the lane's stream."""
    name = Keys().lane(session, lane)
    if what == "last":
        assert server.do("XDEL", name, "5-0" if lane is Lane.LLM else "6-0") == 1
    else:
        assert server.do("DEL", name) == 1


async def told_by(envelopes: AsyncIterator[Envelope]) -> tuple[list[str], str, int]:
    """Return the words that were read before the error, and the error's cursor and first kept position."""
    seen: list[str] = []

    async def collect() -> None:
        async for envelope in envelopes:
            seen.append(word(envelope))  # noqa: PERF401  the words before the error count

    with pytest.raises(EntriesMissing) as caught:
        await collect()
    return seen, caught.value.cursor, caught.value.first_kept


@pytest.mark.parametrize("page_entries", [1, 500])
@pytest.mark.parametrize("lanes", ["both", "one"])
@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("what", ["last", "all"])
async def test_a_missing_end_is_told(server: AnyServer, what: str, lane: Lane, lanes: str, page_entries: int) -> None:
    seen, first_kept = TOLD[what, lane, lanes]
    async with server.bus(bounds=Bounds(log=LogBounds(page_bytes=100, page_entries=page_entries))) as bus:
        session, wanted = bus.session("s"), ALL_LANES if lanes == "both" else {lane}
        await fill(session)
        lose(server, what, lane)
        for envelopes in (session.read(lanes=wanted), session.follow(lanes=wanted)):
            assert await told_by(envelopes) == ([*seen], f"{seen[-1] if seen else 0}-0", first_kept)
        assert await told_by(session.read(lanes=wanted, until=first_kept - 1)) == await told_by(
            session.read(lanes=wanted)
        )


async def test_a_lost_log_is_told(session: Session, server: AnyServer) -> None:
    await fill(session)
    for lane in Lane:
        lose(server, "all", lane)
    assert await told_by(session.read()) == ([], "0-0", 7)
    assert await told_by(session.read(kinds={"user"})) == ([], "0-0", 7)


@pytest.mark.parametrize("what", ["last", "all"])
async def test_nothing_is_made_of_a_log_whose_end_is_missing(session: Session, server: AnyServer, what: str) -> None:
    await fill(session)
    lose(server, what, Lane.LLM)
    for view in (
        build_context(session),
        build_context(session, at=5),
        build_context(session, at=6),
        WarmContext(session).refresh(),
        PastContexts().at(session),
        PastContexts().at(session, 5),
        project(session, USAGE),
        rebuild(session, USAGE),
    ):
        with pytest.raises(EntriesMissing):
            await view
    if what == "last":
        assert len((await build_context(session, at=3)).messages) == 2


async def test_a_read_up_to_a_position_tells_that_the_lane_ends_before_it(bus: Bus, server: AnyServer) -> None:
    session = bus.session("s")
    await fill(session)
    lose(server, "all", Lane.LLM)
    assert await told_by(session.read(lanes=LLM, until=4)) == ([], "0-0", 6)
    assert [word(envelope) async for envelope in session.read(lanes=EXTENSION)] == ["2", "4", "6"]
    whole = bus.session("whole")
    await fill(whole)
    for until in range(1, 7):
        expected = [str(each) for each in range(1, until + 1) if each % 2]
        assert [word(e) async for e in whole.read(lanes=LLM, until=until)] == expected


async def test_a_lost_lane_is_told_after_later_appends_too(session: Session, server: AnyServer) -> None:
    await fill(session)
    lose(server, "all", Lane.LLM)
    await session.publish(said("7"), told("8"), wake=False)
    await session.publish(said("9"), wake=False)
    assert await told_by(session.read(lanes=LLM)) == ([], "0-0", 6)
    assert [word(envelope) async for envelope in session.read(lanes=LLM, after=Cursor(5))] == ["7", "9"]
    with pytest.raises(EntriesMissing):
        await build_context(session)
    await session.trim(6, force=True)
    head = await session.head()
    assert [word(e) async for e in session.read(lanes=LLM, after=head.cursor_at(head.trimmed))] == ["7", "9"]


async def test_a_lane_that_was_trimmed_to_its_end_is_not_missing(session: Session) -> None:
    await fill(session)
    await session.publish(told("7"), wake=False)
    await session.trim(7)
    head = await session.head()
    assert [word(e) async for e in session.read(lanes=LLM, after=head.cursor_at(6))] == []
    assert await words_after(session, head.cursor_at(6)) == ["7"]
    await session.trim(8)
    assert await words_after(session, (await session.head()).cursor) == []
    await session.publish(said("8"), wake=False)
    after = (await session.head()).cursor_at(7)
    assert [word(e) async for e in session.read(lanes=LLM, after=after)] == ["8"]


async def words_after(session: Session, after: Cursor) -> list[str]:
    return [word(envelope) async for envelope in session.read(after=after)]


async def test_a_head_of_an_older_version_is_compared_with_both_lanes(session: Session, server: AnyServer) -> None:
    await fill(session)
    server.do("HDEL", Keys().head("s"), "last_llm", "last_ext")
    assert await words(session) == ["1", "2", "3", "4", "5", "6"]
    assert [word(e) async for e in session.read(lanes=LLM)] == ["1", "3", "5"]
    lose(server, "last", Lane.EXTENSION)
    assert await told_by(session.read()) == (["1", "2", "3", "4", "5"], "5-0", 7)


@pytest.mark.parametrize("lanes", [ALL_LANES, LLM], ids=["both", "llm"])
@pytest.mark.parametrize("grows", [False, True], ids=["at its end", "grown since"])
async def test_a_fork_tells_that_its_parent_lost_shared_entries(
    bus: Bus, server: AnyServer, grows: bool, lanes: Collection[Lane]
) -> None:
    parent = bus.session("s")
    await fill(parent)
    fork = await parent.fork(id="f")
    if grows:
        await fill(parent)
    await fork.publish(said("7"), wake=False)
    assert [word(e) async for e in fork.read(lanes=LLM)] == ["1", "3", "5", "7"]
    lose(server, "all", Lane.LLM)
    with pytest.raises(EntriesMissing):
        await read_all(fork, lanes)


async def read_all(session: Session, lanes: Collection[Lane]) -> list[Envelope]:
    return [envelope async for envelope in session.read(lanes=lanes)]


@pytest.mark.parametrize("direct_sessions", [32, 0], ids=["direct", "by notices"])
@pytest.mark.parametrize("lanes", [ALL_LANES, LLM], ids=["both", "llm"])
async def test_a_follower_is_told_that_entries_vanished_before_it_read_them(
    shared_valkey: RealServer, lanes: Collection[Lane], direct_sessions: int
) -> None:
    bounds = Bounds(hub=HubBounds(direct_sessions=direct_sessions, block_seconds=0.2))
    seen: list[str] = []
    async with shared_valkey.bus(bounds=bounds) as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("1"))

        async def follow() -> None:
            words, cursor, first_kept = await told_by(session.follow(lanes=lanes))
            seen.extend([*words, cursor, str(first_kept)])

        tasks.start_soon(follow)
        await eventually(lambda: blocked(shared_valkey) > 0)
        shared_valkey.do("HSET", Keys().head("s"), "position", "2", "last_llm", "2")
        await eventually(lambda: seen == ["1", "1-0", "3"])


async def test_appends_and_trims_during_a_read_are_no_missing_end(shared_valkey: RealServer) -> None:
    is_done = False
    bounds = Bounds(log=LogBounds(page_bytes=100, page_entries=2))
    async with (
        shared_valkey.bus(bounds=bounds) as bus,
        shared_valkey.bus() as other,
        anyio.create_task_group() as tasks,
    ):
        session = bus.session("s")

        async def publish() -> None:
            nonlocal is_done
            for number in range(60):
                lanes = (said, told) if number % 3 else (told, said)
                await other.session("s").publish(*(each(str(number)) for each in lanes), wake=False)
                if number % 7 == 6:
                    await other.session("s").trim(number)
            is_done = True

        tasks.start_soon(publish)
        while not is_done:
            for lanes in (ALL_LANES, LLM, EXTENSION):
                head = await session.head()
                try:
                    await read_after(session, lanes, head.cursor_at(head.trimmed))
                except CursorTrimmed as error:
                    assert type(error) is CursorTrimmed  # noqa: PT017  the subclass would be a false alarm


async def read_after(session: Session, lanes: Collection[Lane], after: Cursor) -> None:
    async for _ in session.read(lanes=lanes, after=after):
        pass


async def test_an_archive_is_not_made_of_a_log_whose_end_is_missing(server: AnyServer, tmp_path: Path) -> None:
    async with Bus.open(server.url, archive=DirectoryArchive(tmp_path)) as bus:
        session = bus.session("s")
        await fill(session)
        await session.archive()
        lose(server, "all", Lane.LLM)
        await session.publish(said("7"), wake=False)
        with pytest.raises(EntriesMissing):
            await build_context(session)
        await session.trim(7)  # the archive has what is missing
        assert [word(e) async for e in session.read(lanes=LLM)] == ["1", "3", "5", "7"]
        assert [word(e) for e in await read(session)] == ["1", "2", "3", "4", "5", "6", "7"]
        lose(server, "all", Lane.LLM)
        with pytest.raises(EntriesMissing):
            await session.archive()


async def test_a_missing_head_is_told_and_no_entry_is_touched(bus: Bus, other: Bus, server: AnyServer) -> None:
    await fill(bus.session("s"))
    assert server.do("DEL", Keys().head("s")) == 1
    session = other.session("s")
    for envelopes in (session.read(), session.read(lanes=LLM), session.follow(), session.follow(lanes=EXTENSION)):
        with pytest.raises(HeadMissing):
            await anext(envelopes)
    for call in (session.publish(said("7")), session.publish(told("7")), build_context(session)):
        with pytest.raises(HeadMissing) as caught:
            await call
        assert 1 <= caught.value.last <= 6  # the entries of the first page
    assert [server.do("XLEN", Keys().lane("s", lane)) for lane in Lane] == [3, 3]
    assert server.do("EXISTS", Keys().forged(Keys().bucket("s"))) == 0
    await session.erase()


async def test_a_missing_head_never_looks_like_an_empty_session(bus: Bus, other: Bus, server: AnyServer) -> None:
    await fill(bus.session("s"))
    end = (await bus.session("s").head()).cursor
    server.do("DEL", Keys().head("s"))
    session = other.session("s")
    for call in (
        session.head(),
        anext(session.subscribe()),
        anext(session.subscribe(after=end)),
        session.publish(said("7"), expected=end),
        session.publish(said("7"), expected=Cursor(10)),
        session.hand_over("billing"),
        session.fork(id="f"),
        session.fork(3, id="f"),
        session.trim(2),
    ):
        with pytest.raises(HeadMissing):
            await call
    assert await session.checkpoints() == {}
    await fill(other.session("whole"))
    assert [head.session for head in await other.sessions()] == ["whole"]
    assert [head.session for head in (await other.catalog.newest(10)).heads] == ["whole"]
    await session.erase()
    assert (await session.head()).is_erased
    assert {agent.name: agent.sessions for agent in await other.agents()} == {"agent": 1}


@pytest.mark.parametrize("lane", [*Lane, None])
async def test_the_lane_that_lacks_its_end_is_named_unless_it_is_not_known(
    session: Session, server: AnyServer, lane: Lane | None
) -> None:
    selections: tuple[Collection[Lane], ...] = (ALL_LANES, ALL_LANES)
    error = "after 2-0 up to 3 are missing"
    await fill(session)
    if lane:
        lose(server, "all", lane)
        error, selections = f"of the {lane.value} lane of session", (ALL_LANES, {lane})
    else:
        server.do("XDEL", Keys().lane("s", Lane.LLM), "3-0")
    for lanes in selections:
        for envelopes in (session.read(lanes=lanes), session.follow(lanes=lanes)):
            with pytest.raises(EntriesMissing, match=error) as caught:
                async for _ in envelopes:
                    pass
            assert caught.value.lane == (lane.value if lane else "")


@pytest.mark.parametrize("has_begun", [False, True], ids=["no head", "half of a first append"])
async def test_entries_of_one_publish_without_a_head_are_quarantined(
    bus: Bus, other: Bus, server: AnyServer, has_begun: bool
) -> None:
    await bus.session("s").publish(said("1"), said("2"))
    head = Keys().head("s")
    if has_begun:
        kept = {"run", "incarnation", "incarnations", "created"}  # what an append writes before the rest of the head
        server.do("HDEL", head, *set(cast("list[str]", server.do("HKEYS", head))) - kept)
        assert await words(other.session("s")) == []
    else:
        server.do("DEL", head)
    assert (await other.session("s").publish(said("again"))).position == 1
    assert await words(other.session("s")) == ["again"]
