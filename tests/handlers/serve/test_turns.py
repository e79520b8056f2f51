"""Turns of principals at work that costs: who works next, and what waits, rests or gives up."""

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from lanebus import ALL_LANES, UserMessage
from lanebus.handlers.context import RESTS, Breather
from lanebus.handlers.serve.api.entries import EntriesQuery, entries_json
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS
from lanebus.handlers.serve.budget import ByteBudget, Turns
from lanebus.handlers.serve.errors import ServerBusy, TooManyWaiting
from lanebus.handlers.serve.transfer import History
from tests.support.page.serving import temporary_bus
from tests.support.servers.real import eventually

__all__ = ()


def turns(at_once: int = 1, *, own: int = 1, begun: int = 10, queued: int = 100, seconds: float = 60.0) -> Turns:
    return Turns(at_once, own=own, begun=begun, queued=queued, seconds=seconds)


async def test_principals_go_round_and_the_requests_of_one_wait_behind_each_other() -> None:
    shared, worked = turns(), list[str]()

    async def work(owner: str) -> None:
        async with shared.turn(owner):
            worked.append(owner)

    async with anyio.create_task_group() as tasks, shared.turn("first"):
        for owner in ("mallory", "mallory", "mallory", "bob", "carol", "bob"):
            tasks.start_soon(work, owner)
            await anyio.wait_all_tasks_blocked()
    assert worked == ["mallory", "bob", "carol", "mallory", "bob", "mallory"]


async def test_work_that_rests_lets_another_principal_work_and_then_goes_on() -> None:
    shared, worked = turns(), list[str]()

    async def work(owner: str) -> None:
        async with shared.turn(owner):
            worked.append(owner)

    async with anyio.create_task_group() as tasks, shared.turn("mallory") as turn:
        tasks.start_soon(work, "mallory")
        tasks.start_soon(work, "bob")
        await anyio.wait_all_tasks_blocked()
        assert worked == []
        await turn.rest()
        worked.append("long work of mallory")
        await turn.rest()
        assert worked == ["bob", "long work of mallory"], "mallory's own request waits until the first has ended"
    assert worked[2:] == ["mallory"]


async def test_work_that_is_away_lets_a_later_request_of_another_principal_work_and_then_goes_on() -> None:
    shared, worked = turns(), list[str]()

    async def work(owner: str) -> None:
        async with shared.turn(owner):
            worked.append(owner)

    async with anyio.create_task_group() as tasks, shared.turn("mallory") as turn:
        async with turn.away(), turn.away():
            tasks.start_soon(work, "mallory")
            tasks.start_soon(work, "bob")
            await anyio.wait_all_tasks_blocked()
        tasks.start_soon(work, "carol")
        await anyio.wait_all_tasks_blocked()
        assert worked == ["mallory", "bob"]
    assert worked[2:] == ["carol"]


async def test_work_that_is_away_takes_no_place_from_others_nor_from_the_next_request_of_its_principal() -> None:
    shared, worked, back = turns(begun=2), list[str](), anyio.Event()

    async def list_slowly(owner: str) -> None:
        async with shared.turn(owner) as turn, turn.away():
            worked.append(f"list of {owner}")
            await back.wait()

    async def work(owner: str) -> None:
        async with shared.turn(owner):
            worked.append(owner)

    async with anyio.create_task_group() as tasks:
        for owner in ("mallory", "eve", "trudy", "mallory"):
            tasks.start_soon(list_slowly, owner)
        await anyio.wait_all_tasks_blocked()
        assert worked == [f"list of {owner}" for owner in ("mallory", "eve", "trudy", "mallory")]
        tasks.start_soon(work, "mallory")
        tasks.start_soon(work, "eve")
        await anyio.wait_all_tasks_blocked()
        assert worked[4:] == ["eve"], "two lists of mallory are away"
        back.set()
    assert worked[5:] == ["mallory"]


