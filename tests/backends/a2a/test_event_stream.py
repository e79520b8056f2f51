"""Events of tasks: after any version, on any replica, each once and in order."""

from collections.abc import Callable
from contextlib import aclosing
from itertools import pairwise

import anyio
import pytest
from a2a.server.cluster import TaskVersion, VersionedEvent
from a2a.types import Message, Part, Role, Task, TaskState

from lanebus import Bus, ExtensionMessage
from lanebus.a2a import BackendBounds, LanebusEventStream, LanebusTaskStore
from lanebus.errors import DecodeError, InvalidArgument, InvalidCursor
from lanebus.handlers.integrations.a2a.task_record import copied
from tests.support.backends.a2a.tasks import ANYONE, artifact, events, manager, message, new_task, status, texts
from tests.support.servers.real import AnyServer, RealServer, blocked, eventually, shortly

WORKING, INPUT_REQUIRED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_INPUT_REQUIRED


def stream_of(bus: Bus) -> LanebusEventStream:
    return LanebusEventStream(LanebusTaskStore(bus))


async def converse(store: LanebusTaskStore) -> list[Task | object]:
    """Save the events of two runs of a task, and return them."""
    tasks, sent = manager(store, "t"), list[object]()
    for event in (
        new_task("t"),
        status("t", WORKING, "one"),
        artifact("t", "x", Part(text="a")),
        artifact("t", "x", Part(text="b"), append=True),
        status("t", INPUT_REQUIRED, "what?"),
    ):
        sent.append(copied(event))
        await tasks.save_task_event(event)
    task = await tasks.get_task()
    assert task is not None
    asked = tasks.update_with_message(message("this", role=Role.ROLE_USER), task)
    sent.append(copied(asked))
    await tasks.save_task_event(asked)
    for event in (status("t", WORKING, "two"), status("t", TaskState.TASK_STATE_COMPLETED, "done")):
        sent.append(copied(event))
        await tasks.save_task_event(event)
    return sent


@pytest.mark.cluster("the media of an event is in another slot than its session")
@pytest.mark.parametrize("inline_bytes", [1, 65_536])
async def test_after_each_version_a_subscription_yields_the_events_after_it(
    server: AnyServer, inline_bytes: int
) -> None:
    async with server.bus() as one, server.bus() as other:
        sent = await converse(LanebusTaskStore(one, bounds=BackendBounds(inline_bytes=inline_bytes)))
        async with shortly():
            found = await events(stream_of(other), "t", len(sent))
            assert [each.event for each in found] == sent
            for place, (before, after) in enumerate(pairwise(found)):
                assert after.version.is_after(before.version)
                rest = await events(stream_of(other), "t", len(sent) - place - 1, before.version)
                assert rest == found[place + 1 :]


async def test_subscribers_that_come_and_go_get_each_event_once(shared_valkey: RealServer) -> None:
    """As clients that subscribe again after each event, while the agent works on another replica."""
    count = 60

    async def follow(bus: Bus, step: int, into: list[VersionedEvent]) -> None:
        after = TaskVersion.MISSING
        while len(into) <= count:
            into += await events(stream_of(bus), "t", min(step, count + 1 - len(into)), after)
            after = into[-1].version

    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        got: dict[int, list[VersionedEvent]] = {step: [] for step in (1, 7, count + 1)}
        async with shortly(), anyio.create_task_group() as group:
            for step, into in got.items():
                group.start_soon(follow, other, step, into)
            tasks = manager(LanebusTaskStore(one), "t")
            await tasks.save_task_event(new_task("t"))
            for number in range(count):
                await tasks.save_task_event(status("t", WORKING, str(number)))
        for into in got.values():
            assert texts(into) == [str(number) for number in range(count)]


