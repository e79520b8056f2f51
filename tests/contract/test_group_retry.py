"""Nacked work is delivered again to any consumer; a dead letter is not, until it is redriven."""

import anyio
import pytest

from lanebus.bounds import WorkBounds
from lanebus.bus import Bounds, Bus, Consumer, DeadLetter
from lanebus.bus.wire import Keys
from lanebus.errors import InvalidLetterId, TrimRefused
from tests.support.log.groups import pending, take_all, take_one, wake
from tests.support.log.said import said, told
from tests.support.servers.real import AnyServer, RealServer, background, eventually

pytestmark = pytest.mark.cluster("each bucket has a connection of its own")


async def server_milliseconds(bus: Bus) -> int:
    """Return the server's clock in milliseconds."""
    await bus.session("clock").publish(told("x"))
    return int((await bus.session("clock").head()).updated * 1000)


@pytest.mark.cluster("smoke test of retry")
@pytest.mark.sentinel("smoke test of retry")
async def test_nacked_work_is_given_when_due_with_its_error(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    await wake(bus, "a")
    work = await take_one(consumer)
    assert (work.attempt, work.error, work.is_retry) == (1, "", False)
    await consumer.nack(work, delay=0.3, error="429\nslow down")
    assert pending(server) == []
    due = int(str(server.do("ZSCORE", Keys().due(work.bucket, "agent", "g"), work.session)))
    again = await take_one(consumer)
    assert await server_milliseconds(bus) >= due
    assert (again.session, again.position, again.attempt, again.error) == ("a", 1, 2, "429\nslow down")
    assert again.is_retry
    await consumer.nack(again, delay=0, error="x", attempts=7)
    third = await take_one(consumer)
    assert (third.attempt, third.error) == (8, "x")
    await consumer.ack(third)
    status = await bus.group_status("g")
    assert (status.retries, status.next_retry, status.pending, status.lag) == (0, None, 0, 0)
    bucket = Keys().bucket("a")
    assert server.do("EXISTS", Keys().open(bucket, "agent", "g"), Keys().due(bucket, "agent", "g")) == 0


async def test_work_due_shortly_does_not_wait_for_the_next_sweep(server: AnyServer) -> None:
    bounds = Bounds(work=WorkBounds(sweep_seconds=3600.0))
    async with server.bus(bounds=bounds) as bus, bus.consumer("g", "c", heartbeat=3600) as consumer:
        await wake(bus, "a", "b")
        first, second = await take_all(consumer, 2)
        await consumer.nack(first, delay=0.3, error="")
        await consumer.nack(second, delay=0.6, error="")
        assert sorted(work.session for work in await take_all(consumer, 2)) == ["a", "b"]


async def test_due_work_goes_to_exactly_one_consumer(bus: Bus) -> None:
    async with bus.consumer("g", "dead") as dead:
        await wake(bus, *(f"s{number}" for number in range(20)))
        await dead.nack(*await take_all(dead, 20), delay=0)
        await dead.close()
        heard: list[str] = []
        async with background() as tasks:
            for number in range(3):

                async def serve(name: str = f"c{number}") -> None:
                    async with bus.consumer("g", name) as consumer:
                        while True:
                            works = await consumer.fetch(2)
                            heard.extend(work.session for work in works)
                            await consumer.ack(*works)

                tasks.start_soon(serve)
            await eventually(lambda: len(heard) >= 20)
        assert sorted(heard) == sorted(f"s{number}" for number in range(20))


async def test_work_of_a_dead_consumer_is_delivered_again_and_counts_the_attempt(bus: Bus) -> None:
    dead, alive = bus.consumer("g", "dead", heartbeat=0.2), bus.consumer("g", "alive", heartbeat=0.2)
    async with dead, alive:
        await wake(bus, "a")
        await dead.nack(await take_one(dead), delay=0)
        again = await take_one(dead)
        await dead.close()
        third = await take_one(alive)
        assert (third.session, third.attempt) == ("a", 3)
        await dead.ack(again)  # the other consumer has claimed it and keeps it
        assert await alive.heartbeat() == []
        await alive.ack(third)
        assert (await bus.group_status("g")).retries == 0


async def test_nacked_work_that_a_live_consumer_has_again_is_not_claimed(bus: Bus) -> None:
    holder, other = bus.consumer("g", "holder", heartbeat=2.5), bus.consumer("g", "other", heartbeat=2.5)
    async with holder, other:
        await wake(bus, "a")
        await holder.nack(await take_one(holder), delay=0)
        work = await take_one(holder)
        with anyio.move_on_after(6) as scope:
            async with anyio.create_task_group() as tasks:

                async def keep() -> None:
                    while True:
                        assert await holder.heartbeat(work) == []
                        await anyio.sleep(0.05)

                tasks.start_soon(keep)
                raise AssertionError(await other.fetch(1))
        assert scope.cancelled_caught


async def test_a_nack_repeated_after_a_lost_reply_applies_once(bus: Bus, consumer: Consumer, one: RealServer) -> None:
    await wake(bus, "a")
    work = await take_one(consumer)
    await consumer.nack(work, delay=60)
    await consumer.nack(work, delay=0)  # as a repeat is: it is not this consumer's any more
    status = await bus.group_status("g")
    assert status.retries == 1
    assert status.next_retry is not None
    assert 50 < status.next_retry <= 60


async def test_a_nacked_session_is_delivered_at_once_when_it_is_woken(bus: Bus, consumer: Consumer) -> None:
    """A command to the session must not wait."""
    await wake(bus, "a")
    await consumer.nack(await take_one(consumer), delay=600, error="slow")
    await wake(bus, "a")
    work = await take_one(consumer)
    assert (work.position, work.attempt, work.error, work.is_retry) == (2, 2, "slow", False)


async def test_a_session_woken_before_its_nack_is_delivered_at_once(bus: Bus, consumer: Consumer) -> None:
    async with bus.consumer("g", "other") as other:
        await wake(bus, "a")
        work = await take_one(consumer)
        await wake(bus, "a", "b")
        await other.ack(await take_one(other))  # and has looked at that wake-up, too
        await consumer.nack(work, delay=600, error="slow")
        assert (await take_one(other)).position == 2


async def test_groups_do_not_share_nacked_work(bus: Bus) -> None:
    async with bus.consumer("g", "c") as one, bus.consumer("h", "c") as other:
        await wake(bus, "a")
        await one.nack(await take_one(one), delay=0)
        work = await take_one(other)
        assert (work.attempt, work.is_retry) == (1, False)
        assert (await take_one(one)).is_retry


async def test_nacked_work_holds_up_a_trim_of_its_entries(bus: Bus, consumer: Consumer) -> None:
    await wake(bus, "a")
    await consumer.ack(await take_one(consumer))
    await wake(bus, "a", "a")
    await consumer.nack(await take_one(consumer), delay=600)
    with pytest.raises(TrimRefused) as caught:
        await bus.session("a").trim(4)
    assert caught.value.holders == {"g:g": 1}
    assert (await bus.session("a").trim(2)).first_kept == 2


async def test_nothing_is_kept_of_a_session_that_was_erased(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    async with bus.consumer("h", "c") as other:
        await wake(bus, "a", "b")
        (work,) = (work for work in await take_all(consumer, 2) if work.session == "a")
        (late,) = (work for work in await take_all(other, 2) if work.session == "a")
        await consumer.dead_letter(work, reason="secret", raw=b"secret")
        await wake(bus, "a")
        await consumer.nack(await take_one(consumer), delay=600, error="secret")
        assert await bus.dead_letters("g").count() == 1
        await bus.session("a").erase()
        assert await bus.dead_letters("g").count() == 0
        assert (await bus.group_status("g")).retries == 0
        await other.nack(late, delay=600, error="secret")  # a worker that does not know of it yet
        assert await other.dead_letter(late, reason="secret", raw=b"secret") == ""
        await other.ack(late)
        assert await bus.dead_letters("h").count() == 0
        assert (await bus.group_status("h")).retries == 0
        assert [name for name in _names(server) if _mentions(server, name, "a")] == [Keys().head("a")]


async def test_nothing_is_kept_of_a_session_half_erased(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    async with bus.consumer("h", "c") as other:
        await wake(bus, "a")
        await consumer.dead_letter(await take_one(consumer), reason="secret")
        late = await take_one(other)
        letters = [letter async for letter in bus.dead_letters("g").read()]
        keys, bucket = Keys(), Keys().bucket("a")
        server.do("DEL", keys.head("a"))
        server.do("HSET", keys.head("a"), "state", "erased")
        server.do("ZREM", keys.order(bucket, "agent"), "a")
        server.do("HDEL", keys.woken(bucket), "a")
        await other.nack(late, delay=600, error="secret")
        assert await bus.dead_letters("g").redrive(letters) == 0
        for group in ("g", "h"):
            status = await bus.group_status(group)
            assert (status.retries, status.dead, status.pending, status.lag) == (0, 0, 0, 0)
        assert server.do("HKEYS", keys.head("a")) == ["state"]


def _names(server: AnyServer) -> list[str]:
    keys, bucket = Keys(), Keys().bucket("a")
    names = [keys.head("a"), *keys.work(bucket, "agent"), keys.index(bucket), keys.sessions(bucket)]
    return [*names, *(name for group in ("g", "h") for name in keys.group_work(bucket, "agent", group)[3:])]


def _mentions(server: AnyServer, name: str, session: str) -> bool:
    if server.do("EXISTS", name) == 0:
        return False
    look = {"hash": ("HGETALL", name), "zset": ("ZRANGE", name, "0", "-1"), "stream": ("XRANGE", name, "-", "+")}[
        str(server.do("TYPE", name))
    ]
    return f"'{session}'" in str(server.do(*look)) or name == Keys().head(session)


# --- dead letters -------------------------------------------------------------------------------------------------


@pytest.mark.cluster("the letters and the open work of several nodes are merged")
async def test_failed_work_is_what_is_tried_again_and_what_was_given_up(bus: Bus, consumer: Consumer) -> None:
    failed = bus.failed_work()
    await wake(bus, "a", "b", "c")
    works = {work.session: work for work in await take_all(consumer, 3)}
    assert await failed.read() == {}
    await consumer.nack(works["a"], delay=600, error="slow down")
    await consumer.dead_letter(works["b"], reason="broken", attempts=3)
    await consumer.ack(works["c"])
    now = await failed.read()
    assert now.keys() == {"a", "b"}
    again, dead = now["a"], now["b"]
    assert (again.is_dead, again.is_held) == (False, False)
    assert (again.attempts, again.reason, again.delay) == (1, "slow down", 600)
    assert (dead.is_dead, dead.attempts, dead.reason, dead.group, dead.position) == (True, 3, "broken", "g", 1)
    (letter,) = [each async for each in bus.dead_letters("g").read()]
    assert dead.time == letter.time
    assert await failed.read() == now  # the letters are not read again
    assert await failed.read("b") == {"b": dead}
    assert await failed.read("c") == {}
    assert await bus.dead_letters("g").redrive_all() == 1
    redriven = (await failed.read())["b"]
    assert (redriven.is_dead, redriven.attempts, redriven.delay) == (False, 0, 0)
    taken = await take_one(consumer)
    assert (await failed.read())[taken.session].is_held


@pytest.mark.cluster("smoke test of dead_letter and of reading dead letters")
@pytest.mark.sentinel("smoke test of dead_letter and of reading dead letters")
async def test_a_dead_letter_says_what_was_set_aside_and_why(bus: Bus, consumer: Consumer, server: AnyServer) -> None:
    await wake(bus, "a", "b")
    first, second = sorted(await take_all(consumer, 2))
    letter_id = await consumer.dead_letter(first, reason="no\x00 such tool ü", attempts=3, raw=b"\x00\xff" * 20_000)
    letters = bus.dead_letters("g")
    (letter,) = [letter async for letter in letters.read()]
    assert letter == await letters.get(letter.id)
    assert letter.id == letter_id
    assert (letter.session, letter.position) == ("a", 1)
    assert (letter.reason, letter.attempts, letter.worker) == ("no\x00 such tool ü", 3, "c")
    assert (len(letter.raw), letter.size_bytes) == (16_384, 40_000)
    assert abs(letter.time - (await bus.session("a").head()).updated) < 60
    assert pending(server) == [("b", "c")]
    assert await consumer.dead_letter(first, reason="again") == ""
    await consumer.nack(second, delay=0)
    await consumer.dead_letter(await take_one(consumer), reason="r")
    assert (await letters.count(), await letters.count("a"), await letters.count("x")) == (2, 1, 0)
    assert (await bus.group_status("g")).dead == 2


@pytest.mark.cluster("smoke test of redrive")
@pytest.mark.sentinel("smoke test of redrive")
async def test_a_redriven_letter_is_delivered_once_as_if_never_tried(bus: Bus, consumer: Consumer) -> None:
    for name in ("a", "b", "b"):
        await wake(bus, name)
        await consumer.dead_letter(await take_one(consumer), reason="broken", attempts=5)
    before = [await bus.session(name).head() for name in ("a", "b")]
    letters = bus.dead_letters("g")
    chosen = [letter async for letter in letters.read("b")]
    assert await letters.redrive(chosen) == 2
    assert await letters.redrive(chosen) == 0
    work = await take_one(consumer)  # the session once, for both of its letters
    assert (work.session, work.attempt, work.error, work.is_retry) == ("b", 1, "broken", True)
    assert [letter.session async for letter in letters.read()] == ["a"]
    await consumer.ack(work)
    assert await letters.redrive_all() == 1
    work = await take_one(consumer)
    assert work.session == "a"
    await consumer.ack(work)
    assert [await bus.session(name).head() for name in ("a", "b")] == before
    assert await letters.redrive_all() == 0


async def test_a_letter_holds_up_no_trim_until_it_is_redriven(bus: Bus, consumer: Consumer) -> None:
    session = bus.session("a")
    for _ in range(3):
        await session.publish(said("x"))
    await consumer.dead_letter(await take_one(consumer), reason="broken")
    assert (await session.trim(2, dry_run=True)).holders == {}
    await bus.dead_letters("g").redrive_all()
    assert (await session.trim(4, dry_run=True)).holders == {"g:g": 2}
    await consumer.ack(await take_one(consumer))
    assert (await session.trim(4)).first_kept == 4


async def test_only_the_newest_letters_are_kept_and_the_dropped_ones_are_counted(server: AnyServer) -> None:
    bounds = Bounds(work=WorkBounds(dead_letters=3))
    async with server.bus(bounds=bounds) as bus, bus.consumer("g", "c") as consumer:
        for _ in range(5):
            await bus.session("a").publish(said("x"))
            await consumer.dead_letter(await take_one(consumer), reason="r")
        letters = bus.dead_letters("g")
        assert [letter.position async for letter in letters.read()] == [3, 4, 5]
        assert await letters.dropped() == (await bus.group_status("g")).dropped == 2


async def test_an_invalid_letter_id_is_refused(bus: Bus) -> None:
    letters = bus.dead_letters("g")
    for text in ("", "1-0", "64:1-0", "x:1-0", "1:1", "1:+", "1:1-0\n", "٣:1-0"):
        with pytest.raises(InvalidLetterId):
            await letters.get(text)
    assert await letters.get("1:1-0") is None
    gone = DeadLetter(
        id="1:1-0", session="a", position=1, reason="", attempts=1, time=0.0, worker="w", raw=b"", size_bytes=0
    )
    assert Keys().bucket("a") != 1
    with pytest.raises(InvalidLetterId):
        await letters.redrive([gone])
