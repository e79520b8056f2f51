"""Archiving: a chain of segments holds the entries of the log, and a changed segment raises and is never skipped."""

import hashlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import cast

import anyio
import pytest

from lanebus import Bus, Cursor, Envelope, ImageBlock, Lane, MediaRef, Session, TrimRefused, Unavailable, UserMessage
from lanebus.archive import Archived, DirectoryArchive
from lanebus.bus.archive.segment import SegmentName, line_of, sealed
from lanebus.bus.wire import Keys
from lanebus.errors import ArchiveDamaged, CursorTrimmed, LogRolledBack, NoArchive, SessionErased
from lanebus.projections import USAGE, project, rebuild
from tests.support.held import held
from tests.support.log.archived import (
    archive_on,
    archiving,
    fill,
    kinds,
    lines,
    names,
    place,
    problems,
    seen_until,
    stretches,
    trim,
)
from tests.support.log.said import assert_gap_free, read, said, told, word
from tests.support.servers.bounded import bound_archive
from tests.support.servers.real import AnyServer, RealServer, copied


@pytest.fixture
async def bus(server: AnyServer, files: Path) -> AsyncGenerator[Bus, None]:
    """A bus with an archive."""
    async with held(archiving(server, files)) as bus:
        yield bus


@pytest.mark.cluster("smoke test of archiving")
@pytest.mark.sentinel("smoke test of archiving")
@pytest.mark.usefixtures("small")
async def test_segments_hold_what_the_log_holds(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 100)
    done = await session.archive()
    assert (done.session, done.position, done.entries, done.orphans) == ("s", 100, 100, ())
    assert list(done.segments) == names(files)
    assert done.size_bytes == sum(place(files, name).stat().st_size for name in done.segments)
    assert stretches(done.segments) == [(1, 40), (41, 80), (81, 100)]
    assert (await session.head()).archived == 100
    assert await problems(session) == []
    entries = [line for name in done.segments for line in lines(files, name) if "m" in line]
    stored = {
        lane: [
            {"lane": lane.value, "id": entry_id, "h": fields[1], "m": fields[3]}
            for entry_id, fields in _entries(server, lane)
        ]
        for lane in Lane
    }
    assert [line["id"] for line in entries] == [f"{position}-0" for position in range(1, 101)]
    assert {lane: [line for line in entries if line["lane"] == lane] for lane in Lane} == stored


def _entries(server: AnyServer, lane: Lane, session: str = "s") -> list[tuple[str, list[str]]]:
    reply = server.do("XRANGE", Keys().lane(session, lane), "-", "+")
    assert isinstance(reply, list)
    return cast("list[tuple[str, list[str]]]", reply)


async def test_archiving_goes_on_where_it_stood(session: Session, files: Path) -> None:
    await fill(session, 50)
    assert (await session.archive(before=31)).position == 30
    assert (await session.archive(before=31)).segments == ()
    assert (await session.archive(before=10)).position == 30
    assert (await session.archive(before=1_000)).position == 50
    assert await session.archive() == Archived(session="s", position=50)
    assert stretches(names(files)) == [(1, 30), (31, 50)]
    assert await problems(session) == []


async def test_a_segment_is_bounded_by_its_bytes_too(server: AnyServer, files: Path) -> None:
    bound_archive(server, text_bytes=10_000)
    async with archiving(server, files) as bus:
        session = bus.session("s")
        await session.publish(said("x" * 20_000), *[said("y" * 3_000) for _ in range(7)])
        done = await session.archive()
        assert stretches(done.segments) == [(1, 1), (2, 4), (5, 7), (8, 8)]


async def test_archiving_without_an_archive_raises(other: Bus) -> None:
    with pytest.raises(NoArchive):
        await other.session("s").archive()
    with pytest.raises(NoArchive):
        await problems(other.session("s"))


async def test_archiving_raises_at_an_entry_that_was_replaced(session: Session, server: AnyServer, files: Path) -> None:
    await session.publish(said("a"), told("b"), said("c"))
    server.do("XADD", Keys().lane("s", Lane.EXTENSION), "3-5", "x", "forged")
    await session.publish(said("d"))
    server.do("XDEL", Keys().lane("s", Lane.LLM), "3-0")
    with pytest.raises(CursorTrimmed) as caught:
        await session.archive()
    assert (caught.value.cursor, caught.value.first_kept) == ("2-0", 4)


