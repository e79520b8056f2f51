"""Sessions belong to agents by name: addresses, wrong guesses, counts and handovers."""

import asyncio

import anyio
import pytest

from lanebus import Bounds, Bus, Conflict, Fenced, SetupError
from lanebus.bounds import PublishBounds
from lanebus.bus import Work
from lanebus.bus.errors import InvalidName, KeyReserved, NoSuchPosition, SessionClosed, SessionErased, WrongAgent
from lanebus.bus.messages import SessionAssigned, parse_event
from lanebus.bus.wire import Keys, Receipt
from lanebus.handlers.verify import verify_session
from tests.support.log.groups import held_lease, pending, take_all
from tests.support.log.said import assert_gap_free, read, said, told, word, words
from tests.support.servers.real import AnyServer, shortly

ONE_NAME = Bounds(publish=PublishBounds(sessions=1))
"""A process remembers the agent of one session."""


async def test_a_session_belongs_to_the_agent_of_its_first_message_and_others_are_refused(bus: Bus) -> None:
    await bus.session("s", agent="support").publish(said("a"))
    await bus.session("t").publish(said("b"), agent="billing")
    await bus.session("u").publish(told("c"))
    assert [(await bus.session(name).head()).agent for name in "stu"] == ["support", "billing", "agent"]
    await bus.session("s", agent="billing").publish(said("d"))  # the name of a handle is only for new sessions
    assert (await bus.session("s").head()).agent == "support"
    with pytest.raises(WrongAgent) as wrong:
        await bus.session("s").publish(said("b"), agent="billing")
    assert (wrong.value.session, wrong.value.given, wrong.value.actual) == ("s", "billing", "support")
    await bus.session("s").publish(said("c"), agent="support")
    assert await words(bus.session("s")) == ["a", "d", "c"]


async def test_names_of_agents_are_checked_before_anything_is_sent(bus: Bus) -> None:
    for name in ("", "two words", "x:y", "a" * 65):
        with pytest.raises(InvalidName):
            bus.session("s", agent=name)
        with pytest.raises(InvalidName):
            await bus.session("s").publish(said("a"), agent=name)
        with pytest.raises(InvalidName):
            bus.consumer("g", "c", agents=(name,))
        with pytest.raises(InvalidName):
            await bus.set_default_agent(name)
    with pytest.raises(SetupError):
        bus.consumer("g", "c", agents=())
    assert (await bus.session("s").head()).position == 0


@pytest.mark.parametrize("bounds", [None, ONE_NAME], ids=["", "one-name"])
async def test_publishes_of_a_process_that_does_not_know_the_agent_are_appended_once_and_in_order(
    bus: Bus, server: AnyServer, bounds: Bounds | None
) -> None:
    names = ("s", "t", "u")
    async with server.bus(bounds=bounds) as other:
        for name in names:
            await bus.session(name, agent=f"of-{name}").publish(said("first"))
        # Several batches: two appends to each session are in flight, both with the wrong name, waking or not.
        for number in range(3):
            async with anyio.create_task_group() as tasks:
                for name in names:
                    for at in range(40):
                        message = said(f"{number}.{at}") if at % 3 else told(f"{number}.{at}")
                        tasks.start_soon(other.session(name).publish, message)
        for name in names:
            entries = await read(other.session(name))
            assert_gap_free(entries)
            assert [word(each) for each in entries] == ["first", *(f"{n}.{at}" for n in range(3) for at in range(40))]
            assert (await other.session(name).head()).agent == f"of-{name}"


async def test_appends_in_flight_with_a_wrong_name_are_repeated_in_order_after_handovers(bus: Bus, other: Bus) -> None:
    await bus.session("s", agent="a0").publish(said("first"))
    late = other.session("s")

    async def hand_over() -> None:
        for number in range(1, 12):
            await bus.session("s").hand_over(f"a{number % 3}")

    publishes: list[asyncio.Future[Receipt]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hand_over)
        for number in range(300):
            publishes.append(asyncio.ensure_future(late.publish(said(f"{number}"))))
            if number % 5 == 0:
                await asyncio.sleep(0)
            if number % 50 == 0:
                await publishes[-1]
        await asyncio.gather(*publishes)
    entries = await read(late)
    assert_gap_free(entries)
    said_words = [word(each) for each in entries if each.lane.value == "llm"]
    assert said_words == ["first", *(str(number) for number in range(300))]
    assert len(entries) == 301 + 11
    assert (await late.head()).agent == "a2"


