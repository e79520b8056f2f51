"""Verification of complete logs, and of logs that another client has damaged."""

import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import anyio
import pytest

from lanebus import Delta, Lane, Session
from lanebus.bus import Incarnation
from lanebus.bus.wire import ALL_AGENTS, ALL_BYTES, Keys
from lanebus.handlers.formats import import_transcript
from lanebus.handlers.projections import TURNS, USAGE
from lanebus.handlers.verify import ProblemKind, Report, verify_all, verify_session
from lanebus.handlers.verify.entries import EntryCheck, Findings, VerifyBounds, parse_head_fields
from lanebus.handlers.verify.namespace import part_of
from lanebus.projections import project
from tests.support.log.said import said, told
from tests.support.log.stored import header
from tests.support.servers.real import AnyServer, RealServer, Talk

KEYS = Keys()
BUCKET = KEYS.bucket("s")
HEAD, LLM, EXT, LIVE = KEYS.head("s"), KEYS.lane("s", Lane.LLM), KEYS.lane("s", Lane.EXTENSION), KEYS.live("s")
CHECKPOINTS, CALLERS, INDEX = KEYS.checkpoints("s"), KEYS.caller_keys("s"), KEYS.index(BUCKET)
SESSIONS = KEYS.sessions(BUCKET)
HEADER, NEWER = "a header as the bus writes it", "the same of a newer version"
USER = '{"role":"user","content":"x"}'
NOTE = '{"role":"extension","kind":"k","data":"x"}'
DELTA = Delta(kind="text", message_id="m", delta="x").to_json()

Plant = Callable[[Talk], object]


async def make(server: AnyServer) -> None:
    """A session `s` with seven entries, the last in the LLM lane; of what may be stored of one, some of everything."""
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), told("b"))
        await session.publish(said("c"), key="mine")
        await session.publish(told("d"), said("e"), told("f"))
        await project(session, USAGE)
        await project(session, TURNS)
        await session.publish(said("g"), wake=True)
        await session.preview(Delta(kind="text", message_id="m", delta="Hel"))
        await bus.session("t").publish(told("another"))


def headed(say: Talk, lane: str, position: int, fields: Sequence[str]) -> list[str]:
    """Fields of an entry, the header in the place of its name."""
    token, kind = str(say("HGET", HEAD, "incarnation")), Lane.LLM if lane == LLM else Lane.EXTENSION
    versions = {HEADER: 1, NEWER: 9}
    return [
        header(kind, fields[3], version=versions[field], token=token) if field in versions else field
        for field in fields
    ]


def entry(lane: str, entry_id: str, body: str) -> Plant:
    """An entry that only stands in the lane."""
    position = int(entry_id.partition("-")[0])
    return lambda say: say("XADD", lane, entry_id, *headed(say, lane, position, ("h", HEADER, "m", body)))


def delta(entry_id: str, body: str) -> Plant:
    """A live delta that only stands in its stream."""
    return lambda say: say("XADD", LIVE, entry_id, "h", "1 1700000000000 somebody", "m", body)


def appended(lane: str, *fields: str) -> Plant:
    """Entry 8, as if the bus had appended it."""

    def plant(say: Talk) -> None:
        size = len(fields[3]) if len(fields) > 3 else 0
        say("XADD", lane, "8-0", *headed(say, lane, 8, fields))
        say("HSET", HEAD, "position", "8")
        say("HINCRBY", HEAD, "bytes", str(size))
        say("HINCRBY", SESSIONS, ALL_BYTES, str(size))

    return plant


def flipped(lane: str, position: int, old: str, new: str) -> Plant:
    """Other bytes in one entry, as after a fault of a disk."""

    def plant(say: Talk) -> None:
        entries = say("XRANGE", lane, "-", "+")
        assert isinstance(entries, list)
        say("DEL", lane)
        for each in entries:
            entry_id, fields = cast("tuple[str, list[str]]", each)
            if entry_id == f"{position}-0":
                assert any(old in field for field in fields)
                fields = [field.replace(old, new, 1) for field in fields]
            say("XADD", lane, entry_id, *fields)

    return plant