@pytest.mark.full
@pytest.mark.usefixtures("small")
async def test_concurrent_archivers_make_one_chain(bus: Bus, server: AnyServer, files: Path) -> None:
    async with archiving(server, files) as other:
        await fill(bus.session("s"), 400)
        found: list[Archived] = []

        async def archive(from_bus: Bus, before: int) -> None:
            found.append(await from_bus.session("s").archive(before=before))

        async with anyio.create_task_group() as tasks:
            for before in range(30, 401, 37):
                tasks.start_soon(archive, bus, before)
                tasks.start_soon(archive, other, before + 5)
        await bus.session("s").archive()
        assert await problems(bus.session("s")) == []
        orphans = {name for done in found for name in done.orphans}
        async with archive_on(server, files) as kept:
            tip = await kept.tip("s")
            assert tip is not None
            chained = {str(segment.name) async for segment in kept.chain("s", tip)}
        assert chained | orphans == set(names(files))
        assert not chained & orphans
        assert {name for done in found for name in done.segments} <= chained
        trim(server, 400)
        assert_gap_free(await read(bus.session("s")))


async def test_an_overtaken_archiver_reports_the_orphan_that_it_leaves(shared_valkey: RealServer, files: Path) -> None:
    class Overtaken(DirectoryArchive):
        """A store during whose write another process archives."""

        async def put_if_absent(self, name: str, data: bytes) -> None:
            await super().put_if_absent(name, data)
            if "1-10-" in name:
                await other.session("s").archive(before=6)

    async with archiving(shared_valkey, files) as other, Bus.open(shared_valkey.url, archive=Overtaken(files)) as bus:
        await fill(bus.session("s"), 10)
        done = await bus.session("s").archive()
        assert stretches(done.orphans) == [(1, 10)]
        assert stretches(done.segments) == [(6, 10)]
        assert await problems(bus.session("s")) == []
        trim(shared_valkey, 10)
        assert_gap_free(await read(bus.session("s")))


async def test_a_store_that_returns_other_bytes_is_not_trusted(shared_valkey: RealServer, files: Path) -> None:
    class Forgetful(DirectoryArchive):
        async def put_if_absent(self, name: str, data: bytes) -> None:
            await super().put_if_absent(name, data[:-1])

    async with Bus.open(shared_valkey.url, archive=Forgetful(files)) as bus:
        await fill(bus.session("s"), 3)
        with pytest.raises(ArchiveDamaged, match="other bytes"):
            await bus.session("s").archive()
        assert (await bus.session("s").head()).archived == 0


async def test_a_session_that_is_erased_meanwhile_leaves_nothing_behind(shared_valkey: RealServer, files: Path) -> None:
    class Late(DirectoryArchive):
        async def put_if_absent(self, name: str, data: bytes) -> None:
            await super().put_if_absent(name, data)
            shared_valkey.do("DEL", Keys().head("s"))
            shared_valkey.do("HSET", Keys().head("s"), "state", "erased")

    async with Bus.open(shared_valkey.url, archive=Late(files)) as bus:
        await fill(bus.session("s"), 3)
        for _ in range(2):
            with pytest.raises(SessionErased):
                await bus.session("s").archive()
        assert names(files) == []


# --- a log that went back ---------------------------------------------------------------------------------------------


async def test_the_archive_of_a_rolled_back_log_is_rolled_back_too(process: RealServer, files: Path) -> None:
    async with archiving(process, files) as bus:
        await fill(bus.session("s"), 10)
        await bus.session("s").archive()
    with copied(process) as restore:
        async with archiving(process, files) as bus:
            await bus.session("s").publish(*[said("lost")] * 5)
            assert (await bus.session("s").archive()).position == 15
        restore()
    async with archiving(process, files) as bus:
        session = bus.session("s")
        await session.publish(*[said("new")] * 5)
        done = await session.archive()
        assert done.position == 15
        assert len(names(files)) == 3  # what was lost is in one that is in no chain any more
        trim(process, 15)
        assert [word(e) for e in await read(session)][10:] == ["new"] * 5
        assert await problems(session) == []


