"""Sessions belong to agents by name: addresses, wrong guesses, and counts."""

import asyncio

import anyio
import pytest

from lanebus import Bus, Receipt
from lanebus.bounds import PublishBounds
from lanebus.bus import Bounds
from lanebus.bus.wire import Keys
from lanebus.errors import InvalidName, SessionErased, SetupError, WrongAgent
from lanebus.groups import Work
from tests.support.log.groups import take_all
from tests.support.log.said import assert_gap_free, read, said, told, word, words
from tests.support.servers.real import AnyServer, shortly

ONE_NAME = Bounds(publish=PublishBounds(sessions=1))
"""A process remembers the agent of one session."""


async def test_a_session_belongs_to_the_agent_of_its_first_message(bus: Bus) -> None:
    await bus.session("s", agent="support").publish(said("a"))
    await bus.session("t").publish(said("b"), agent="billing")
    await bus.session("u").publish(told("c"))
    assert [(await bus.session(name).head()).agent for name in "stu"] == ["support", "billing", "agent"]
    await bus.session("s", agent="billing").publish(said("d"))  # the name of a handle is only for new sessions
    assert (await bus.session("s").head()).agent == "support"


async def test_a_publish_for_another_agent_is_refused_with_both_names(bus: Bus) -> None:
    await bus.session("s", agent="support").publish(said("a"))
    with pytest.raises(WrongAgent) as wrong:
        await bus.session("s").publish(said("b"), agent="billing")
    assert (wrong.value.session, wrong.value.given, wrong.value.actual) == ("s", "billing", "support")
    await bus.session("s").publish(said("c"), agent="support")
    assert await words(bus.session("s")) == ["a", "c"]


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
    server: AnyServer, bounds: Bounds | None
) -> None:
    names = ("s", "t", "u")
    async with server.bus() as bus, server.bus(bounds=bounds) as other:
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


async def test_appends_in_flight_with_a_wrong_name_are_sent_again_in_order_though_the_session_is_handed_over(
    bus: Bus, other: Bus
) -> None:
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