def stored(name: str, state: str) -> Plant:
    """A forged state of a projection, with its checkpoint."""
    plain, _, version = name.partition("@")

    def plant(say: Talk) -> None:
        key = KEYS.projection("s", plain, int(version))
        say("HSET", key, "position", "5", "state", state, "incarnation", "")
        say("HSET", CHECKPOINTS, f"p:{name}", "5")

    return plant


def command(*words: str) -> Plant:
    return lambda say: say(*words)


async def reported(server: AnyServer, session: str = "s") -> Report:
    async with server.bus() as bus:
        report = await verify_session(bus, session)
    assert report is not None
    return report


def incarnation(say: Talk) -> None:
    past = say("HGET", HEAD, "incarnations")
    say("HSET", HEAD, "incarnations", f"{past} 99_later", "incarnation", "99_later")


def replaced(key: str) -> Plant:
    def plant(say: Talk) -> None:
        say("DEL", key)
        say("SET", key, "x")

    return plant


PLANTED: dict[str, tuple[Plant, str, int]] = {
    "an entry is gone": (command("XDEL", LLM, "3-0"), "hole", 3),
    "the last entry is gone": (command("XDEL", LLM, "7-0"), "hole", 7),
    "the first entries are gone": (command("XTRIM", LLM, "MINID", "2"), "hole", 1),
    "a position in both lanes": (entry(EXT, "7-0", NOTE), "double", 7),
    "an id between": (entry(EXT, "7-5", NOTE), "id", 7),
    "other fields": (appended(LLM, "x", "y"), "header", 8),
    "another name for the header": (appended(LLM, "x", HEADER, "m", USER), "header", 8),
    "a header without a time": (appended(LLM, "h", "1 me", "m", USER), "header", 8),
    "no message": (appended(LLM, "h", HEADER, "m", "BAD"), "unreadable", 8),
    "another byte in a text": (flipped(LLM, 3, '"text":"c"', '"text":"d"'), "checksum", 3),
    "another byte in a kind": (flipped(EXT, 4, '"kind":', '"kinx":'), "checksum", 4),
    "another version": (flipped(EXT, 4, "1 1", "9 1"), "unreadable", 4),
    "another incarnation in the middle": (flipped(LLM, 3, " 0_", " 1_"), "incarnation", 3),
    "another incarnation at the start": (flipped(LLM, 1, " 0_", " 0_x"), "incarnation", 1),
    "a state of the agent that is none": (stored("status@2", '{"loops":{}}'), "projection", 5),
    "a message of the other lane": (appended(LLM, "h", HEADER, "m", NOTE), "unreadable", 8),
    "a newer version": (appended(EXT, "h", NEWER, "m", NOTE), "unreadable", 8),
    "an entry above the head": (entry(LLM, "8-0", USER), "above_head", 8),
    "the head is gone": (command("DEL", HEAD), "head", 0),
    "the head has no number": (command("HSET", HEAD, "position", "x"), "head", 0),
    "the head has no number of bytes": (command("HSET", HEAD, "bytes", "-1"), "head", 0),
    "the head has an unknown state": (command("HSET", HEAD, "state", "asleep"), "head", 0),
    "more was trimmed than there is": (command("HSET", HEAD, "trimmed", "99"), "head", 99),
    "it is not listed": (command("HDEL", SESSIONS, "s"), "head", 0),
    "the list names another agent": (command("HSET", SESSIONS, "s", "1700000000000 other"), "agent", 0),
    "the list names no agent": (command("HSET", SESSIONS, "s", "1700000000000"), "agent", 0),
    "the head names another agent": (command("HSET", HEAD, "agent", "other"), "agent", 0),
    "the head counts other bytes": (command("HINCRBY", HEAD, "bytes", "1"), "bytes", 0),
    "an incarnation that has not begun": (incarnation, "incarnation", 99),
    "a producer beyond the end": (command("HSET", HEAD, "p:x", "5 1 99 a "), "producer", 99),
    "a producer without numbers": (command("HSET", HEAD, "p:x", "y"), "producer", 0),
    "a producer that leaves one out": (command("HSET", HEAD, "p:x", "5 3 2 a |1 1 a "), "producer", 0),
    "a caller's key beyond the end": (command("HSET", CALLERS, "k", "99+1+a"), "caller_key", 99),
    "a caller's key without numbers": (command("HSET", CALLERS, "k", "y"), "caller_key", 0),
    "a caller's key of a lost log": (command("HSET", CALLERS, "k", "3+1+lost"), "caller_key", 3),
    "a reader beyond the end": (command("HSET", CHECKPOINTS, "r:me", "99-0.a"), "checkpoint", 99),
    "a checkpoint that is none": (command("HSET", CHECKPOINTS, "r:me", "y"), "checkpoint", 0),
    "a state nobody knows of": (command("HDEL", CHECKPOINTS, f"p:usage@{USAGE.version}"), "checkpoint", 0),
    "a checkpoint without its state": (command("HSET", CHECKPOINTS, "p:other@3", "2"), "checkpoint", 0),
    "a stored state of something else": (
        command("HSET", KEYS.projection("s", "usage", USAGE.version), "state", "{}"),
        "projection",
        6,
    ),
    "a pointer beyond the end": (command("XADD", INDEX, "*", "s", "s", "z", "99", "w", ""), "pointer", 99),
    "a live delta beyond the end": (delta("99-1", DELTA), "live", 99),
    "a live delta that is none": (delta("7-9", "BAD"), "live", 7),
    "a key of another type": (replaced(LIVE), "wrong_type", 0),
    "a head of another type": (replaced(HEAD), "wrong_type", 0),
    "a lane of another type": (replaced(EXT), "wrong_type", 0),
}
"""damage to session `s` → the kind and the position of the problem"""


