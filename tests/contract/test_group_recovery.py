"""Work is stored state: it survives lost wake-ups, lost state of its group, and late replies."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import cast

import anyio
import pytest

from lanebus.bounds import WorkBounds
from lanebus.bus import Bounds, Bus, Consumer, Work
from lanebus.bus.errors import GroupInUse, Unavailable
from lanebus.bus.groups.group_log import Fetched, GroupLog, Mode
from lanebus.bus.wire import AgentBucket, Cursor, Keys
from tests.support.log.groups import TINY, begin, pending, take_all, take_one, wake
from tests.support.log.late import Late
from tests.support.log.said import said, told
from tests.support.servers.real import AnyServer, RealServer, eventually, shortly

pytestmark = pytest.mark.cluster("each bucket has a connection of its own")

BUCKET = Keys().bucket("asked")
OTHERS = [name for number in range(10_000) if Keys().bucket(name := f"o{number}") == BUCKET][:20]
"""Sessions of the same bucket."""


async def crowd(bus: Bus, rounds: int = 3) -> None:
    """Append to other sessions of the bucket more entries than its streams keep; half of them wake workers."""
    for _ in range(rounds):
        for name in OTHERS:
            await bus.session(name).publish(said("x"), wake=True)
            await bus.session(name).publish(told("x"))


async def find(consumer: Consumer, session: str = "asked") -> None:
    """Fetch and acknowledge until a session comes, within a bounded time."""
    async with shortly():
        while True:
            works = await consumer.fetch(100)
            await consumer.ack(*works)
            if any(work.session == session for work in works):
                return


@pytest.mark.parametrize("is_held", [False, True], ids=["waiting", "of a dead consumer"])
async def test_work_is_given_whatever_else_is_appended(server: AnyServer, is_held: bool) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked")
        if is_held:
            async with bus.consumer("g", "dead", heartbeat=0.1) as dead:
                await take_one(dead)
        await crowd(bus)
        async with bus.consumer("g", "c", heartbeat=0.1 if is_held else 15.0) as consumer:
            await find(consumer)


@pytest.mark.full
async def test_twelve_thousand_appends_to_other_sessions_hide_nothing(bus: Bus, valkey: RealServer) -> None:
    """With the default bounds, the stream of wake-ups has its longest length."""
    await wake(bus, "asked", "held")
    async with bus.consumer("g", "dead", heartbeat=0.1) as dead:
        works = await take_all(dead, 2)
        await dead.nack(*(work for work in works if work.session == "asked"))
    for _ in range(12):
        async with anyio.create_task_group() as tasks:
            for number in range(1_000):
                session = bus.session(OTHERS[number % len(OTHERS)])
                tasks.start_soon(session.publish, told("x") if number % 2 else said("x"))
    found: set[str] = set()
    async with bus.consumer("g", "c", heartbeat=1.0) as consumer, shortly():
        while not {"asked", "held"} <= found:
            works = await consumer.fetch(100)
            found |= {work.session for work in works}
            await consumer.ack(*works)


@pytest.mark.parametrize("part", ["wake-ups", "notices"])
async def test_waiting_work_is_delivered_even_if_the_wake_ups_were_deleted(server: AnyServer, part: str) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked")
        server.do("DEL", Keys().wake_ups(BUCKET) if part == "wake-ups" else Keys().index(BUCKET))
        async with bus.consumer("g", "c") as consumer:
            await find(consumer)


async def test_a_waiting_consumer_finds_within_a_heartbeat_work_without_a_wake_up(server: AnyServer) -> None:
    lossy = Bounds(work=WorkBounds(wake_ups=0, sweep_seconds=3_600.0))
    async with server.bus(bounds=lossy) as bus, bus.consumer("g", "c", heartbeat=0.5) as consumer:
        await wake(bus, "first")
        await consumer.ack(await take_one(consumer))  # and has swept all buckets
        await wake(bus, "asked")
        assert (await take_one(consumer)).session == "asked"


async def test_a_worker_that_waits_during_its_work_is_woken_even_if_the_wake_up_was_lost(server: AnyServer) -> None:
    lossy = Bounds(work=WorkBounds(wake_ups=0, sweep_seconds=0.2))
    async with server.bus(bounds=lossy) as bus:
        session = bus.session("asked")
        position = (await session.publish(said("x"))).position
        async with shortly(), anyio.create_task_group() as tasks:
            tasks.start_soon(session.wait_for_wake_up, Cursor(position))
            await anyio.wait_all_tasks_blocked()
            await wake(bus, "asked")


async def test_an_entry_that_wakes_no_worker_writes_nothing_for_workers(bus: Bus, server: AnyServer) -> None:
    await wake(bus, "asked")
    before = state(server)
    for _ in range(5):
        await bus.session("asked").publish(told("x"), said("y"), wake=False)
    assert state(server) == before


async def test_the_order_of_work_is_bounded_by_the_sessions_there_are(bus: Bus, server: AnyServer) -> None:
    await crowd(bus)
    assert server.do("ZCARD", Keys().order(BUCKET, "agent")) == len(OTHERS)
    assert server.do("HLEN", Keys().woken(BUCKET)) == len(OTHERS) + 2
    for name in OTHERS:
        await bus.session(name).erase()
    assert server.do("ZCARD", Keys().order(BUCKET, "agent")) == 0
    assert server.do("HLEN", Keys().woken(BUCKET)) == 2


async def test_a_fork_begins_without_work_and_gets_its_own(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus, bus.consumer("g", "c") as consumer:
        await wake(bus, "asked")
        fork = await bus.session("asked").fork(id="fork")
        assert [work.session for work in await take_all(consumer, 1)] == ["asked"]
        await nothing_comes(consumer)
        await fork.publish(said("and you?"))
        work = await take_one(consumer)
        assert (work.session, work.position) == ("fork", 2)


async def test_a_new_group_begins_at_the_beginning_or_now(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked", "b")
        async with bus.consumer("g", "c") as consumer:
            await consumer.ack(*await take_all(consumer, 2))
        async with bus.consumer("late", "c") as consumer:
            assert sorted(work.session for work in await take_all(consumer, 2)) == ["asked", "b"]
        async with bus.consumer("now", "c", start="now") as consumer:
            await begin(server, consumer, "now")
            await wake(bus, "b")
            assert (await take_one(consumer)).session == "b"


async def test_an_acknowledgement_of_a_lost_log_does_not_cover_what_came_instead(bus: Bus, process: RealServer) -> None:
    """Positions are reused after a log lost its end; numbers of wake-ups are not."""
    async with bus.consumer("g", "c", heartbeat=600) as consumer:
        await wake(bus, "asked")
        work = await take_one(consumer)
        process.kill()
        process.start()
        await wake(bus, "asked")  # at position 2, where the consumer may have seen another entry
        await consumer.ack(work, seen={"asked": 99})
        again = await take_one(consumer)
        assert (again.session, again.position) == ("asked", 2)
        assert again.order - work.order >= 2**32
        await consumer.ack(again, seen={"asked": 99})
        assert (await bus.group_status("g")).lag == 0


async def test_a_removed_group_keeps_nothing_and_leaves_the_others_alone(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus:
        await wake(bus, "asked", "b")
        async with bus.consumer("g", "c") as one, bus.consumer("h", "c") as other:
            works = await take_all(one, 2)
            await one.ack(works[0])
            await one.dead_letter(works[1], reason="r")
            await take_all(other, 2)
            await one.deregister()
        await bus.remove_group("g")
        assert await bus.groups() == ("h",)
        assert (await bus.group_status("g")).dead == 0
        assert not [key for key in keys_of(server) if "g" in key.split(":")[-1:] or ":group:{g}" in key]
        assert "g:g" not in str(server.do("HKEYS", Keys().head("asked")))
        assert (await bus.group_status("h")).pending == 2
        async with bus.consumer("g", "c") as consumer:
            assert len(await take_all(consumer, 2)) == 2, "it begins anew"
        with pytest.raises(GroupInUse):
            await bus.remove_group("h")
        assert await bus.remove_group("h", force=True)


def keys_of(server: AnyServer) -> list[str]:
    """Return all keys that belong to work."""
    keys = [Keys().consumers(group) for group in ("g", "h")]
    for bucket in range(Keys().buckets):
        for group in ("g", "h"):
            keys += [*Keys().group_work(bucket, "agent", group), Keys().dead(bucket, group)]
    with server.talk() as say:
        return [key for key in dict.fromkeys(keys) if say("EXISTS", key)]


def state(server: AnyServer) -> list[object]:
    """Return what a bucket stores for workers."""
    order, woken, wake_ups = Keys().work(BUCKET, "agent")
    return [
        server.do("ZRANGE", order, "0", "-1", "WITHSCORES"),
        server.do("HGETALL", woken),
        server.do("XRANGE", wake_ups, "-", "+"),
    ]


BUCKET_OF_A = Keys().bucket("a")
WAKE_UPS, GROUPS = Keys().wake_ups(BUCKET_OF_A), Keys().groups(BUCKET_OF_A)


async def nothing_comes(consumer: Consumer) -> None:
    """Check that no work comes, with a fetch that is long enough for a sweep of all buckets."""
    with anyio.move_on_after(0.5) as scope:
        raise AssertionError(await consumer.fetch(100))
    assert scope.cancelled_caught


async def handled(bus: Bus, count: int) -> None:
    """Make a group that has handled `count` entries of one session."""
    async with bus.consumer("g", "first") as consumer:
        await wake(bus, *["a"] * count)
        await consumer.ack(await take_one(consumer))
    async with bus.consumer("g", "second") as consumer:
        await nothing_comes(consumer)


async def test_work_pending_when_a_groups_keys_were_deleted_is_delivered_again(bus: Bus, server: AnyServer) -> None:
    async with bus.consumer("g", "dead") as dead:
        await wake(bus, "a", "b", "c")
        await take_all(dead, 3)
        async with bus.consumer("g", "c") as consumer:
            await nothing_comes(consumer)
            for bucket in range(Keys().buckets):
                server.do("DEL", *Keys().group_work(bucket, "agent", "g")[3:])
            assert sorted(work.session for work in await take_all(consumer, 3)) == ["a", "b", "c"]


async def test_a_group_deleted_under_a_consumer_is_made_again(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    async with anyio.create_task_group() as tasks:
        await handled(bus, 2)
        found: list[int] = []

        async def serve() -> None:
            found.extend([(await take_one(consumer)).position])

        tasks.start_soon(serve)
        await anyio.wait_all_tasks_blocked()
        server.do("DEL", GROUPS)
        await wake(bus, "a")
        await eventually(lambda: bool(found))
        assert found[0] in {2, 3}


@pytest.mark.parametrize("place", ["lost", "9999999999999999 0", "none", "-1 0"])
async def test_a_group_without_its_keys_or_with_an_invalid_position_starts_anew(
    bus: Bus, consumer: Consumer, server: AnyServer, place: str
) -> None:
    await handled(bus, 3)
    if place == "lost":
        server.do("DEL", *Keys().group_work(BUCKET_OF_A, "agent", "g")[3:])
    else:
        server.do("HSET", GROUPS, "agent:g", place)
    work = await take_one(consumer)
    assert (work.session, work.position) == ("a", 3)


async def test_wake_ups_after_a_lost_order_or_server_are_given(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    await handled(bus, 5)
    server.do("DEL", *Keys().work(BUCKET_OF_A, "agent"))
    await wake(bus, "a")
    work = await take_one(consumer)
    assert work.position == 6
    await consumer.ack(work)
    server.do("FLUSHALL")
    await wake(bus, "b", "c")
    assert sorted(work.session for work in await take_all(consumer, 2)) == ["b", "c"]


async def test_work_of_a_consumer_without_a_stored_heartbeat_is_claimed(bus: Bus, server: AnyServer) -> None:
    """A server may lose the heartbeats of a consumer that then dies."""
    async with bus.consumer("g", "dead", heartbeat=0.05) as dead:
        await wake(bus, "a")
        await take_one(dead)
    server.do("DEL", Keys().consumers("g"))
    async with bus.consumer("g", "alive", heartbeat=0.05) as alive:
        work = await take_one(alive)
        assert (work.session, work.attempt) == ("a", 2)
        assert pending(server) == [("a", "alive")]


OTHER = next(name for number in range(10_000) if Keys().bucket(name := f"o{number}") == BUCKET_OF_A)
"""A session of the same bucket."""

RARE = Bounds(work=WorkBounds(sweep_seconds=600))
"""No sweep finds what was forgotten."""


def seldom(bus: Bus) -> Consumer:
    return bus.consumer("g", "c", heartbeat=600)


Ending = Callable[[Consumer, Work], Coroutine[object, object, object]]

ENDINGS: Mapping[str, tuple[str, Ending]] = {
    "acknowledged": ("ack", Consumer.ack),
    "put off": ("nack", lambda consumer, work: consumer.nack(work, delay=0)),
    "handed back": ("nack", Consumer.nack),
    "set aside": ("dead_letter", lambda consumer, work: consumer.dead_letter(work, reason="x")),
}


@pytest.mark.parametrize("when", ["before it", "after it"])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_session_woken_as_its_work_ends_is_delivered_even_if_that_reply_is_late(
    server: AnyServer, ending: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, end = ENDINGS[ending]
    async with server.bus(bounds=RARE) as bus, seldom(bus) as consumer, anyio.create_task_group() as tasks:
        await wake(bus, "a")
        work = await take_one(consumer)
        if when == "before it":
            await wake(bus, "a")
        late = Late(monkeypatch, step)
        tasks.start_soon(end, consumer, work)
        await late.done.wait()
        if when == "after it":
            await wake(bus, "a")
        again = await take_one(consumer)
        assert (again.session, again.position) == ("a", 2)
        late.told.set()
        await anyio.wait_all_tasks_blocked()
        await consumer.close()  # like a lost connection: the consumer asks the server which works it has
        await wake(bus, OTHER)
        other = await take_one(consumer)
        assert other.session == OTHER, "what is in hand is not given again"
        await consumer.ack(again, other)
        assert pending(server) == []


@pytest.mark.parametrize("mode", ["", "own"])
async def test_work_of_a_failed_ack_comes_again(server: AnyServer, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = anyio.Event(), anyio.Event()
    fetch = cast("Callable[..., Awaitable[dict[AgentBucket, Fetched]]]", GroupLog.fetch)

    async def held(*arguments: object, **others: object) -> dict[AgentBucket, Fetched]:
        fetched = await fetch(*arguments, **others)
        if others["mode"] == mode and fetched.get(AgentBucket(BUCKET_OF_A, "agent"), Fetched([], 0, None, ())).works:
            asked.set()
            await answered.wait()
        return fetched

    async def refused(*_: object) -> None:
        raise Unavailable("the test")

    async with server.bus(bounds=RARE) as bus, seldom(bus) as consumer, anyio.create_task_group() as tasks:
        await wake(bus, "a")
        work = await take_one(consumer)
        found: list[Work] = []

        async def take() -> None:
            found.append(await take_one(consumer))

        if mode == "own":  # by an earlier process of this name
            async with seldom(bus) as earlier:
                await wake(bus, OTHER)
                await take_all(earlier, 2)
            await consumer.close()
        monkeypatch.setattr(GroupLog, "fetch", held)
        tasks.start_soon(take)
        if mode == "":
            await wake(bus, OTHER)
        async with shortly():
            await asked.wait()
        with monkeypatch.context() as patch:
            patch.setattr(GroupLog, "ack", refused)
            with pytest.raises(Unavailable):
                await consumer.ack(work)
        answered.set()
        await eventually(lambda: bool(found))
        assert found[0].session == OTHER
        assert (await take_one(consumer)).session == "a"


async def test_a_sweep_finds_work_assigned_to_a_consumer_that_does_not_know_of_it(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus, bus.consumer("g", "c") as consumer, bus.consumer("g", "other") as other:
        await wake(bus, OTHER)
        kept = await take_one(consumer)
        await wake(bus, "a")
        await take_one(other)
        names = Keys().open(BUCKET_OF_A, "agent", "g")
        work = str(server.do("HGET", names, "a"))
        server.do("HSET", names, "a", work.replace("other", "c", 1))
        found = await take_one(consumer)
        assert (found.session, found.attempt) == ("a", 2)
        assert await consumer.heartbeat(kept, found) == []
