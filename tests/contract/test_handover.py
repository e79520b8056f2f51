"""A session is handed over to another agent: once, in one step, and away from the worker that runs it."""

import pytest

from lanebus import Bus, Conflict, Fenced, Session, SessionClosed
from lanebus.bus.wire import Keys
from lanebus.errors import KeyReserved, NoSuchPosition, WrongAgent
from lanebus.handlers.verify import verify_session
from lanebus.messages import SessionAssigned, parse_event
from tests.support.log.groups import pending, take_all
from tests.support.log.said import read, said
from tests.support.servers.real import AnyServer


async def test_a_handover_is_recorded_and_a_repeat_changes_nothing(bus: Bus) -> None:
    session = bus.session("s", agent="support")
    await session.publish(said("x"))
    receipt = await session.hand_over("billing", by="anna", reason="an invoice")
    assert (receipt.position, receipt.is_duplicate) == (2, False)
    again = await session.hand_over("billing", by="bob")
    assert (again.position, again.is_duplicate) == (2, True)
    same = await bus.session("t", agent="support").publish(said("x"))
    assert same.position == 1
    kept = await bus.session("t").hand_over("support")
    assert (kept.position, kept.is_duplicate) == (0, True)
    message = (await read(session))[-1].message
    event = parse_event(message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # checked by the next line
    assert event == SessionAssigned(agent="billing", previous="support", by="anna", reason="an invoice")
    assert (await session.head()).position == 2


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


async def test_a_handover_back_and_forth_is_recorded_each_time(bus: Bus) -> None:
    session = bus.session("s", agent="a")
    await session.publish(said("x"))
    positions = [(await session.hand_over(name)).position for name in ("b", "a", "b")]
    assert positions == [2, 3, 4]
    async with bus.consumer("g", "c", agents=("a",)) as one, bus.consumer("g", "d", agents=("b",)) as two:
        (work,) = await take_all(two, 1)
        assert (work.session, work.agent, work.position) == ("s", "b", 4)
        await two.ack(work)
        await session.hand_over("a")
        (work,) = await take_all(one, 1)
        assert (work.session, work.agent, work.position) == ("s", "a", 5)


async def test_a_handover_is_refused_for_a_closed_or_empty_session_or_at_another_position(session: Session) -> None:
    with pytest.raises(NoSuchPosition):
        await session.hand_over("billing")
    await session.publish(said("x"))
    with pytest.raises(Conflict):
        await session.hand_over("billing", expected=7)
    await session.close()
    with pytest.raises(SessionClosed):
        await session.hand_over("billing")
    assert (await session.head()).agent == "agent"


async def test_the_old_agents_worker_is_fenced_and_loses_the_work(bus: Bus, server: AnyServer) -> None:
    session = bus.session("s", agent="support")
    await session.publish(said("x"))
    async with bus.consumer("g", "c", agents=("support",), owner="w") as consumer:
        (work,) = await take_all(consumer, 1)
        lease = await session.acquire_lease("w", 30)
        assert lease is not None
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


async def test_open_work_of_the_old_agent_is_dropped_wherever_it_is_found(server: AnyServer) -> None:
    keys, bucket = Keys(), Keys().bucket("s")
    async with server.bus() as bus:
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
    lease = await session.acquire_lease("w", 30)
    assert lease is not None
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