@pytest.mark.parametrize("what", PLANTED)
async def test_a_problem_of_a_session_is_reported_and_nothing_else(server: AnyServer, what: str) -> None:
    plant, kind, position = PLANTED[what]
    await make(server)
    with server.talk() as say:
        plant(say)
    report = await reported(server)
    assert [problem[:3] for problem in report.problems] == [("s", kind, position)]
    assert (report.is_whole, (await reported(server, "t")).is_whole) == (False, True)


@pytest.mark.parametrize(("is_listed", "position"), [(True, 6), (False, 7)])
async def test_a_batch_that_was_cut_off_is_reported(server: AnyServer, is_listed: bool, position: int) -> None:
    await make(server)
    with server.talk() as say:
        newest = str(say("HGET", HEAD, "incarnation"))
        token = "5_torn"  # what began behind entry 5 cannot have written entry 7 first
        if is_listed:
            say("HSET", HEAD, "incarnations", f"{newest} {token}", "incarnation", token)
        flipped(LLM, 7, newest, token)(say)
    assert kinds_of(await reported(server)) == [("incarnation", position)]


@pytest.mark.parametrize("name", ["usage@2", "mine@1"])
async def test_a_stored_state_that_cannot_be_folded_leaves_its_session_unproven(server: AnyServer, name: str) -> None:
    await make(server)
    with server.talk() as say:
        stored(name, "{}")(say)
    report = await reported(server)
    assert (report.problems, report.unproven, report.is_whole) == ((), (name,), False)
    assert any(name in note for note in report.notes)


def dead_letter(say: Talk) -> None:
    say("HSET", KEYS.groups(BUCKET), "agent:g", "0 0")
    say("XADD", KEYS.dead(BUCKET, "g"), "*", "s", "nowhere at all", "z", "1")


def open_work(session: str, work: str) -> Plant:
    def plant(say: Talk) -> None:
        say("HSET", KEYS.groups(BUCKET), "agent:g", "0 0")
        say("HSET", KEYS.open(BUCKET, "agent", "g"), session, work)

    return plant


def woken(session: str, position: str) -> Plant:
    return command("HSET", KEYS.woken(BUCKET), session, position)


