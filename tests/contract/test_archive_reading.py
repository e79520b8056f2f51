"""Trimmed entries are read from the archive, or raise; and what a store of it promises, of every kind."""

import json
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from lanebus import Bounds, Bus, Cursor, DecodeFailure, Lane, Session, Unavailable
from lanebus.archive import ArchiveStore, DirectoryArchive, ObjectArchive, archive_store_at
from lanebus.bounds import ArchiveBounds
from lanebus.bus import media_store_at
from lanebus.bus.errors import CursorTrimmed, DirectoryNotCreated, InvalidArchiveName, MissingExtra, Refused
from lanebus.bus.servers import Argument, Reply
from lanebus.bus.wire import Envelope, Keys
from lanebus.bus.wire.codec import UPCASTERS, MessageJson
from lanebus.errors import MessageTooLarge, SessionErased, SetupError
from lanebus.handlers.context import build_context
from lanebus.projections import TURNS, USAGE, project, rebuild
from tests.support.held import held
from tests.support.log.archived import (
    LANES,
    archiving,
    fill,
    kinds,
    lines,
    names,
    problems,
    seen_until,
    stretches,
    trim,
)
from tests.support.log.said import assert_gap_free, read, said, told, word
from tests.support.servers.object_store import bucket_at
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, shortly

if TYPE_CHECKING:
    from obstore.store import S3Store


@pytest.fixture
async def bus(server: AnyServer, files: Path) -> AsyncGenerator[Bus, None]:
    """A bus with an archive."""
    async with held(archiving(server, files)) as bus:
        yield bus


@pytest.mark.full
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("trimmed", [1, 40, 41, 79, 99, 100])
async def test_a_trimmed_log_reads_as_before(
    session: Session, process: RealServer, files: Path, lanes: str, trimmed: int
) -> None:
    await fill(session, 60)
    process.kill()
    process.start()
    await fill(session, 40)
    await session.archive()
    wanted = LANES[lanes]
    before = [e async for e in session.read(lanes=wanted)]
    trim(process, trimmed)
    assert [e async for e in session.read(lanes=wanted)] == before
    for after in (0, 1, 39, 40, 41, 80, 98, 100):
        for until in (after, after + 1, 40, 41, 100, None):
            found = [e async for e in session.read(lanes=wanted, after=Cursor(after), until=until)]
            end = 100 if until is None else until
            assert found == [e for e in before if after < e.position <= end]
    for envelope in before[::7]:
        assert [e async for e in session.read(lanes=wanted, after=envelope.cursor)] == [
            e for e in before if e.position > envelope.position
        ]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lanes", LANES)
async def test_following_goes_over_the_border(session: Session, server: AnyServer, files: Path, lanes: str) -> None:
    await fill(session, 100)
    await session.archive()
    before = [e async for e in session.read(lanes=LANES[lanes])]
    trim(server, 95)
    seen: list[Envelope] = []
    async with shortly(), aclosing(session.follow(lanes=LANES[lanes])) as following:
        async for envelope in following:
            seen.append(envelope)
            if len(seen) == len(before):
                await session.publish(said("new"), told("new"))
            if envelope.position > 100 and len(seen) == len(before) + len(LANES[lanes]):
                break
    assert seen[: len(before)] == before