@pytest.mark.parametrize("incarnations", ["0_other", "0_other 4_another"])
async def test_archiving_a_different_log_raises(
    session: Session, server: AnyServer, files: Path, incarnations: str
) -> None:
    await fill(session, 10)
    await session.archive(before=6)
    server.do("HSET", Keys().head("s"), "incarnations", incarnations)
    trim(server, 5)
    with pytest.raises(LogRolledBack):
        await session.archive()
    with pytest.raises(LogRolledBack):
        await read(session)
    assert await kinds(session) == ["log"]


async def test_a_head_below_its_archive_raises(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 10)
    await session.archive()
    server.do("HSET", Keys().head("s"), "position", "7")
    with pytest.raises(LogRolledBack) as caught:
        await session.archive()
    assert (caught.value.seen, caught.value.found) == (10, 7)


async def test_a_log_rewritten_during_archiving_is_not_chained(shared_valkey: RealServer, files: Path) -> None:
    class Slow(DirectoryArchive):
        async def put_if_absent(self, name: str, data: bytes) -> None:
            await super().put_if_absent(name, data)
            shared_valkey.do("FLUSHALL")
            async with shared_valkey.bus() as other:
                await fill(other.session("s"), 10)

    async with Bus.open(shared_valkey.url, archive=Slow(files)) as bus:
        await fill(bus.session("s"), 10)
        with pytest.raises(LogRolledBack):
            await bus.session("s").archive()
        assert (await bus.session("s").head()).archived == 0
        assert shared_valkey.do("EXISTS", Keys().archive("s")) == 0


# --- stopped in the middle --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
async def test_a_server_that_dies_while_it_is_archived_loses_nothing(process: RealServer, files: Path) -> None:
    class Deadly(DirectoryArchive):
        puts = 0

        async def put_if_absent(self, name: str, data: bytes) -> None:
            await super().put_if_absent(name, data)
            self.puts += 1
            if self.puts == 2:
                process.kill()

    async with Bus.open(process.url, archive=Deadly(files), bounds=process.bounds) as bus:
        session = bus.session("s")
        await fill(session, 120)
        with pytest.raises(Unavailable):
            await session.archive()
        process.start()
        assert (await session.head()).archived == 40
        done = await session.archive()
        assert (done.position, done.orphans) == (120, ())
        assert len(names(files)) == 3
        assert await problems(session) == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("at", range(14))
async def test_archiving_may_be_cancelled_anywhere(shared_valkey: RealServer, files: Path, at: int) -> None:
    class Interrupted(DirectoryArchive):
        steps = 0

        def _step(self) -> None:
            self.steps += 1
            if self.steps == at:
                scope.cancel()

        async def put_if_absent(self, name: str, data: bytes) -> None:
            self._step()
            await super().put_if_absent(name, data)
            self._step()

        async def get(self, name: str) -> bytes | None:
            self._step()
            found = await super().get(name)
            self._step()
            return found

    async with Bus.open(shared_valkey.url, archive=Interrupted(files), bounds=shared_valkey.bounds) as bus:
        session = bus.session("s")
        await fill(session, 120)
        with anyio.CancelScope() as scope:
            await session.archive()
        assert await problems(session) == []
        assert (await session.archive()).position == 120
        assert len(names(files)) == 3
        assert await problems(session) == []


# --- erasing ----------------------------------------------------------------------------------------------------------


async def test_what_is_archived_is_trimmed_past_readers_and_projections(session: Session, files: Path) -> None:
    await fill(session, 100)
    await project(session, USAGE)
    early = (await read(session))[9].cursor
    await session.save_checkpoint("mirror", early)
    before = await read(session)
    await session.archive(before=61)
    with pytest.raises(TrimRefused):
        await session.trim(before=80)
    trimmed = await session.trim(before=61)
    assert (trimmed.entries, trimmed.first_kept) == (60, 61)
    assert await read(session) == before
    assert [e.position async for e in session.read(after=early)] == list(range(11, 101))
    assert (await rebuild(session, USAGE)).position == 100
    await session.archive()
    await session.trim(before=101)
    assert await read(session) == before
    assert await problems(session) == []


async def test_erasing_a_session_erases_its_archive(session: Session, one: RealServer, files: Path) -> None:
    await session.publish(said("canary"), *[told("x")] * 10)
    await session.archive(before=4)
    await session.archive()
    await session.trim(before=9)
    await session.erase(media=True)
    assert names(files) == []
    assert one.do("KEYS", "*:s:s:*") == [Keys().head("s")]
    for ask in (session.archive(), session.read().__anext__()):
        with pytest.raises(SessionErased):
            await ask
    assert await problems(session) == []


