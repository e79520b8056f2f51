"""Work that was put off comes again, to anybody; work that was set aside does not, until it is sent on again."""

import anyio
import pytest

from bus import Bus, DeadLetter, InvalidLetterId, TrimRefused
from bus.keys import Keys
from tests.support.log.groups import pending, ring, take_all, take_one, taking_nothing
from tests.support.log.said import said, told
from tests.support.servers.real import AnyServer, RealServer, blocked, eventually


async def server_milliseconds(bus: Bus) -> int:
    """The server's clock, as an entry shows it that is written now."""
    await bus.session("clock").publish(told("x"))
    return int((await bus.session("clock").head()).updated * 1000)


@pytest.mark.cluster("smoke test of retry")
@pytest.mark.sentinel("smoke test of retry")
async def test_work_that_was_put_off_comes_again_when_it_is_due_and_says_why(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a")
        work = await take_one(consumer)
        assert (work.attempt, work.error, work.is_retry) == (1, "", False)
        await consumer.retry(work, delay=0.3, error="429\nslow down")
        assert pending(server) == []
        due = int(str(server.do("ZSCORE", Keys().retry(work.bucket, "g"), work.pointer)))
        again = await take_one(consumer)
        assert await server_milliseconds(bus) >= due
        assert (again.session, again.position, again.attempt, again.error) == ("a", 1, 2, "429\nslow down")
        assert again.is_retry
        await consumer.retry(again, delay=0, error="x", attempts=7)
        third = await take_one(consumer)
        assert (third.attempt, third.error) == (8, "x")
        await consumer.ack(third)
        status = await bus.group_status("g")
        assert (status.retries, status.next_retry, status.pending, status.lag) == (0, None, 0, 0)
        assert server.do("EXISTS", Keys().retries(Keys().bucket("a")), Keys().retry(Keys().bucket("a"), "g")) == 0


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_what_is_due_a_little_later_does_not_wait_for_the_next_sweep(
    server: AnyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.leftovers.SWEEP_SECONDS", 3600.0)
    async with server.bus() as bus, bus.consumer("g", "c", heartbeat=3600) as consumer:
        await ring(bus, "a", "a")
        first, second = await take_all(consumer, 2)
        await consumer.retry(first, delay=0.3, error="")
        await consumer.retry(second, delay=0.6, error="")
        await consumer.ack(*await take_all(consumer, 1))
        assert [work.pointer for work in await take_all(consumer, 1)] == [second.pointer]


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_what_is_due_is_given_to_any_consumer_and_to_one_only(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "dead") as dead:
        await ring(bus, *(f"s{number}" for number in range(20)))
        await dead.retry(*await take_all(dead, 20), delay=0)
        await dead.close()
        heard: list[str] = []
        async with anyio.create_task_group() as tasks:
            for number in range(3):

                async def serve(name: str = f"c{number}") -> None:
                    async with bus.consumer("g", name) as consumer:
                        while True:
                            works = await consumer.take(2)
                            heard.extend(work.session for work in works)
                            await consumer.ack(*works)

                tasks.start_soon(serve)
            await eventually(lambda: len(heard) >= 20)
            tasks.cancel_scope.cancel()
        assert sorted(heard) == sorted(f"s{number}" for number in range(20))


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_work_whose_taker_died_comes_again_and_counts(server: AnyServer) -> None:
    async with server.bus() as bus:
        dead, alive = bus.consumer("g", "dead", heartbeat=0.2), bus.consumer("g", "alive", heartbeat=0.2)
        async with dead, alive:
            await ring(bus, "a")
            await dead.retry(await take_one(dead), delay=0)
            again = await take_one(dead)
            await dead.close()
            third = await take_one(alive)
            assert (third.session, third.attempt) == ("a", 3)
            await dead.ack(again)  # it was taken over, and is left to the other
            assert await alive.keep() == []
            await alive.ack(third)
            assert (await bus.group_status("g")).retries == 0


async def test_work_that_was_put_off_and_is_kept_is_not_taken_over(server: AnyServer) -> None:
    async with server.bus() as bus:
        holder, other = bus.consumer("g", "holder", heartbeat=600), bus.consumer("g", "other", heartbeat=600)
        async with holder, other:
            await ring(bus, "a")
            await holder.retry(await take_one(holder), delay=0)
            work = await take_one(holder)
            # As if its heartbeat were over; without the sign of life the other would be given it.
            server.do("ZADD", Keys().retry(work.bucket, "g"), "1", work.pointer)
            assert await holder.keep(work) == []
            await ring(bus, "a")
            assert (await take_one(other)).position == 2
            async with taking_nothing(other):
                await eventually(lambda: blocked(server) > 0)
            assert await holder.keep(work) == []


async def test_work_that_is_put_off_twice_in_one_answer_that_was_lost_is_put_off_once(one: RealServer) -> None:
    async with one.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a")
        work = await take_one(consumer)
        await consumer.retry(work, delay=60)
        await consumer.retry(work, delay=0)  # as a repeat is: it is not this consumer's any more
        status = await bus.group_status("g")
        assert status.retries == 1
        assert status.next_retry is not None
        assert 50 < status.next_retry <= 60


async def test_a_new_bell_is_given_while_its_session_waits(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a")
        await consumer.retry(await take_one(consumer), delay=600)
        await ring(bus, "a")
        assert (await take_one(consumer)).position == 2


async def test_groups_do_not_share_what_they_put_off(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as one, bus.consumer("h", "c") as other:
        await ring(bus, "a")
        await one.retry(await take_one(one), delay=0)
        work = await take_one(other)
        assert (work.attempt, work.is_retry) == (1, False)
        assert (await take_one(one)).is_retry


async def test_work_that_was_put_off_holds_what_it_needs_from_a_trim(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a", "a", "a")
        first, second, third = await take_all(consumer, 3)
        await consumer.ack(first, third)
        await consumer.retry(second, delay=600)
        with pytest.raises(TrimRefused) as caught:
            await bus.session("a").trim(4)
        assert caught.value.holders == {"g:g": 1}
        assert (await bus.session("a").trim(2)).first_kept == 2


async def test_nothing_is_kept_of_a_session_that_was_erased(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, *["a"] * 5, "b")
        works = [work for work in await take_all(consumer, 6) if work.session == "a"]
        await consumer.retry(works[0], delay=600, error="secret")
        await consumer.set_aside(works[1], reason="secret", raw=b"secret")
        assert await bus.dead_letters("g").count() == 1
        await bus.session("a").erase()
        assert await bus.dead_letters("g").count() == 0
        assert (await bus.group_status("g")).retries == 0
        await consumer.retry(works[2], delay=600, error="secret")  # a worker that has not heard of it
        assert await consumer.set_aside(works[3], reason="secret", raw=b"secret") == ""
        assert await bus.dead_letters("g").count() == 0
        assert (await bus.group_status("g")).retries == 0
        assert server.do("EXISTS", Keys().retries(Keys().bucket("a"))) == 0


async def test_nothing_is_kept_of_a_session_whose_erasure_has_only_begun(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, *["a"] * 4)
        works = await take_all(consumer, 4)
        await consumer.set_aside(works[0], reason="secret")
        letters = [letter async for letter in bus.dead_letters("g").read()]
        server.do("DEL", Keys().head("a"))
        server.do("HSET", Keys().head("a"), "state", "erased")
        await consumer.retry(works[1], delay=600, error="secret")
        assert await consumer.set_aside(works[2], reason="secret") == ""
        assert await bus.dead_letters("g").redrive(letters) == 0
        status = await bus.group_status("g")
        assert (status.retries, status.dead, status.pending) == (0, 0, 1)


# --- dead letters -------------------------------------------------------------------------------------------------


@pytest.mark.cluster("smoke test of set_aside and of reading dead letters")
@pytest.mark.sentinel("smoke test of set_aside and of reading dead letters")
async def test_a_dead_letter_says_what_was_set_aside_and_why(server: AnyServer) -> None:
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a", "a")
        first, second = await take_all(consumer, 2)
        letter_id = await consumer.set_aside(first, reason="no\x00 such tool ü", attempts=3, raw=b"\x00\xff" * 20_000)
        letters = bus.dead_letters("g")
        (letter,) = [letter async for letter in letters.read()]
        assert letter == await letters.get(letter.id)
        assert letter.id.endswith(letter_id)
        assert (letter.session, letter.position, letter.pointer) == ("a", 1, first.pointer)
        assert (letter.reason, letter.attempts, letter.worker) == ("no\x00 such tool ü", 3, "c")
        assert (len(letter.raw), letter.size_bytes) == (16_384, 40_000)
        assert abs(letter.time - (await bus.session("a").head()).updated) < 60
        assert pending(server) == [(second.pointer, "c")]
        assert await consumer.set_aside(first, reason="again") == ""
        await consumer.retry(second, delay=0)
        await consumer.set_aside(await take_one(consumer), reason="r")
        assert await letters.count() == await letters.count("a") == 2
        assert await letters.count("b") == 0
        assert (await bus.group_status("g")).dead == 2


@pytest.mark.cluster("smoke test of redrive")
@pytest.mark.sentinel("smoke test of redrive")
async def test_a_redriven_letter_comes_again_once_as_if_never_tried(
    server: AnyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.leftovers.SWEEP_SECONDS", 0.2)
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        await ring(bus, "a", "b", "b")
        for work in await take_all(consumer, 3):
            await consumer.set_aside(work, reason="broken", attempts=5)
        before = [await bus.session(name).head() for name in ("a", "b")]
        letters = bus.dead_letters("g")
        chosen = [letter async for letter in letters.read("b")]
        assert await letters.redrive(chosen) == 2
        assert await letters.redrive(chosen) == 0
        works = await take_all(consumer, 2)
        assert [(work.session, work.attempt, work.error) for work in works] == [("b", 1, "broken")] * 2
        assert [letter.session async for letter in letters.read()] == ["a"]
        await consumer.ack(*works)
        assert await letters.redrive_all() == 1
        await consumer.ack(await take_one(consumer))
        assert [await bus.session(name).head() for name in ("a", "b")] == before
        assert await letters.redrive_all() == 0


@pytest.mark.cluster("each bucket has a connection of its own")
async def test_only_the_newest_letters_are_kept_and_how_many_went_is_told(
    server: AnyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.group_log.DEAD_LETTERS", 3)
    async with server.bus() as bus, bus.consumer("g", "c") as consumer:
        for _ in range(5):
            await bus.session("a").publish(said("x"))
        for work in await take_all(consumer, 5):
            await consumer.set_aside(work, reason="r")
        letters = bus.dead_letters("g")
        assert [letter.position async for letter in letters.read()] == [3, 4, 5]
        assert await letters.dropped() == (await bus.group_status("g")).dropped == 2


async def test_an_id_that_is_none_is_refused(server: AnyServer) -> None:
    async with server.bus() as bus:
        letters = bus.dead_letters("g")
        for text in ("", "1-0", "64:1-0", "x:1-0", "1:1", "1:+", "1:1-0\n", "٣:1-0"):
            with pytest.raises(InvalidLetterId):
                await letters.get(text)
        assert await letters.get("1:1-0") is None
        gone = DeadLetter(
            id="1:1-0",
            session="a",
            position=1,
            pointer="1-0",
            reason="",
            attempts=1,
            time=0.0,
            worker="w",
            raw=b"",
            size_bytes=0,
        )
        assert Keys().bucket("a") != 1
        with pytest.raises(InvalidLetterId):
            await letters.redrive([gone])