async def test_a_disconnected_follower_reads_entries_trimmed_meanwhile(process: RealServer, files: Path) -> None:
    road = process.socket.with_name("road")  # a name of the process's socket that may be taken away
    road.symlink_to(process.socket)
    store = DirectoryArchive(files)
    async with proxy(road) as way, Bus.open(way.url, archive=store) as bus, archiving(process, files) as other:
        await fill(other.session("s"), 10)
        seen: list[int] = []
        async with shortly(), aclosing(bus.session("s").follow()) as following:
            async for envelope in following:
                seen.append(envelope.position)
                if envelope.position == 11:
                    road.unlink()
                    way.cut()
                    await fill(other.session("s"), 20)
                    await other.session("s").archive()
                    await other.session("s").trim(before=30)
                    road.symlink_to(process.socket)
                elif envelope.position == 10:
                    await other.session("s").publish(said("now the hub reads"))
                elif envelope.position == 31:
                    break
        assert seen == list(range(1, 32))


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_a_gap_in_the_archive_of_a_parent_raises_for_the_fork(bus: Bus, server: AnyServer, files: Path) -> None:
    parent = bus.session("s")
    await fill(parent, 20)
    child = await parent.fork(id="child")
    await parent.archive(before=6)
    trim(server, 10)
    with pytest.raises(CursorTrimmed) as caught:
        await read(child)
    assert (caught.value.session, caught.value.cursor, caught.value.first_kept) == ("child", "5-0", 11)


@pytest.mark.full
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lanes", LANES)
async def test_trimming_is_not_noticed_during_a_read(bus: Bus, server: AnyServer, files: Path, lanes: str) -> None:
    for at in (0, 30, 61, 400):
        session = bus.session(f"s{at}")
        await fill(session, 700)
        await session.archive()
        before = [e async for e in session.read(lanes=LANES[lanes])]
        seen: list[Envelope] = []
        async for envelope in session.read(lanes=LANES[lanes]):
            if envelope.position > at and len(seen) % 25 == 0:
                trim(server, min(700, envelope.position + at), session.id)
            seen.append(envelope)
        assert seen == before


