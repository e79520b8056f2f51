"""Appends that are late, forgotten or lost with the end of a log: nothing is appended twice, and callers are told."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from lanebus import Bus, Session
from lanebus.bounds import Bounds, ConnectionBounds, LogBounds, PublishBounds
from lanebus.bus.publishing.outbox import publish_command
from lanebus.bus.wire import Keys
from lanebus.errors import LogRolledBack, OutcomeUnknown
from tests.support.laws.cancelling import Moment, cut
from tests.support.log.said import assert_gap_free, read, said, told, word, words
from tests.support.servers.proxy import Proxy, proxy
from tests.support.servers.real import AnyServer, RealServer, copied, eventually

FEW = Bounds(
    connection=ConnectionBounds(answer_seconds=0.3),
    publish=PublishBounds(sessions=2, longest_pause_seconds=0.02),
    log=LogBounds(producers=4),
)
"""A process goes on in two sessions, and a head with four processes."""


def kept(server: AnyServer, session: str = "s") -> list[str]:
    """Return the producers that a head keeps."""
    fields = server.do("HKEYS", Keys().head(session))
    assert isinstance(fields, list)
    return [str(field) for field in fields if str(field).startswith("p:")]


@contextmanager
def copies() -> Generator[list[tuple[str, ...]], None, None]:
    """Collect the commands of all publishes in the block, to repeat them as late copies."""
    sent: list[tuple[str, ...]] = []

    def recorded(*arguments: object) -> Sequence[object]:
        command = publish_command(*arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # as given
        sent.append(tuple(each.decode() if isinstance(each, bytes) else str(each) for each in command))
        return command

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lanebus.bus.publishing.publisher.publish_command", recorded)
        yield sent


async def publish_from_others(server: RealServer, count: int, session: str = "s") -> None:
    """Publish once from each of `count` producers."""
    for number in range(count):
        async with server.bus(bounds=FEW) as bus:
            await bus.session(session).publish(said(f"o{number}"))


async def test_a_process_that_keeps_few_sessions_publishes_to_all_once_and_in_order(server: AnyServer) -> None:
    async with server.bus(bounds=FEW) as bus:
        names = [f"s{number}" for number in range(20)]

        async def publish(name: str, task: int) -> None:
            for number in range(4):
                await bus.session(name).publish(said(f"{task}.{number}"))

        async with anyio.create_task_group() as tasks:
            for name in names:
                for task in range(2):
                    tasks.start_soon(publish, name, task)
        for name in names:
            texts = await words(bus.session(name))
            assert sorted(texts) == sorted(f"{task}.{number}" for task in range(2) for number in range(4))
            assert all(
                [text for text in texts if text[0] == task] == [f"{task}.{n}" for n in range(4)] for task in "01"
            )
        for name in names:
            await bus.session(name).publish(said("again"))
        assert len(bus._shards.of("s").publisher._outboxes) <= 2  # pyright: ignore[reportPrivateUsage]  # it shows nowhere else


async def test_a_head_keeps_no_more_producers_than_its_bound(server: AnyServer) -> None:
    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(server.bus(bounds=FEW)) for _ in range(12)]
        for round_ in range(3):
            for number, bus in enumerate(buses):
                await bus.session("s").publish(said(f"{number}.{round_}"))
                assert len(kept(server)) <= 4
        assert await words(buses[0].session("s")) == [f"{number}.{r}" for r in range(3) for number in range(12)]
        assert int(str(server.do("HGET", Keys().head("s"), "producers"))) == len(kept(server))


async def test_a_late_copy_from_a_producer_that_the_head_has_forgotten_adds_nothing(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus(bounds=FEW) as bus:
        session = bus.session("s")
        with copies() as sent:
            await session.publish(said("a"))
            await session.publish(said("b"))
        (field,) = kept(shared_valkey)
        await publish_from_others(shared_valkey, 6)
        assert field not in kept(shared_valkey)
        before = await words(session)
        for command in (*sent, *reversed(sent)):
            assert "stale " in str(shared_valkey.do(*command))
        assert await words(session) == before
        await session.publish(said("c"))
        for command in sent:
            shared_valkey.do(*command)
        assert await words(session) == [*before, "c"]


async def test_a_late_copy_to_a_session_that_its_process_has_forgotten_adds_nothing(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus(bounds=FEW) as bus:
        session = bus.session("s")
        with copies() as sent:
            await session.publish(said("a"))
        for name in "tuvw":
            await bus.session(name).publish(said("x"))
        shared_valkey.do(*sent[0])
        assert await words(session) == ["a"]
        await session.publish(said("b"))  # the first of a new term
        shared_valkey.do(*sent[0])
        assert await words(session) == ["a", "b"]


async def test_a_delayed_copy_of_a_settled_publish_to_a_forgotten_session_is_void(process: RealServer) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url, bounds=FEW) as bus:
        session = bus.session("s")
        await session.publish(said("0"))
        way.delay()
        await session.publish(said("a"), seconds=20)  # settled on another connection, and sent again
        assert way.delayed_bytes > 0
        for name in "tuvw":
            await bus.session(name).publish(said("x"), seconds=20)
        await publish_from_others(process, 6)
        before = await words(session)
        await way.deliver()
        assert await words(session) == before
        await session.publish(said("b"), seconds=20)
        assert await words(session) == [*before, "b"]
        assert before.count("a") == 1


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_doubtful_publish_that_the_head_forgot_is_unknown(process: RealServer, *, arrives: bool) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url, bounds=FEW) as bus, anyio.create_task_group() as tasks:
        session, outcome = bus.session("s"), list[BaseException]()
        await session.publish(said("a"))

        async def publish() -> None:
            try:
                await session.publish(said("b"), seconds=60)
            except OutcomeUnknown as unknown:
                outcome.append(unknown)

        def darken() -> None:
            way.is_dark = True

        if arrives:
            way.on_lost, way.lose = darken, 1
        else:
            darken()
            way.silence()
        tasks.start_soon(publish)
        await anyio.wait_all_tasks_blocked()
        await eventually(lambda: way.is_dark)
        await publish_from_others(process, 6)
        way.is_dark = False
        way.cut()
        await eventually(lambda: outcome != [])
        assert isinstance(outcome[0], OutcomeUnknown)
        assert outcome[0].is_forgotten
        await session.publish(said("c"), seconds=20)
        texts = await words(session)
        assert [texts.count(text) for text in "abc"] == [1, 1 if arrives else 0, 1]
        assert_gap_free(await read(session))


async def test_a_producer_that_the_head_has_forgotten_gets_the_rollback_error(process: RealServer) -> None:
    async with process.bus(bounds=FEW) as bus, AsyncExitStack() as stack:
        session = bus.session("s")
        await publish_from_others(process, 3)
        process.kill()
        copy = process.directory.with_name(process.directory.name + "-copy")
        stack.callback(shutil.rmtree, copy)
        shutil.copytree(process.directory, copy, ignore=shutil.ignore_patterns("s"))
        process.start()
        await session.publish(said("lost"))
        process.kill()
        shutil.rmtree(process.directory / "appendonlydir")
        shutil.copytree(copy / "appendonlydir", process.directory / "appendonlydir")
        process.start()
        await publish_from_others(process, 8)  # begun later: the floor is above the term of the first one
        with pytest.raises(LogRolledBack):
            await session.publish(said("d"), seconds=20)
        await session.publish(said("e"), seconds=20)
        assert (await words(session))[-1] == "e"
        assert "lost" not in await words(session)


async def test_a_producer_with_a_slow_clock_begins_above_the_floor(shared_valkey: RealServer) -> None:
    keys = Keys()
    shared_valkey.do("HSET", keys.head("s"), "floor", str(2**50))
    async with shared_valkey.bus() as bus:
        await bus.session("s").publish(said("a"))
        await bus.session("s").publish(said("b"))
        await bus.session("t").publish(said("c"))
        assert await words(bus.session("s")) == ["a", "b"]
        assert int(str(shared_valkey.do("HGET", keys.head("s"), kept(shared_valkey)[0])).split(" ")[0]) > 2**50


async def test_more_producers_than_the_head_keeps_lose_nothing_when_they_take_turns(server: AnyServer) -> None:
    """The head keeps fewer, so each producer is forgotten again and again."""
    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(server.bus(bounds=FEW)) for _ in range(9)]

        async def publish(session: Session, name: int) -> None:
            for number in range(12):
                await asyncio.gather(*(session.publish(said(f"{name}.{number}.{part}")) for part in range(3)))

        async with anyio.create_task_group() as tasks:
            for name, bus in enumerate(buses):
                tasks.start_soon(publish, bus.session("s"), name)
    async with server.bus() as bus:
        texts = await words(bus.session("s"))
        assert len(texts) == len(set(texts)) == 9 * 12 * 3
        assert_gap_free(await read(bus.session("s")))
        for name in range(9):
            own = [text for text in texts if text.startswith(f"{name}.")]
            assert own == [f"{name}.{number}.{part}" for number in range(12) for part in range(3)]


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
async def test_publish_refused_after_an_unanswered_send_is_unknown(process: RealServer, code: str) -> None:
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


async def fill(session: Session, texts: str) -> None:
    for text in texts:
        await session.publish(said(text), seconds=60)


async def test_rollback_found_by_an_expired_publish_is_raised_by_the_next(process: RealServer) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url) as bus:
        session = bus.session("s")
        await fill(session, "abcde")
        with copied(process) as restore:
            await fill(session, "fghij")
            way.silence()  # so that it is on its way until its caller gives up
            with pytest.raises(OutcomeUnknown):
                await session.publish(said("k"), seconds=0.5)
            restore()
            way.cut()
        with pytest.raises(LogRolledBack) as caught:
            await session.publish(said("l"), seconds=60)
        assert (caught.value.seen, caught.value.found) == (10, 5)
        assert (await session.publish(said("m"))).position == 6
        assert await words(session) == list("abcdem")


async def test_rollback_whose_caller_is_cancelled_is_raised_by_the_next(session: Session, process: RealServer) -> None:
    await fill(session, "a")
    process.do("FLUSHALL")
    trial = await cut(lambda: session.publish(said("b"), seconds=60), at=1, moment=Moment.LATE)
    assert trial.is_cancelled
    with pytest.raises(LogRolledBack):
        await session.publish(said("c"), seconds=60)
    assert (await session.publish(said("d"))).position == 1
    assert await words(session) == ["d"]


async def test_rollback_is_raised_once_and_no_later_publish_is_lost(session: Session, process: RealServer) -> None:
    await fill(session, "abc")
    process.do("FLUSHALL")
    outcomes: dict[str, str] = {}

    async def publish(text: str) -> None:
        try:
            outcomes[text] = str((await session.publish(said(text), seconds=60)).position)
        except LogRolledBack:
            outcomes[text] = "told"

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(publish, str(number))
    told = [text for text, outcome in outcomes.items() if outcome == "told"]
    assert 1 <= len(told) < 60  # those that shared the append that found it
    assert await words(session) == [str(number) for number in range(60) if str(number) not in told]


async def test_publishes_after_a_rollback_are_not_mistaken_for_late_copies_of_lost_ones(process: RealServer) -> None:
    """Numbers are not reused, though the log has forgotten them."""
    bounds = Bounds(connection=ConnectionBounds(answer_seconds=3.0))  # far longer than the publish waits
    async with proxy(process.socket) as way, Bus.open(way.url, bounds=bounds) as bus:
        session = bus.session("s")
        await fill(session, "abc")
        way.delay()
        with pytest.raises(OutcomeUnknown):
            await session.publish(said("late"), seconds=0.3)
        process.do("FLUSHALL")
        with pytest.raises(LogRolledBack):
            await session.publish(said("d"), seconds=60)
        await fill(session, "efg")
        await way.deliver()
        await fill(session, "hi")
        await eventually(lambda: way.delayed_bytes == 0)
        assert await words(session) == list("efghi")