async def test_a_consumer_gets_only_the_sessions_of_its_agents(bus: Bus) -> None:
    for name, agent in (("s1", "support"), ("b1", "billing"), ("s2", "support"), ("d1", None)):
        await bus.session(name, agent=agent).publish(said("x"))
    async with (
        bus.consumer("g", "c1", agents=("support",)) as one,
        bus.consumer("g", "c2", agents=("billing", "agent")) as two,
    ):
        first, second = await take_all(one, 2), await take_all(two, 2)
        assert {(work.session, work.agent) for work in first} == {("s1", "support"), ("s2", "support")}
        assert {(work.session, work.agent) for work in second} == {("b1", "billing"), ("d1", "agent")}
        assert await one.heartbeat() == []
        await one.ack(*first)
        await two.ack(*second)
        assert (await bus.group_status("g")).pending == 0
        await bus.session("s1").publish(said("y"))
        await bus.session("b1").publish(said("y"))
        assert [work.session for work in await take_all(one, 1)] == ["s1"]
        assert [work.session for work in await take_all(two, 1)] == ["b1"]


async def test_a_letter_is_redriven_for_the_agent_that_has_the_session_by_then(bus: Bus) -> None:
    await bus.session("s", agent="support").publish(said("x"))
    async with bus.consumer("g", "c", agents=("support",)) as consumer:
        (work,) = await take_all(consumer, 1)
        await consumer.dead_letter(work, reason="no")
    await bus.session("s").hand_over("billing")
    async with bus.consumer("g", "c", agents=("billing",)) as consumer:
        (work,) = await take_all(consumer, 1)
        await consumer.ack(work)
        assert await bus.dead_letters("g").redrive_all() == 1
        (again,) = await take_all(consumer, 1)
        assert (again.session, again.is_retry) == ("s", True)
    assert await bus.dead_letters("g").count() == 0


async def test_the_default_agent_is_the_one_that_the_namespace_stores(server: AnyServer) -> None:
    async with server.bus() as bus:
        assert bus.default_agent == "agent"
        await bus.session("s").publish(said("a"))
        await bus.set_default_agent("support")
        await bus.session("t").publish(said("a"))
    async with server.bus() as bus:
        assert bus.default_agent == "support"
        await bus.session("u").publish(said("a"))
        assert [(await bus.session(name).head()).agent for name in "stu"] == ["agent", "support", "support"]
        assert [each.name for each in await bus.agents() if each.is_default] == ["support"]


async def _counts(bus: Bus) -> dict[str, int]:
    return {each.name: each.sessions for each in await bus.agents() if each.sessions}


async def test_sessions_are_counted_and_listed_by_agent(bus: Bus) -> None:
    for name, agent in (("s", "support"), ("t", "support"), ("u", "billing")):
        for _ in range(3):
            await bus.session(name, agent=agent).publish(said("x"))
    assert await _counts(bus) == {"support": 2, "billing": 1}
    await bus.session("t").hand_over("billing")
    await bus.session("t").hand_over("billing")
    assert await _counts(bus) == {"support": 1, "billing": 2}
    fork = await bus.session("t").fork(id="f")
    await bus.session("t").fork(id="f")
    assert (await fork.head()).agent == "billing"
    await bus.session("t").fork(id="g", agent="triage")
    assert await _counts(bus) == {"support": 1, "billing": 3, "triage": 1}
    await bus.session("s").erase()
    await bus.session("s").erase()
    assert await _counts(bus) == {"billing": 3, "triage": 1}
    assert sorted(head.session for head in await bus.sessions(agent="billing")) == ["f", "t", "u"]
    assert await bus.sessions(agent="support") == []
    with pytest.raises(SessionErased):
        await bus.session("s").hand_over("billing")


async def test_the_live_workers_of_each_agent_are_counted(bus: Bus) -> None:
    await bus.session("s", agent="support").publish(said("x"))
    assert dict(await bus.live_workers()) == {}
    (status,) = (each for each in await bus.agents() if each.name == "support")
    assert (status.sessions, status.waiting, status.workers) == (1, 1, 0)
    async with bus.consumer("agents", "c", agents=("support", "billing")) as consumer:
        works: list[Work] = await take_all(consumer, 1)
        assert dict(await bus.live_workers()) == {"support": 1, "billing": 1}
        (status,) = (each for each in await bus.agents() if each.name == "support")
        assert (status.waiting, status.workers) == (0, 1)
        await consumer.ack(*works)
        await consumer.deregister()
    assert dict(await bus.live_workers()) == {}