@pytest.mark.parametrize("lanes", LANES)
async def test_a_trim_between_the_head_and_the_page_is_not_passed_over(
    one: RealServer, files: Path, lanes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archiving(one, files) as bus, one.bus() as other:
        await fill(bus.session("s"), 10)
        await bus.session("s").archive()
        before = [e async for e in bus.session("s").read(lanes=LANES[lanes])]
        pools = bus.log.pool, other.log.pool
        call_many = pools[0].call_many

        async def interrupted(commands: Sequence[Sequence[Argument]], **more: float) -> list[Reply | Refused]:
            """Read the head of a page, trim, and then read the rest of the page."""
            if len(commands) < 3:
                return await call_many(commands, **more)
            head = await call_many(commands[:1])
            trim(one, 7)
            return head + await call_many(commands[1:])

        for pool in pools:
            monkeypatch.setattr(pool, "call_many", interrupted)
        assert [e async for e in bus.session("s").read(lanes=LANES[lanes])] == before
        one.do("HDEL", Keys().head("s"), "trimmed")
        with pytest.raises(CursorTrimmed):
            _ = [e async for e in other.session("s").read(lanes=LANES[lanes])]


async def test_entries_that_no_archive_has_raise(other: Bus, session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 20)
    await session.archive(before=11)
    trim(server, 15)
    for ask in (session.read, session.follow):
        seen: list[Envelope] = []
        with pytest.raises(CursorTrimmed) as caught:
            await seen_until(ask(), seen)
        assert (caught.value.cursor, caught.value.first_kept) == ("10-0", 16)
        assert_gap_free(seen)
        assert len(seen) == 10
    with pytest.raises(CursorTrimmed) as caught:
        await read(other.session("s"))
    assert (caught.value.cursor, caught.value.first_kept) == ("0-0", 16)
    assert [e.position async for e in session.read(after=Cursor(15))] == [16, 17, 18, 19, 20]


async def test_a_range_trimmed_unarchived_always_raises(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 20)
    await session.archive(before=6)
    trim(server, 10)
    assert stretches((await session.archive(before=16)).segments) == [(11, 15)]
    trim(server, 15)
    with pytest.raises(CursorTrimmed) as caught:
        await read(session)
    assert (caught.value.cursor, caught.value.first_kept) == ("5-0", 11)
    assert [e.position async for e in session.read(after=Cursor(10))] == list(range(11, 21))
    assert await kinds(session) == ["hole"]


async def test_what_is_unreadable_is_archived_as_it_is(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 3)
    lane = Keys().lane("s", Lane.LLM)
    header = "1 1700000000000 somebody"
    server.do("XADD", lane, "2-5", "x", "y")
    server.do("XADD", lane, "3-0", "h", header, "m", '{"role":"extension","kind":"told","data":"BAD"}')
    server.do("XADD", lane, "4-0", "h", header.replace("1", "9", 1), "m", '{"role":"user"}')
    server.do("XADD", lane, "5-0", "h", header, "m", b"\xff\xfe".decode("latin1"))
    server.do("XADD", lane, "6-0", *["z"] * 2_000)
    server.do("HSET", Keys().head("s"), "position", "6")
    before = await read(session)
    assert sum(isinstance(e.message, DecodeFailure) for e in before) == 5
    assert (await session.archive()).entries == len(before)
    trim(server, 6)
    after = await read(session)
    assert [repr(e) for e in after] == [repr(e) for e in before]


async def test_an_old_form_is_archived_as_it_is_and_lifted_as_it_is_read(
    bus: Bus, session: Session, server: AnyServer, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lifted(lane: Lane | None, message: MessageJson) -> MessageJson:
        assert lane is Lane.EXTENSION
        return message | {"data": f"lifted {message['data']}"}

    await session.publish(told("old"))
    await session.archive()
    trim(server, 1)
    monkeypatch.setattr("lanebus.bus.wire.codec.VERSION", 2)
    monkeypatch.setitem(UPCASTERS, 1, lifted)
    assert [word(e) for e in await read(session)] == ["lifted old"]
    (name,) = names(files)
    assert json.loads(str(lines(files, name)[1]["m"]))["data"] == "old"


async def test_views_of_a_log_archived_in_part_are_equal(session: Session, server: AnyServer, files: Path) -> None:
    await fill(session, 700)
    usage, turns = (await rebuild(session, USAGE)).state, (await rebuild(session, TURNS)).state
    context = await build_context(session)
    earlier = await build_context(session, at=350)
    await session.archive()
    trim(server, 650)
    for fold in (rebuild, project):
        assert ((await fold(session, USAGE)).state, (await fold(session, TURNS)).state) == (usage, turns)
    assert await build_context(session) == context
    assert await build_context(session, at=350) == earlier


@pytest.mark.cluster("parent and fork are on different nodes")
@pytest.mark.usefixtures("small")
async def test_a_fork_reads_what_its_parents_have_archived(bus: Bus, server: AnyServer, files: Path) -> None:
    parent = bus.session("s")
    await fill(parent, 100)
    child = await parent.fork(at=70, id="child")
    await fill(child, 50)
    grandchild = await child.fork(at=110, id="grandchild")
    await fill(grandchild, 20)
    forks = (parent, child, grandchild)
    before = [await read(session) for session in forks]
    for session, start, end in zip(forks, (0, 70, 110), (100, 120, 130), strict=True):
        done = await session.archive()
        assert (done.position, done.entries) == (end, end - start)
        trim(server, end - 5, session.id)
        assert await problems(session) == []
    assert [await read(session) for session in forks] == before
    late = await parent.fork(at=30, id="late")
    assert [e.position async for e in late.read()] == list(range(1, 31))


async def test_an_archive_in_an_object_store_is_read_too(shared_valkey: RealServer, s3: "S3Store") -> None:
    async with Bus.open(shared_valkey.url, archive=ObjectArchive(s3)) as bus:
        session = bus.session("Support-42")
        await fill(session, 100)
        before = await read(session)
        await session.archive()
        trim(shared_valkey, 90, session.id)
        assert await read(session) == before
        assert await problems(session) == []


async def test_sessions_that_differ_in_capitals_alone_are_not_mixed(bus: Bus, server: AnyServer, files: Path) -> None:
    for name in ("s", "S"):
        await bus.session(name).publish(said(name))
        await bus.session(name).archive()
        trim(server, 1, name)
    assert [[word(e) for e in await read(bus.session(name))] for name in ("s", "S")] == [["s"], ["S"]]


class CountedArchive(DirectoryArchive):
    """Notes how many segments are read, and how many at the same time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gets = self.now = self.most = 0

    async def get(self, name: str) -> bytes | None:
        self.gets += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await anyio.wait_all_tasks_blocked()
            return await super().get(name)
        finally:
            self.now -= 1


@pytest.mark.parametrize("reads", [1, 2])
async def test_no_more_segments_are_read_at_once_than_their_bound(
    shared_valkey: RealServer, files: Path, reads: int
) -> None:
    store = CountedArchive(files)
    bounds = Bounds(archive=ArchiveBounds(reads=reads))
    async with Bus.open(shared_valkey.url, namespace=f"reads{reads}", archive=store, bounds=bounds) as bus:
        sessions = [bus.session(f"s{number}") for number in range(4)]
        for session in sessions:
            await fill(session, 6)
            await session.archive()
            await session.trim(5, force=True)
        store.most = 0
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(read, session)
    assert store.most == reads


async def test_a_segment_is_read_once_for_reads_that_follow_each_other(shared_valkey: RealServer, files: Path) -> None:
    store = CountedArchive(files)
    async with Bus.open(shared_valkey.url, namespace="kept", archive=store, bounds=_kept(60)) as bus:
        first, second = bus.session("s"), bus.session("other")
        for session in (first, second):
            await fill(session, 6)
            await session.archive()
            await session.trim(5, force=True)
        store.gets = 0
        for position in range(5):
            assert len([each async for each in first.read(after=Cursor(position), until=position + 1)]) == 1
        assert store.gets == 1
        await read(second)
        await read(first)
        assert store.gets == 3  # the last one is kept
        await first.erase()
        with pytest.raises(SessionErased):
            await read(first)


async def test_a_kept_segment_is_dropped_after_its_time(shared_valkey: RealServer, files: Path) -> None:
    store = CountedArchive(files)
    async with Bus.open(shared_valkey.url, namespace="dropped", archive=store, bounds=_kept(0.001)) as bus:
        session = bus.session("s")
        await fill(session, 6)
        await session.archive()
        await session.trim(5, force=True)
        store.gets = 0
        with anyio.fail_after(60):
            while store.gets < 2:
                await read(session)


def _kept(seconds: float) -> Bounds:
    return Bounds(archive=ArchiveBounds(kept_seconds=seconds))


# --- the store, of every kind ----------------------------------------------------------------------------------


@pytest.fixture(params=["directory", "memory", "local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    from obstore.store import LocalStore, MemoryStore, S3Store

    match request.param:
        case "directory":
            return DirectoryArchive(tmp_path / "archive")
        case "memory":
            return ObjectArchive(MemoryStore())
        case "local":
            return ObjectArchive(LocalStore(tmp_path))
        case _:
            s3 = request.getfixturevalue("s3")
            assert isinstance(s3, S3Store)
            return ObjectArchive(s3)


async def test_what_was_put_is_got_back_and_not_overwritten_unless_it_is_cut_off(store: ArchiveStore) -> None:
    name = "ns/=53/1-2-a.jsonl.gz"
    for put, kept in ((b"one", b"one"), (b"one", b"one"), (b"two", b"one"), (b"whole", b"whole")):
        await store.put_if_absent(name, put)
        assert await store.get(name) == kept


async def test_a_folder_has_its_own_names_and_is_cleared_alone(store: ArchiveStore, tmp_path: Path) -> None:
    assert await store.names("ns/s") == []
    for name in ("ns/s/b", "ns/s/a", "ns/s/c", "ns/s2/c", "ns2/s/d", "ns/t/e"):
        await store.put_if_absent(name, b"x")
    assert await store.names("ns/s") == ["ns/s/a", "ns/s/b", "ns/s/c"]
    for _ in range(2):
        await store.delete("ns/s/a")
        assert await store.get("ns/s/a") is None
        assert await store.names("ns/s") == ["ns/s/b", "ns/s/c"]
    for _ in range(2):
        await store.clear("ns/s")
        assert await store.names("ns/s") == []
    await store.clear("ns2/s")
    assert not [*tmp_path.rglob("s")]  # noqa: ASYNC240  a few names
    assert (await store.names("ns/s2"), await store.names("ns/t")) == (["ns/s2/c"], ["ns/t/e"])


async def test_what_is_no_name_makes_no_path(store: ArchiveStore) -> None:
    for name in ("", "/", "/a", "a/", "a//b", "..", "a/../b", ".a", "a/.b", "A", "a b", "a\\b", "a\0"):
        for step in (store.get, store.names, store.delete):
            with pytest.raises(InvalidArchiveName):
                await step(name)
        with pytest.raises(InvalidArchiveName):
            await store.put_if_absent(name, b"x")


async def test_a_file_larger_than_any_segment_is_not_read(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanebus.bus.archive.segment.FILE_LIMIT_BYTES", 10)
    await store.put_if_absent("ns/s/a", b"x" * 11)
    with pytest.raises(MessageTooLarge):
        await store.get("ns/s/a")


async def test_many_may_write_the_same_at_once(store: ArchiveStore) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(store.put_if_absent, "ns/s/a", b"x" * 10_000)
    assert await store.get("ns/s/a") == b"x" * 10_000


async def test_a_directory_is_its_owners_alone(tmp_path: Path) -> None:
    store = DirectoryArchive(tmp_path / "archive")
    await store.put_if_absent("ns/s/a", b"x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "archive").rglob("*")}
    assert modes == {"ns": 0o700, "s": 0o700, "a": 0o600}


async def test_what_a_killed_writer_left_is_no_name(tmp_path: Path) -> None:
    store = DirectoryArchive(tmp_path)
    await store.put_if_absent("ns/s/a", b"x")
    (tmp_path / "ns" / "s" / "a.0123456789abcdef.part").write_bytes(b"x")
    assert await store.names("ns/s") == ["ns/s/a"]


async def test_a_directory_that_cannot_be_made_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = DirectoryArchive(tmp_path / "file")
    with pytest.raises(DirectoryNotCreated, match="choose another directory"):
        await store.put_if_absent("ns/s/a", b"x")
    with pytest.raises(Unavailable):
        await store.get("ns/s/a")


async def test_a_missing_object_store_raises(s3_port: int) -> None:
    with pytest.raises(SetupError, match="archive store"):
        await ObjectArchive(bucket_at(s3_port, "no-such-bucket")).put_if_absent("ns/s/a", b"x")
    with pytest.raises(Unavailable, match="archive store"):
        await ObjectArchive(bucket_at(1, "archive")).get("ns/s/a")


def test_the_location_of_an_archive_is_a_url_or_a_directory(tmp_path: Path) -> None:
    assert isinstance(archive_store_at(str(tmp_path)), DirectoryArchive)
    assert isinstance(archive_store_at("memory:///"), ObjectArchive)


@pytest.mark.parametrize("store_at", [archive_store_at, media_store_at])
@pytest.mark.parametrize(("place", "scheme"), [("ftp://ann:secret@x", "ftp"), ("nothing://x", "nothing"), ("://x", "")])
def test_a_url_with_an_unknown_scheme_is_refused_with_the_known_ones_also_without_the_extra(
    store_at: Callable[[str], object], place: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(SetupError, match=f"store: unknown scheme '{scheme}'") as caught:
        store_at(place)
    assert "begins with one of s3://, " in caught.value.remedy
    assert "secret" not in str(caught.value)
    with pytest.raises(MissingExtra, match="obstore"):
        store_at("s3://bucket")