async def test_an_erasure_that_would_leave_an_archive_behind_is_refused(bus: Bus, other: Bus, files: Path) -> None:
    await fill(bus.session("s"), 10)
    await bus.session("s").archive()
    with pytest.raises(NoArchive):
        await other.session("s").erase()
    assert len(await read(other.session("s"))) == 10
    await bus.session("s").erase()
    await other.session("s").erase()  # a repeat, of what is gone


async def test_an_erasure_with_another_archive_raises(bus: Bus, server: AnyServer, files: Path, tmp_path: Path) -> None:
    async with archiving(server, tmp_path / "b") as elsewhere:
        session, other = bus.session("s"), elsewhere.session("s")
        await fill(session, 10)
        await session.archive(before=4)
        await session.archive()
        with pytest.raises(ArchiveDamaged, match="another archive"):
            await other.erase()
        assert len(await read(session)) == 10
        place(files, names(files)[0]).unlink()
        await session.erase()  # what is damaged can be erased
        assert names(files) == []
        lost = bus.session("lost")
        await fill(lost, 10)
        await lost.archive()
        await elsewhere.session("lost").erase(force=True)
        assert (await lost.head()).is_erased


@pytest.mark.cluster("the sessions of all nodes are looked through")
async def test_media_that_another_session_names_in_an_archive_are_kept(
    bus: Bus, server: AnyServer, files: Path, tmp_path: Path
) -> None:
    async with server.bus() as without, archiving(server, tmp_path / "b") as elsewhere:
        data = b"\x89PNG\r\n\x1a\n" + bytes(60_000)
        shown, stored = UserMessage.of(ImageBlock(media=MediaRef.from_bytes(data))), hashlib.sha256(data).hexdigest()
        for name in ("s", "t"):
            await bus.session(name).publish(shown, said("x"), told("y"))
        await bus.session("t").archive()
        await bus.session("t").trim(before=4)
        with pytest.raises(NoArchive) as refused:
            await without.session("s").erase(media=True)
        assert refused.value.session == "t"
        assert len(await read(without.session("s"))) == 3
        with pytest.raises(ArchiveDamaged):
            await elsewhere.session("s").erase(media=True)
        await bus.media.get(stored)
        await elsewhere.session("s").erase()
        assert (await bus.session("t").erase(media=True)).media == (stored,)


async def test_a_repeat_of_an_interrupted_erasure_leaves_no_archive(bus: Bus, server: AnyServer, files: Path) -> None:
    class Down(DirectoryArchive):
        async def clear(self, folder: str) -> None:
            raise Unavailable(folder)

    async with server.bus() as without:
        await fill(bus.session("s"), 10)
        await bus.session("s").archive()
        async with Bus.open(server.url, archive=Down(files)) as cut:
            with pytest.raises(Unavailable):
                await cut.session("s").erase()
        with pytest.raises(NoArchive):
            await without.session("s").erase()
        await bus.session("s").erase()
        assert names(files) == []


async def test_erasing_takes_all_segments_of_one_session_alone(bus: Bus, server: AnyServer, files: Path) -> None:
    for name in ("s", "s2"):
        await fill(bus.session(name), 10)
        await bus.session(name).archive(before=6)
        await bus.session(name).archive()
    place(files, f"1-3-{'0' * 64}").write_bytes(b"an orphan")
    async with archive_on(server, files) as archive:
        for _ in range(2):
            await archive.erase("s")
            assert names(files) == []
    assert len(names(files, "s2")) == 2
    trim(server, 10, "s2")
    assert_gap_free(await read(bus.session("s2")))


async def test_erasing_takes_what_killed_archivers_left_and_other_files(
    session: Session, shared_valkey: RealServer, files: Path
) -> None:
    await fill(session, 10)
    await session.archive()
    [segment] = [place(files, name) for name in names(files)]
    segment.with_name(f"{segment.name[:100]}.0123456789abcdef.part").write_bytes(b"half of what was said")
    segment.with_name(".DS_Store").write_bytes(b"a file manager's")
    assert await problems(session) == []
    await session.erase(media=True)
    assert not segment.parent.exists()