ELSEWHERE = KEYS.lane("elsewhere", Lane.LLM)
PLANTED_OUTSIDE: dict[str, tuple[Plant, str]] = {
    "a bucket counts other bytes": (command("HINCRBY", SESSIONS, ALL_BYTES, "5"), "bucket_bytes"),
    "a bucket counts in words": (command("HSET", SESSIONS, ALL_BYTES, "y"), "bucket_bytes"),
    "a bucket counts a session of another agent": (command("HSET", SESSIONS, ALL_AGENTS, '{"other":1}'), "agent"),
    "a bucket counts too many sessions of an agent": (command("HSET", SESSIONS, ALL_AGENTS, '{"agent":2}'), "agent"),
    "a bucket counts sessions in words": (command("HSET", SESSIONS, ALL_AGENTS, "many"), "agent"),
    "a lane of no session": (entry(ELSEWHERE, "1-0", USER), "orphan"),
    "a head of no session": (command("HSET", KEYS.head("elsewhere"), "position", "1"), "orphan"),
    "a key in another bucket": (command("SET", f"lanebus:{{{(BUCKET + 1) % KEYS.buckets}}}:s:s:live", "x"), "orphan"),
    "a key of no kind": (command("SET", "lanebus:odd", "x"), "orphan"),
    "a part that no session has": (command("SET", f"{LLM}:rebuilt", "x"), "orphan"),
    "a stored state that no checkpoint names": (
        command("HSET", KEYS.projection("s", "usage", 2), "position", "5", "state", "{}"),
        "orphan",
    ),
    "a pointer to no session": (command("XADD", INDEX, "*", "s", "elsewhere", "z", "1", "w", ""), "pointer"),
    "a pointer to nowhere": (command("XADD", INDEX, "*", "x", "y"), "pointer"),
    "an index of another type": (replaced(INDEX), "wrong_type"),
    "open work of no session": (open_work("elsewhere", " 1 1 1 0 r error"), "pointer"),
    "open work that nobody can do": (open_work("s", "x"), "pointer"),
    "a session that is no session and was woken": (command("HSET", KEYS.woken(BUCKET), "elsewhere", "1"), "pointer"),
    "a session that was woken nowhere": (woken("s", "y"), "pointer"),
    "a session that was woken beyond its end": (woken("s", "99"), "pointer"),
    "a session that was woken and does not wait": (command("DEL", KEYS.order(BUCKET, "agent")), "pointer"),
    "woken of another type": (replaced(KEYS.woken(BUCKET)), "wrong_type"),
    "a dead letter of no session": (dead_letter, "pointer"),
}
"""damage outside of sessions → the problem"""


@pytest.mark.full
@pytest.mark.cluster("keys are scanned on every node")
@pytest.mark.parametrize("what", PLANTED_OUTSIDE)
async def test_a_problem_outside_of_sessions_is_reported_and_nothing_else(server: AnyServer, what: str) -> None:
    plant, kind = PLANTED_OUTSIDE[what]
    await make(server)
    with server.talk() as say:
        plant(say)
    async with server.bus() as bus:
        reports = [report async for report in verify_all(bus)]
    assert [(problem.session, problem.kind) for report in reports for problem in report.problems] == [("", kind)]
    assert sorted(report.session for report in reports) == ["", "s", "t"]


async def test_sessions_are_whole_after_restarts_closes_and_erasures(process: RealServer) -> None:
    await make(process)
    for _ in range(3):
        process.kill()
        process.start()
        async with process.bus() as bus:
            await bus.session("s").publish(said("again"), key="mine too")
            await bus.session("s").publish(told("again"))
            await project(bus.session("s"), USAGE)
    async with process.bus() as bus:
        await bus.session("s").close(said("bye"), reason="done")
        await bus.session("leased").acquire_lease("me", 5)
        await bus.session("previewed").preview(Delta(kind="text", message_id="m", delta="Hel"))
        assert await verify_session(bus, "leased") is None
        reports = [report async for report in verify_all(bus)]
    assert [report.problems for report in reports] == [(), (), ()]
    assert {report.session: report.entries for report in reports} == {"s": 13, "t": 1, "": 0}


@pytest.mark.cluster("a bucket's records and the head are in one slot, and keys are scanned on every node")
async def test_a_session_that_is_handed_over_is_whole_and_a_namespace_is_proven_by_itself(server: AnyServer) -> None:
    await make(server)
    async with server.bus() as bus, server.bus("lanebus.b") as other:
        await bus.session("s").hand_over("other")
        assert [report.problems async for report in verify_all(bus)] == [()] * 3
        await bus.session("s").hand_over("agent")
        await (await bus.session("none").fork(0, id="of-none")).publish(said("x"))
        await bus.session("t").erase()
        await other.session("t").publish(said("a"))
        server.do("SET", "lanebus.b:odd", "x")
        assert [report.problems async for report in verify_all(bus)] == [()] * 3
        assert [len(report.problems) async for report in verify_all(other)] == [0, 1]


