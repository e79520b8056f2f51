"""Verification of entries outside of a session's lanes: archived ones, shared ones of forks, and erased sessions."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest

from lanebus import Bus, Lane, Session
from lanebus.archive import DirectoryArchive
from lanebus.bus.wire import Keys
from lanebus.handlers.projections import USAGE
from lanebus.handlers.verify import Report, verify_all, verify_session
from lanebus.projections import project
from tests.support.log.said import said, told
from tests.support.log.stored import header
from tests.support.servers.real import AnyServer, RealServer, Talk

KEYS = Keys()
SHARED = 4
"""the last position that the fork `f` shares with `s`"""


async def make_archived(server: AnyServer, path: Path) -> None:
    """Session `s`: nine entries in three segments, the first seven trimmed away."""
    async with archived_bus(server, path) as bus:
        session = bus.session("s")
        for _ in range(3):
            await session.publish(said("a"), told("b"), said("c"))
            await session.archive()
        await project(session, USAGE)
        await session.trim(8)


def segments(path: Path) -> list[Path]:
    """The files of the archive, in the order of their positions."""
    return sorted(path.rglob("*.jsonl.gz"), key=lambda file: int(file.name.partition("-")[0]))


async def found(bus: Bus, session: str) -> Report:
    report = await verify_session(bus, session)
    assert report is not None
    return report


def kinds(report: Report) -> list[tuple[str, int]]:
    return [(problem.kind, problem.position) for problem in report.problems]


# --- the archive --------------------------------------------------------------------------------------------------


async def test_trimmed_entries_are_verified_in_the_archive(server: AnyServer, tmp_path: Path) -> None:
    await make_archived(server, tmp_path)
    async with archived_bus(server, tmp_path) as bus:
        assert [report.problems for report in [each async for each in verify_all(bus)]] == [(), ()]
        assert (await found(bus, "s"))._replace(problems=()) == Report("s", 9, ())
    async with server.bus() as bus:
        report = await found(bus, "s")
        assert (report.entries, report.problems) == (2, ())
        assert "no archive was given" in report.notes[0]


def archived_bus(server: AnyServer, path: Path) -> AbstractAsyncContextManager[Bus]:
    return Bus.open(server.url, archive=DirectoryArchive(path))


def cut(path: Path) -> None:
    file = segments(path)[1]
    file.write_bytes(file.read_bytes()[:-5])


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a segment is missing": (lambda path: segments(path)[0].unlink(), "missing"),
    "a segment is cut": (cut, "damaged"),
    "the last segment is missing": (lambda path: segments(path)[2].unlink(), "missing"),
    "a segment is missing in the server's index": (lambda _: None, ""),
}


@pytest.mark.parametrize("what", DAMAGED)
async def test_a_damaged_archive_is_reported_and_nothing_else(valkey: RealServer, tmp_path: Path, what: str) -> None:
    damage, word = DAMAGED[what]
    await make_archived(valkey, tmp_path)
    damage(tmp_path)
    if not word:
        valkey.do("ZREMRANGEBYRANK", KEYS.archive("s"), "0", "0")
    async with archived_bus(valkey, tmp_path) as bus:
        report = await found(bus, "s")
    assert kinds(report) == [("archive", 0)]
    assert report.problems[0].text.startswith(word)


async def test_an_undecodable_entry_in_the_archive_is_reported(valkey: RealServer, tmp_path: Path) -> None:
    async with archived_bus(valkey, tmp_path) as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        with valkey.talk() as say:
            token = str(say("HGET", KEYS.head("s"), "incarnation"))
            say("MULTI")
            say("XADD", KEYS.lane("s", Lane.LLM), "2-0", "h", header(Lane.LLM, "BAD", token=token), "m", "BAD")
            say("HSET", KEYS.head("s"), "position", "2")
            say("HINCRBY", KEYS.head("s"), "bytes", "3")
            say("EXEC")
        await session.publish(said("c"))
        await session.archive()
        await session.trim(3)
        report = await found(bus, "s")
    assert (kinds(report), report.entries) == ([("unreadable", 2)], 3)
    assert "BAD" in report.problems[0].text


async def test_an_archive_that_began_late_begins_there(valkey: RealServer, tmp_path: Path) -> None:
    async with archived_bus(valkey, tmp_path) as bus:
        session = bus.session("s")
        await session.publish(*[said("a")] * 6)
        await session.trim(3)
        await session.archive()
        await session.trim(5)
        report = await found(bus, "s")
    assert (report.entries, report.problems) == (4, ())
    assert report.notes[0].startswith("it begins at 3")


@pytest.mark.full
async def test_verify_finds_nothing_wrong_with_a_log_that_is_trimmed_meanwhile(
    valkey: RealServer, tmp_path: Path
) -> None:
    trims = disturbed = 0
    is_kept_short = False

    async def keep_short(session: Session) -> None:
        # So few, as each look reads all that was archived before.
        for _ in range(20):
            receipt = await session.publish(*[said("a")] * 20, *[told("b")] * 20)
            await session.archive()
            await session.trim(receipt.position - 10)
            nonlocal trims
            trims += 1
        nonlocal is_kept_short
        is_kept_short = True

    async with archived_bus(valkey, tmp_path) as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        await session.publish(said("first"))
        tasks.start_soon(keep_short, session)
        while not is_kept_short:  # one look follows the other, so that trims fall into looks at any speed
            before = trims
            report = await found(bus, "s")
            assert report.problems == ()
            disturbed += trims > before
    assert disturbed, "it was trimmed while it was looked at"


# --- forks --------------------------------------------------------------------------------------------------------


async def make_fork(server: AnyServer) -> None:
    """Session `s` with six entries, and its fork `f`, which shares four of them and has two of its own."""
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), told("b"), said("c"), told("d"), said("e"), told("f"))
        fork = await session.fork(SHARED, id="f")
        await fork.publish(said("mine"), told("mine"))
        await (await fork.fork(id="g")).publish(said("its own"))
        for name in "sfg":
            await project(bus.session(name), USAGE)


@pytest.mark.cluster("a fork and its parent are in different slots")
async def test_forks_of_forks_are_whole_and_one_that_shares_nothing_needs_no_parent(server: AnyServer) -> None:
    await make_fork(server)
    async with server.bus() as bus:
        for parent in ("nothing", "erased"):
            await bus.session("erased").publish(said("a"))
            await (await bus.session(parent).fork(0, id=f"of-{parent}")).publish(said("b"))
        await bus.session("erased").erase(force=True)
        await bus.session("s").fork(0, id="empty")
        reports = {report.session: report async for report in verify_all(bus)}
    entries = {name: report.entries for name, report in reports.items()}
    assert entries == {"s": 6, "f": 2, "g": 1, "empty": 0, "of-nothing": 1, "of-erased": 1, "": 0}
    assert [report for report in reports.values() if report.problems or report.notes] == []


def commands(*lines: str) -> Callable[[Talk], object]:
    return lambda say: [say(*line.split()) for line in lines]


LOST: dict[str, tuple[Callable[[Talk], object], str, list[tuple[str, int]]]] = {
    "the parent does not keep what is shared": (commands(f"HDEL {KEYS.checkpoints('s')} f:f"), "f", [("fork", 4)]),
    "the parent is of another log": (
        commands(f"HSET {KEYS.head('s')} incarnations 0_other incarnation 0_other"),
        "f",
        [("fork", 4)],
    ),
    "the parent has lost its end": (commands(f"HSET {KEYS.head('s')} position 3"), "f", [("fork", 4)]),
    "the parent is gone": (commands(f"DEL {KEYS.head('s')}"), "f", [("fork", 4)]),
    "the parent was erased": (
        commands(f"DEL {KEYS.head('s')}", f"HSET {KEYS.head('s')} state erased"),
        "f",
        [("fork", 4)],
    ),
    "an entry that is shared is gone": (commands(f"XDEL {KEYS.lane('s', Lane.LLM)} 3-0"), "f", [("fork", 3)]),
    "an own entry is gone": (commands(f"XDEL {KEYS.lane('f', Lane.LLM)} 5-0"), "f", [("hole", 5)]),
    "its own end of a cursor": (commands(f"HSET {KEYS.head('f')} fork nowhere"), "f", [("head", 0)]),
}
"""damage to a fork or its parent → the session whose report shows it, and the problems"""


@pytest.mark.cluster("a fork and its parent are in different slots")
@pytest.mark.parametrize("what", LOST)
async def test_entries_that_a_fork_lost_are_reported_and_nothing_else(server: AnyServer, what: str) -> None:
    plant, session, wanted = LOST[what]
    await make_fork(server)
    with server.talk() as say:
        plant(say)
    async with server.bus() as bus:
        assert kinds(await found(bus, session)) == wanted


async def test_shared_entries_are_verified_after_the_fork_is_trimmed(server: AnyServer) -> None:
    await make_fork(server)
    async with server.bus() as bus:
        await bus.session("f").trim(6, force=True)
        report = await found(bus, "f")
        assert (report.problems, report.notes[0]) == ((), "it begins at 6: earlier entries were trimmed")
        assert not [note for note in report.notes if "before the fork" in note]
        server.do("XDEL", KEYS.lane("s", Lane.LLM), "3-0")
        assert kinds(await found(bus, "f")) == [("fork", 3)]


# --- erased sessions ----------------------------------------------------------------------------------------------


@pytest.mark.cluster("keys are scanned on every node")
async def test_nothing_is_left_of_an_erased_session_but_its_tombstone(server: AnyServer, tmp_path: Path) -> None:
    await make_archived(server, tmp_path)
    async with archived_bus(server, tmp_path) as bus:
        await bus.session("s").save_checkpoint("me", (await bus.session("s").head()).cursor)
        await bus.session("s").erase()
        assert [report.problems for report in [each async for each in verify_all(bus)]] == [()]
        report = await found(bus, "s")
        assert (report.problems, report.notes) == ((), ("it was erased",))
        server.do("XADD", KEYS.lane("s", Lane.LLM), "1-0", "h", "1 1 x", "m", "left")
        assert kinds(await found(bus, "s")) == [("orphan", 0)]
        [rest] = [report async for report in verify_all(bus)]
        assert kinds(rest) == [("orphan", 0)]


async def test_all_sessions_are_reported_sorted_by_id_and_the_other_keys_last(server: AnyServer) -> None:
    names = [f"s{number}" for number in range(9)]
    async with Bus.open(server.url) as bus:
        assert len({bus.bucket_of(name) for name in names}) > 3
        for name in reversed(names):
            await bus.session(name).publish(said("a"))
        assert [report.session async for report in verify_all(bus)] == [*names, ""]