async def test_a_principal_works_at_one_request_while_others_have_room() -> None:
    shared, begun = turns(2), list[str]()
    over = anyio.Event()

    async def work(owner: str) -> None:
        async with shared.turn(owner):
            begun.append(owner)
            await over.wait()

    async with anyio.create_task_group() as tasks:
        for owner in ("mallory", "mallory", "bob"):
            tasks.start_soon(work, owner)
            await anyio.wait_all_tasks_blocked()
        assert begun == ["mallory", "bob"]
        over.set()


async def test_no_more_works_begin_than_may_rest_at_the_same_time() -> None:
    shared, begun = turns(begun=2), list[str]()
    over = anyio.Event()

    async def work(owner: str) -> None:
        async with shared.turn(owner) as turn:
            begun.append(owner)
            while not over.is_set():
                await turn.rest()
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for owner in ("a", "b", "c"):
            tasks.start_soon(work, owner)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert begun == ["a", "b"]
        over.set()
    assert begun == ["a", "b", "c"]


async def test_a_principal_with_too_many_waiting_requests_is_refused_and_others_are_not() -> None:
    shared = turns(queued=1)
    async with anyio.create_task_group() as tasks, shared.turn("first"):

        async def wait(owner: str) -> None:
            async with shared.turn(owner):
                pass

        tasks.start_soon(wait, "mallory")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(TooManyWaiting):
            await wait("mallory")
        tasks.start_soon(wait, "bob")
        await anyio.wait_all_tasks_blocked()


async def test_a_wait_that_is_too_long_or_cancelled_leaves_nothing_behind() -> None:
    shared = turns(seconds=0.01)
    async with shared.turn("first"):
        with pytest.raises(ServerBusy):
            async with shared.turn("bob"):
                pytest.fail("the first one still works")
    patient = turns()
    async with anyio.create_task_group() as tasks, patient.turn("first"):

        async def wait() -> None:
            async with patient.turn("bob"):
                pass

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    for each in (shared, patient):
        async with each.turn("carol") as turn:
            assert turn.is_held


async def test_a_rest_that_finds_no_turn_in_time_ends_the_work_and_frees_its_place() -> None:
    shared, over = turns(seconds=0.01), anyio.Event()

    async def hold() -> None:
        async with shared.turn("bob"):
            await over.wait()

    async def rest(tasks: TaskGroup) -> None:
        async with shared.turn("mallory") as turn:
            tasks.start_soon(hold)
            await anyio.wait_all_tasks_blocked()
            await turn.rest()

    async with anyio.create_task_group() as tasks:
        with pytest.raises(ServerBusy):
            await rest(tasks)
        over.set()
    async with shared.turn("mallory") as again:
        assert again.is_held


async def test_long_work_of_the_processor_rests_at_each_pause() -> None:
    rested = 0

    async def rest() -> None:
        nonlocal rested
        rested += 1

    async def pause() -> None:
        await Breather(0.0).pause()

    await pause()
    assert rested == 0
    token = RESTS.set(rest)
    try:
        await pause()
    finally:
        RESTS.reset(token)
    assert rested == 1


@pytest.mark.parametrize("query", [EntriesQuery(ALL_LANES, since=1e10), EntriesQuery(ALL_LANES, before_time=1.0)])
async def test_a_search_by_time_that_finds_nothing_has_its_turn_at_reading(query: EntriesQuery) -> None:
    history, found = History(DEFAULT_UI_BOUNDS), list[bytes]()
    history.reads = turns()
    async with temporary_bus() as bus, ByteBudget().share(lambda: None, owner="mallory") as share:
        session = bus.session("s1")
        await session.publish(*(UserMessage.text("x") for _ in range(5)))

        async def answered() -> None:
            parts = entries_json(session, query, share, history, right=None, bounds=DEFAULT_UI_BOUNDS)
            found.extend([part async for part in parts])

        async with anyio.create_task_group() as tasks, history.reads.turn("bob"):
            tasks.start_soon(answered)
            await eventually(lambda: bool(found) or history.reads.has_others("bob"))
            assert found == []
        assert found