@pytest.mark.full
async def test_a_real_session_is_whole(valkey: RealServer, seed_data: Path) -> None:
    async with valkey.bus() as bus:
        session = bus.session("pi")
        await import_transcript(session, seed_data / "data" / "pi-session.jsonl")
        await project(session, USAGE)
        await project(session, TURNS)
        [report, rest] = [report async for report in verify_all(bus)]
    assert (report.entries, report.problems, report.notes) == (1003, (), ())
    assert rest.is_whole


@pytest.mark.full
async def test_verify_finds_nothing_wrong_with_a_log_that_grows_meanwhile(valkey: RealServer) -> None:
    async def publish(session: Session) -> None:
        # So few, as each look reads all that was there before.
        for _ in range(20):
            await session.publish(said("a"), told("b"))
            await session.preview(Delta(kind="text", message_id="m", delta="x"))
            await project(session, USAGE)

    async with valkey.bus() as bus:
        session = bus.session("s")
        await session.publish(said("first"))
        disturbed = 0
        for _ in range(10):
            async with anyio.create_task_group() as tasks:
                before = (await session.head()).position
                tasks.start_soon(publish, session)
                reports = [report async for report in verify_all(bus)]
                assert [report.problems for report in reports] == [(), ()]
                disturbed += (await session.head()).position > before
    assert disturbed, "it grew while it was looked at"


async def test_quarantined_entries_are_noted(server: AnyServer) -> None:
    await make(server)
    async with server.bus() as bus:
        assert await verify_session(bus, "nosuch") is None
        server.do("XADD", LLM, "8-0", "h", "1 1700000000000 somebody", "m", "FORGED")
        await bus.session("s").publish(said("h"))
    report = await reported(server)
    assert (report.is_whole, len(report.notes)) == (True, 1)
    assert ("8-0" in report.notes[0], "FORGED" in report.notes[0]) == (True, True)


async def test_a_trimmed_log_is_faultless_and_its_projections_are_not_checked(server: AnyServer) -> None:
    await make(server)
    with server.talk() as say:
        say("XTRIM", LLM, "MINID", "3")
        say("XTRIM", EXT, "MINID", "3")
        say("HSET", HEAD, "trimmed", "2")
        gone = len(said("a").to_json_bytes()) + len(told("b").to_json_bytes())
        say("HINCRBY", HEAD, "bytes", str(-gone))
    report = await reported(server)
    assert (report.entries, report.problems) == (5, ())
    assert ("begins at 3" in report.notes[0], "not checked" in report.notes[1]) == (True, True)


@pytest.mark.full
async def test_a_long_log_is_not_held_in_memory(valkey: RealServer) -> None:
    async with valkey.bus() as bus:
        session = bus.session("s")
        for _ in range(30):
            await session.publish(*[said(20_000 * "x") for _ in range(25)], *[told(20_000 * "x") for _ in range(25)])
        tracemalloc.start()
        try:
            report = await verify_session(bus, "s")
            assert (
                tracemalloc.get_traced_memory()[1] < 12_000_000
            )  # of 30 MB; a page of each lane, as it came and is read
        finally:
            tracemalloc.stop()
    assert report is not None
    assert (report.entries, report.problems) == (1_500, ())


async def test_problems_beyond_the_bound_are_only_counted(valkey: RealServer) -> None:
    async with valkey.bus() as bus:
        await bus.session("s").publish(said("a"))
        *_, rest = [report async for report in verify_all(bus, bounds=VerifyBounds(byte_attempts=0))]
        assert sum("byte count" in note for note in rest.notes) == bus.inspector.keys.buckets
        assert "was not checked" in rest.notes[0]
        with valkey.talk() as say:
            for index in range(1, 12):
                say("XADD", LLM, f"1-{index}", "x", "y")
        report = await verify_session(bus, "s", bounds=VerifyBounds(problems=3))
    assert report is not None
    assert (len(report.problems), report.unlisted) == (3, 8)


