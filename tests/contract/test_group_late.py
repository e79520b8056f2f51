"""A consumer finishes work and fetches its session again before the reply to the former comes. No work is lost."""

from collections.abc import Callable, Coroutine, Mapping, Sequence

import anyio
import pytest

from lanebus import Bus, Unavailable
from lanebus.bounds import WorkBounds
from lanebus.bus import Bounds
from lanebus.bus.groups.group_log import Fetched, GroupLog, Mode
from lanebus.bus.servers.calls import Calling
from lanebus.bus.wire import AgentBucket, Keys
from lanebus.groups import Consumer, Work
from tests.support.log.groups import TINY, pending, take_all, take_one, wake
from tests.support.log.late import Late
from tests.support.servers.real import AnyServer, eventually, shortly

BUCKET = Keys().bucket("a")
OTHER = next(name for number in range(10_000) if Keys().bucket(name := f"o{number}") == BUCKET)
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
@pytest.mark.cluster("each bucket has a connection of its own")
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
@pytest.mark.cluster("each bucket has a connection of its own")
async def test_work_whose_ack_failed_during_a_fetch_is_delivered_again(
    server: AnyServer, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered, fetch = anyio.Event(), anyio.Event(), GroupLog.fetch

    async def held(
        self: GroupLog,
        connection: Calling,
        limits: Mapping[AgentBucket, int],
        held_sessions: Mapping[AgentBucket, Sequence[str]],
        **others: object,
    ) -> dict[AgentBucket, Fetched]:
        fetched = await fetch(self, connection, limits, held_sessions, **others)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        if others["mode"] == mode and fetched.get(AgentBucket(BUCKET, "agent"), Fetched([], 0, None, ())).works:
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


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_sweep_finds_work_assigned_to_a_consumer_that_does_not_know_of_it(server: AnyServer) -> None:
    async with server.bus(bounds=TINY) as bus, bus.consumer("g", "c") as consumer, bus.consumer("g", "other") as other:
        await wake(bus, OTHER)
        kept = await take_one(consumer)
        await wake(bus, "a")
        await take_one(other)
        names = Keys().open(BUCKET, "agent", "g")
        work = str(server.do("HGET", names, "a"))
        server.do("HSET", names, "a", work.replace("other", "c", 1))
        found = await take_one(consumer)
        assert (found.session, found.attempt) == ("a", 2)
        assert await consumer.heartbeat(kept, found) == []
