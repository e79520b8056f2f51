"""A changed segment raises and is never skipped, on every server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lanebus import Cursor, Envelope
from lanebus.bus.archive.segment import SegmentName, line_of, sealed
from lanebus.bus.wire import Keys
from lanebus.errors import ArchiveDamaged
from tests.support.log.archived import archive_on, archiving, fill, kinds, names, place, problems, seen_until, trim
from tests.support.log.said import assert_gap_free, read, said
from tests.support.servers.real import AnyServer, RealServer


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
    shared_valkey: RealServer, files: Path, damage: Callable[[Path], None], which: int
) -> None:
    async with archiving(shared_valkey, files) as bus:
        session = bus.session("s")
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
async def test_all_damage_is_found_in_one_go(server: AnyServer, files: Path) -> None:
    async with archiving(server, files) as bus:
        session = bus.session("s")
        await fill(session, 200)
        await session.archive()
        for which in (1, 3):
            _flip(place(files, names(files)[which]))
        assert [(p.segment, p.kind) for p in await problems(session)] == [
            (names(files)[3], "damaged"),
            (names(files)[1], "damaged"),
        ]


@pytest.mark.usefixtures("small")
async def test_a_whole_segment_outside_of_the_chain_is_not_trusted(server: AnyServer, files: Path) -> None:
    async with archiving(server, files) as bus:
        session = bus.session("s")
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


async def test_what_the_server_names_may_be_anything(server: AnyServer, files: Path) -> None:
    async with archiving(server, files) as bus:
        session = bus.session("s")
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
async def test_names_that_the_server_lost_are_found_by_the_chain_and_noted_again(
    server: AnyServer, files: Path
) -> None:
    async with archiving(server, files) as bus:
        session = bus.session("s")
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