async def test_one_attempt_is_enough_for_a_log_that_does_not_change(valkey: RealServer) -> None:
    once = VerifyBounds(problems=1, session_attempts=1, byte_attempts=1, state_attempts=1)
    async with valkey.bus() as bus:
        await bus.session("s").publish(said("a"), told("b"))
        await project(bus.session("s"), USAGE)
        reports = [report async for report in verify_all(bus, bounds=once)]
        assert reports == [report async for report in verify_all(bus)]
    assert all(report.is_whole for report in reports)


# --- the parts that are pure --------------------------------------------------------------------------------------


def kinds_of(report: Report) -> list[tuple[str, int]]:
    return [(problem.kind, problem.position) for problem in report.problems]


def found(check: Callable[[Findings], object]) -> list[tuple[str, int]]:
    findings = Findings("s")
    check(findings)
    return [(problem.kind, problem.position) for problem in findings.problems]


def incarnations(text: str, newest: str, position: int = 20) -> Callable[[Findings], object]:
    fields = {"position": str(position), "incarnations": text, "incarnation": newest}
    return lambda findings: parse_head_fields({name: value.encode() for name, value in fields.items()}, findings)


def test_incarnations_follow_each_other_and_each_entry_is_of_the_one_that_wrote_it() -> None:
    for text, newest, wrong in (
        ("0_a 10_b 11_c", "11_c", []),
        ("", "", []),
        ("0_a 10_b 10_c", "10_c", [10]),
        ("10_a 0_b", "0_b", [0]),
        ("0_a 20_b", "20_b", [20]),
        ("0_a 10_b", "0_a", [0]),
        ("a", "", [0]),
    ):
        assert found(incarnations(text, newest)) == [("incarnation", position) for position in wrong]
    head = {"position": b"20", "incarnations": b"5_a 10_b", "incarnation": b"10_b"}
    fields = parse_head_fields(head, Findings("s"))
    assert fields.incarnations == (Incarnation("5_a", 5), Incarnation("10_b", 10))
    assert [fields.incarnation_of(position) for position in (5, 6, 10, 11)] == [None, "5_a", "5_a", "10_b"]


def test_holes_are_separate_suspects_count_after_the_last_entry_and_trimmed_entries_are_forgiven() -> None:
    def walk(findings: Findings) -> None:
        entries = EntryCheck(findings, 3)
        for position in (4, 5, 8):
            fields = (b"h", header(Lane.LLM, USER).encode(), b"m", USER.encode())
            entries.take(Lane.LLM, (f"{position}-0".encode(), fields))
        entries.end(10)
        assert (entries.entries, entries.size_bytes) == (3, 3 * len(USER))

    def suspect(findings: Findings) -> None:
        findings.suspect("producer", 5, "x")
        findings.suspect("producer", 6, "y")
        findings.settle(5)
        findings.settle(0)

    def forgive(findings: Findings) -> None:
        for kind, position in (("hole", 5), ("hole", 6), ("bytes", 0), ("unreadable", 3)):
            findings.add(cast("ProblemKind", kind), position, "x")
        findings.forgive(5)

    assert found(walk) == [("hole", 3), ("hole", 6), ("hole", 9)]
    assert found(suspect) == [("producer", 6)]
    assert found(forgive) == [("hole", 6), ("unreadable", 3)]


def test_a_key_name_is_parsed_into_bucket_session_and_part() -> None:
    for name, part in (
        *((f"n:{rest}", (0, "", rest)) for rest in ("config", "media:ab", "group:{workers}:consumers")),
        *(
            (f"n:{{3}}:{rest}", (3, "", rest))
            for rest in (
                *("index", "live", "dead:workers", "open:support:workers", "due:support:workers", "order:support"),
                *("woken", "wakeups", "groups"),
            )
        ),
        *((f"n:{{3}}:s:one:{rest}", (3, "one", rest)) for rest in ("llm", "p:usage@1")),
        *((f"n:{rest}", None) for rest in ("group:{workers}:other", "{3}:s:one:p:usage", "{3}:s:a b:llm", "{3}:other")),
        *((f"n:{rest}", None) for rest in (f"{{{'9' * 5_000}}}:index", f"{{3}}:s:one:p:usage@{'9' * 5_000}", "other")),
    ):
        assert part_of("n", name) == part, name