async def test_without_a_group_the_workers_and_waiting_sessions_of_all_groups_are_counted(bus: Bus) -> None:
    for name in "st":
        await bus.session(name, agent="support").publish(said("x"))
    async with (
        bus.consumer("agents", "c", agents=("support",)) as one,
        bus.consumer("blue", "c", agents=("support",)) as other,
    ):
        await one.ack(*await take_all(one, 2))
        await take_all(other, 1)
        assert dict(await bus.live_workers()) == {"support": 2}
        assert dict(await bus.live_workers("blue")) == {"support": 1}
        counts = {
            group: [(each.waiting, each.workers) for each in await bus.agents(group) if each.name == "support"]
            for group in (None, "agents", "blue")
        }
    assert counts == {None: [(1, 2)], "agents": [(0, 1)], "blue": [(1, 1)]}


async def test_a_trim_is_held_by_groups_of_the_sessions_own_agent_only(bus: Bus) -> None:
    async with bus.consumer("g", "c", agents=("support",)) as consumer:
        await bus.session("s", agent="support").publish(said("x"))
        await take_all(consumer, 1)
    preview = await bus.session("s").trim(2, dry_run=True)
    assert set(preview.holders) == {"g:g"}
    await bus.session("s").hand_over("billing")
    preview = await bus.session("s").trim(2, dry_run=True)
    assert preview.holders == {}


async def test_an_erased_session_leaves_nothing_in_the_keys_of_any_agent(bus: Bus, server: AnyServer) -> None:
    async with bus.consumer("g", "c", agents=("support",)) as consumer:
        await bus.session("s", agent="support").publish(said("x"))
        (work,) = await take_all(consumer, 1)
        await consumer.nack(work, delay=600, error="later")
    await bus.session("s").hand_over("billing")
    await bus.session("s").erase()
    keys, bucket = Keys(), Keys().bucket("s")
    for agent in ("support", "billing", "agent"):
        for name in (keys.order(bucket, agent), keys.due(bucket, agent, "g")):
            assert server.do("ZSCORE", name, "s") is None
        assert server.do("HEXISTS", keys.open(bucket, agent, "g"), "s") == 0
    async with shortly():
        assert server.do("HGET", keys.sessions(bucket), ":agents") == "{}"