async def test_reading_a_session_erased_meanwhile_raises(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 20)
    await session.archive(before=11)
    await session.archive()
    trim(server, 20)
    envelopes = session.read()
    assert (await anext(envelopes)).position == 1
    server.do("HSET", Keys().head("s"), "state", "erased")
    async with archive_on(server, files) as archive:
        await archive.erase("s")
    with pytest.raises(SessionErased):
        await seen_until(envelopes, [])


def _remove(path: Path) -> None:
    path.unlink()


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _other(path: Path) -> None:
    path.write_bytes(next(p for p in path.parent.iterdir() if p != path).read_bytes())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", [_remove, _flip, _cut_off, _empty, _other])
@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_damaged_segment_raises_at_its_beginning(
    session: Session, shared_valkey: RealServer, files: Path, damage: Callable[[Path], None], which: int
) -> None:
    await fill(session, 120)
    await session.archive()
    trim(shared_valkey, 120)
    name = names(files)[which]
    damage(place(files, name))
    for ask in (session.read, session.follow):
        seen: list[Envelope] = []
        with pytest.raises(ArchiveDamaged) as caught:
            await seen_until(ask(), seen)
        assert (caught.value.session, caught.value.segment) == ("s", name)
        assert_gap_free(seen)
        assert len(seen) == which * 40
    found = await problems(session)
    assert [(p.segment, p.kind) for p in found] == [(name, "missing" if damage is _remove else "damaged")]
    assert [e.position async for e in session.read(after=Cursor((which + 1) * 40))] == list(
        range((which + 1) * 40 + 1, 121)
    )
    if which == 2:
        await session.publish(said("more"))
        with pytest.raises(ArchiveDamaged):
            await session.archive()


@pytest.mark.cluster("smoke test of checking an archive")
@pytest.mark.sentinel("smoke test of checking an archive")
@pytest.mark.usefixtures("small")
async def test_all_damage_is_found_in_one_go(session: Session, files: Path) -> None:
    await fill(session, 200)
    await session.archive()
    for which in (1, 3):
        _flip(place(files, names(files)[which]))
    assert [(p.segment, p.kind) for p in await problems(session)] == [
        (names(files)[3], "damaged"),
        (names(files)[1], "damaged"),
    ]


@pytest.mark.usefixtures("small")
async def test_a_segment_outside_of_the_chain_is_not_trusted(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 80)
    await session.archive()
    # The same stretch, well sealed, with another text in it: the server is made to name it.
    async with archive_on(server, files) as archive:
        segment = await archive.segment("s", SegmentName.parse(names(files)[0]))
    forging = [line_of(lane, (i, [f[0], f[1], f[2], f[3].replace(b"1", b"2")])) for lane, (i, f) in segment.entries]
    forged, data = sealed(segment.header, forging)
    place(files, str(forged)).write_bytes(data)
    server.do("ZREM", Keys().archive("s"), str(segment.name))
    server.do("ZADD", Keys().archive("s"), "40", str(forged))
    trim(server, 80)
    with pytest.raises(ArchiveDamaged, match="it follows"):
        await read(session)
    assert set(await kinds(session)) == {"names"}


async def test_what_the_server_names_may_be_anything(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 10)
    await session.archive()
    trim(server, 10)
    server.do("ZADD", Keys().archive("s"), "3", "../../etc/passwd")
    with pytest.raises(ArchiveDamaged):
        await read(session)
    assert await kinds(session) == ["names"]
    server.do("HSET", Keys().head("s"), "archive", "../../etc/passwd")
    assert await kinds(session) == ["names"]
    with pytest.raises(ArchiveDamaged):
        await session.archive()


@pytest.mark.usefixtures("small")
async def test_names_that_the_server_lost_are_found_by_chain(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 160)
    before = await read(session)
    await session.archive()
    trim(server, 160)
    server.do("DEL", Keys().archive("s"))
    assert await read(session) == before
    assert [e.position async for e in session.read(after=Cursor(85))] == list(range(86, 161))
    assert set(await kinds(session)) == {"names"}
    await session.publish(said("more"))
    await session.archive()
    assert await problems(session) == []
    server.do("HSET", Keys().head("s"), "archived", "3")
    assert await kinds(session) == ["names"]