async def test_subscribers_wait_in_one_blocked_read_and_do_not_poll(shared_valkey: RealServer) -> None:
    names = [f"t{number}" for number in range(20)]
    got: dict[str, list[VersionedEvent]] = {name: [] for name in names}

    async def follow(bus: Bus, name: str) -> None:
        async with aclosing(stream_of(bus).subscribe(name, after=TaskVersion.MISSING)) as subscription:
            async for event in subscription:
                got[name].append(event)

    def have_got(count: int) -> Callable[[], bool]:
        return lambda: all(len(events) == count for events in got.values())

    async with shared_valkey.bus() as one, shared_valkey.bus() as other, anyio.create_task_group() as group:
        store = LanebusTaskStore(one)
        for name in names:
            await manager(store, name).save_task_event(new_task(name))
            group.start_soon(follow, other, name)
        await eventually(have_got(1))
        await eventually(lambda: blocked(shared_valkey) == 1)
        before = _reads(shared_valkey)
        for _ in range(500):
            shared_valkey.do("PING")
        assert _reads(shared_valkey) - before <= 1  # a block may have ended meanwhile, and the next begun
        for name in names:
            await manager(store, name).save_task_event(status(name, WORKING, "on"))
        await eventually(have_got(2))
        # For each event: the blocked read, and a read of both lanes, which also looks for the cursor's entry in both.
        assert _reads(shared_valkey) - before <= 5 * len(names)
        group.cancel_scope.cancel()


def _reads(server: RealServer) -> int:
    """Return how many commands that read streams the server has answered."""
    stats = str(server.do("INFO", "commandstats"))
    return sum(int(stats.partition(f"cmdstat_{name}:calls=")[2].partition(",")[0] or 0) for name in ("xread", "xrange"))


async def test_a_save_without_event_is_a_version_that_subscribers_do_not_see(bus: Bus) -> None:
    store = LanebusTaskStore(bus)
    version = await store.save(new_task("t"), prev_version=TaskVersion.MISSING, context=ANYONE)
    tasks = manager(store, "t")
    await tasks.save_task_event(status("t", WORKING, "one"))
    async with shortly():
        (found,) = await events(stream_of(bus), "t", 1)
    assert found.version.is_after(version)
    assert texts([found]) == ["one"]


async def test_a_subscription_ends_when_its_task_is_deleted_or_the_session_is_closed(bus: Bus) -> None:
    store = LanebusTaskStore(bus)
    for name, end in (("t", store.delete("t", ANYONE)), ("u", store.session("u").close()), ("u", None)):
        if end is not None:
            await manager(store, name).save_task_event(new_task(name))
        subscribed = LanebusEventStream(store).subscribe(name, after=TaskVersion.MISSING)
        async with aclosing(subscribed) as subscription, shortly():
            await anext(subscription)
            if end is not None:
                await end
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)


async def test_what_the_server_publishes_itself_is_not_doubled(bus: Bus) -> None:
    store = LanebusTaskStore(bus)
    stream, tasks = LanebusEventStream(store), manager(store, "t")
    task = await tasks.save_task_event(new_task("t"))
    assert task is not None
    await stream.publish("t", VersionedEvent(task, tasks.current_version))
    await stream.publish("u", VersionedEvent(Message(message_id="m"), TaskVersion.MISSING))
    await stream.destroy("t")
    await tasks.save_task_event(status("t", WORKING, "one"))
    async with shortly():
        first, second = await events(stream, "t", 2)
    assert first.event == new_task("t")
    assert texts([second]) == ["one"]
    assert (await bus.session("u").head()).position == 0


async def test_a_subscription_says_what_is_wrong_with_its_version_or_its_log(bus: Bus) -> None:
    stream = stream_of(bus)
    with pytest.raises(InvalidArgument, match="LanebusTaskStore"):
        await events(stream, "t", 1, TaskVersion("one"))
    with pytest.raises((InvalidArgument, InvalidCursor)):
        await events(stream, "t", 1, TaskVersion(-1))
    await bus.session("t").publish(ExtensionMessage.of("store.a2a.saved", "x"))
    with pytest.raises(DecodeError):
        await events(stream, "t", 1)
