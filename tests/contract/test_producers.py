"""Appends whose numbers the process or the head has forgotten: nothing is appended twice."""

import asyncio
import shutil
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager

import anyio
import pytest

from lanebus import Bus, Session
from lanebus.bounds import ConnectionBounds, PublishBounds
from lanebus.bus import Bounds, LogBounds
from lanebus.bus.publishing import publisher
from lanebus.bus.publishing.outbox import Outboxes, publish_command
from lanebus.bus.wire import Keys
from lanebus.errors import LogRolledBack, OutcomeUnknown
from tests.support.log.said import assert_gap_free, read, said, words
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, eventually

FEW = Bounds(
    connection=ConnectionBounds(answer_seconds=0.3),
    publish=PublishBounds(sessions=2, longest_pause_seconds=0.02),
    log=LogBounds(producers=4),
)
"""A process goes on in two sessions, and a head with four processes."""


def outboxes_of(bus: Bus) -> Outboxes:
    return bus._shards.of("s").publisher._outboxes  # pyright: ignore[reportPrivateUsage]


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
        patch.setattr(publisher, "publish_command", recorded)
        yield sent


async def publish_from_others(server: RealServer, count: int, session: str = "s") -> None:
    """Publish once from each of `count` producers."""
    for number in range(count):
        async with server.bus(bounds=FEW) as bus:
            await bus.session(session).publish(said(f"o{number}"))


async def test_a_process_keeps_no_more_sessions_than_its_bound_and_publishes_to_all_of_them_once_and_in_order(
    server: AnyServer,
) -> None:
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
        assert len(outboxes_of(bus)) <= 2


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


async def test_a_delayed_copy_of_a_settled_publish_adds_nothing_after_its_session_was_forgotten(
    process: RealServer,
) -> None:
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
async def test_a_doubtful_publish_that_the_head_has_forgotten_is_unknown_and_never_appended(
    process: RealServer, *, arrives: bool
) -> None:
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