async def test_a_handover_is_recorded_and_a_repeat_changes_nothing(bus: Bus) -> None:
    session = bus.session("s", agent="support")
    with pytest.raises(NoSuchPosition):
        await session.hand_over("billing")
    await session.publish(said("x"))
    with pytest.raises(Conflict):
        await session.hand_over("billing", expected=7)
    kept = await session.hand_over("support")
    assert (kept.position, kept.is_duplicate) == (0, True)
    receipt = await session.hand_over("billing", by="anna", reason="an invoice")
    assert (receipt.position, receipt.is_duplicate) == (2, False)
    again = await session.hand_over("billing", by="bob")
    assert (again.position, again.is_duplicate) == (2, True)
    message = (await read(session))[-1].message
    event = parse_event(message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # checked by the next line
    assert event == SessionAssigned(agent="billing", previous="support", by="anna", reason="an invoice")
    assert [(await session.hand_over(name)).position for name in ("support", "billing")] == [3, 4]
    async with bus.consumer("g", "c", agents=("support",)) as one, bus.consumer("g", "d", agents=("billing",)) as two:
        (work,) = await take_all(two, 1)
        assert (work.session, work.agent, work.position) == ("s", "billing", 4)
        await two.ack(work)
        await session.hand_over("support")
        (work,) = await take_all(one, 1)
        assert (work.session, work.agent, work.position) == ("s", "support", 5)
    await session.close()
    with pytest.raises(SessionClosed):
        await session.hand_over("billing")
    assert (await session.head()).agent == "support"


async def test_a_repeat_with_the_same_key_changes_nothing_after_another_handover(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s", agent="support")
        await session.publish(said("x"))
        unneeded = await session.hand_over("support", key="k0")
        first = await session.hand_over("billing", by="A", key="k1")
        same = await session.hand_over("billing", key="k2")  # the session belongs to it already
        await session.hand_over("legal", by="B", key="k3")
        for key, agent, known in (("k0", "support", unneeded), ("k1", "billing", first), ("k2", "billing", same)):
            again = await session.hand_over(agent, key=key)
            assert (again.position, again.is_duplicate) == (known.position, True)
        assert [each.position for each in (unneeded, first, same)] == [0, 2, 2]
        await session.close()
        assert (await session.hand_over("legal", by="B", key="k3")).position == 3
        head = await session.head()
        assert (head.agent, head.position) == ("legal", 4)
        with pytest.raises(KeyReserved):
            await session.hand_over("billing", key="lanebus:k")
        report = await verify_session(bus, "s")
    assert report is not None
    assert report.problems == ()


async def test_the_old_agents_worker_is_fenced_and_loses_the_work(bus: Bus, server: AnyServer) -> None:
    session = bus.session("s", agent="support")
    await session.publish(said("x"))
    async with bus.consumer("g", "c", agents=("support",), owner="w") as consumer:
        (work,) = await take_all(consumer, 1)
        lease = await held_lease(session, "w", 30)
        await session.hand_over("billing")
        with pytest.raises(Fenced):
            await session.publish(said("late"), epoch=lease.epoch)
        assert not await session.renew_lease(lease, 30)
        assert await consumer.heartbeat(work) == [work]
        await consumer.ack(work)  # too late: it changes nothing
        assert pending(server) == []
    with pytest.raises(WrongAgent):
        await bus.leases.take("s", "w", 30, agent="support")
    free = await session.acquire_lease("other", 30)  # at once, though the old lease had not expired
    assert free is not None
    assert (free.agent, free.epoch) == ("billing", lease.epoch + 2)
    async with bus.consumer("g", "d", agents=("billing",)) as consumer:
        assert [each.session for each in await take_all(consumer, 1)] == ["s"]


async def test_open_work_of_the_old_agent_is_dropped_wherever_it_is_found(bus: Bus, server: AnyServer) -> None:
    keys, bucket = Keys(), Keys().bucket("s")
    session = bus.session("s", agent="support")
    await session.publish(said("x"))
    async with bus.consumer("g", "c", agents=("support",)) as consumer:
        (work,) = await take_all(consumer, 1)
        entry = str(server.do("HGET", keys.open(bucket, "support", "g"), "s"))
        await session.hand_over("billing")
        assert server.do("HEXISTS", keys.open(bucket, "support", "g"), "s") == 0
        server.do("HSET", keys.open(bucket, "support", "g"), "s", entry)  # as if the caller had died in between
        await consumer.nack(work, delay=0.0, error="late")
        assert server.do("HEXISTS", keys.open(bucket, "support", "g"), "s") == 0
        await session.publish(said("y"))
        status = await bus.group_status("g")
        assert (status.lag, status.pending, status.retries) == (0, 0, 0)  # nothing for the old agent


async def test_a_release_of_a_lease_wakes_the_agent_that_an_empty_session_got_meanwhile(bus: Bus) -> None:
    session = bus.session("s", agent="support")
    lease = await held_lease(session, "w", 30)
    assert lease.agent == ""
    async with bus.consumer("g", "c", agents=("support",)) as consumer:
        await session.publish(said("x"))
        (work,) = await take_all(consumer, 1)
        assert await session.acquire_lease("other", 30) is None  # wanted
        await consumer.ack(work)
        await session.release_lease(lease)
        assert [each.session for each in await take_all(consumer, 1)] == ["s"]


async def test_a_change_that_names_the_agent_is_refused_after_a_handover(bus: Bus) -> None:
    session = bus.session("s", agent="support")
    await session.publish(said("x"), said("y"))
    await session.hand_over("billing", belongs_to="support", key="k1")
    for change in (
        session.hand_over("legal", belongs_to="support"),
        session.fork(1, id="f", belongs_to="support"),
        session.trim(2, agent="support"),
        session.trim(2, force=True, agent="support"),
        session.close(agent="support"),
        session.reopen(agent="support"),
    ):
        with pytest.raises(WrongAgent):
            await change
    assert (await session.hand_over("billing", belongs_to="support", key="k1")).is_duplicate
    head = await session.head()
    assert (head.agent, head.position, head.trimmed, await session.checkpoints()) == ("billing", 3, 0, {})
    fork = await session.fork(1, id="f", belongs_to="billing")
    assert (await fork.head()).agent == "billing"
    assert (await session.trim(2, force=True, agent="billing")).entries == 1
    await session.close(agent="billing")
    await session.reopen(agent="billing")
