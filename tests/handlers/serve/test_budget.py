"""The memory that responses share, and turns at work that costs: who waits, who is next, and who gives up."""

from collections.abc import Callable, Coroutine

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from lanebus import ALL_LANES, UserMessage
from lanebus.handlers.context import RESTS, Breather
from lanebus.handlers.serve.api.entries import EntriesQuery, entries_json
from lanebus.handlers.serve.budget import ByteBudget, Share, Turns
from lanebus.handlers.serve.errors import ServerBusy, TooManyWaiting
from lanebus.handlers.serve.transfer import History
from tests.support.agent.agents import fresh_bus
from tests.support.serve import DEFAULT_UI_BOUNDS, UiBounds
from tests.support.servers.real import eventually

TINY = UiBounds(memory_bytes=3, patience_seconds=0.01, wait_seconds=0.01)


def never() -> None:
    raise AssertionError("this client is not blocked")


async def test_a_response_waits_for_the_bytes_of_others_and_one_larger_than_the_budget_is_served_alone() -> None:
    budget = ByteBudget(TINY)
    async with budget.share(never) as first, budget.share(never) as second:
        await first.take(2)
        assert second.take_nowait(2) is False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.take, 2)
            await anyio.wait_all_tasks_blocked()
            assert budget.held == 2
            first.keep(0)
        assert (first.held, second.held) == (0, 2)
    assert budget.held == 0
    async with budget.share(never) as large:
        await large.take(100)
        assert budget.held == 100


async def test_the_response_that_needs_the_fewest_bytes_is_served_first_and_equal_ones_in_turn() -> None:
    budget = ByteBudget(TINY)
    served = list[str]()

    async def serve(name: str, size: int) -> None:
        async with budget.share(never) as share:
            await share.take(size)
            served.append(name)

    async with anyio.create_task_group() as tasks, budget.share(never) as holder:
        await holder.take(3)
        for name, size in (("large", 3), ("second", 2), ("small", 1), ("third", 2)):
            tasks.start_soon(serve, name, size)
            await anyio.wait_all_tasks_blocked()
        holder.keep(0)
    assert served == ["small", "second", "third", "large"]


async def test_a_client_that_accepts_nothing_is_disconnected_when_another_response_waits() -> None:
    budget, gone = ByteBudget(TINY), anyio.Event()

    async def stall(*, task_status: anyio.abc.TaskStatus[Share]) -> None:
        async with budget.share(gone.set) as share:
            await share.take(3)
            share.blocked_at = anyio.current_time()
            task_status.started(share)
            await gone.wait()

    async with anyio.create_task_group() as tasks, budget.share(never) as live:
        await tasks.start(stall)
        with anyio.fail_after(30):
            await live.take(1)
        assert gone.is_set()


async def test_a_wait_that_is_too_long_raises_and_leaves_nothing_behind() -> None:
    budget = ByteBudget(TINY)
    async with budget.share(never) as holder, budget.share(never) as other:
        await holder.take(3)
        with pytest.raises(ServerBusy):
            await other.take(1, seconds=TINY.wait_seconds)
        holder.keep(2)
        assert other.take_nowait(1)


async def test_one_principal_holds_at_most_its_part_and_another_is_served_meanwhile() -> None:
    budget = ByteBudget(UiBounds(memory_bytes=10, principal_bytes=6, patience_seconds=0.01, wait_seconds=0.01))
    async with (
        budget.share(never, owner="mallory") as first,
        budget.share(never, owner="mallory") as second,
        budget.share(never, owner="bob") as other,
        anyio.create_task_group() as tasks,
    ):
        await first.take(5)
        assert not second.take_nowait(2)
        tasks.start_soon(second.take, 2)
        await anyio.wait_all_tasks_blocked()
        assert other.take_nowait(4), "bob waits for nothing that mallory waits for"
        assert budget.held == 9
        first.keep(0)
    assert budget.held == 0


async def test_the_principal_that_holds_the_fewest_bytes_is_served_first() -> None:
    budget = ByteBudget(UiBounds(memory_bytes=10, principal_bytes=10))
    served = list[str]()

    async def serve(owner: str) -> None:
        async with budget.share(never, owner=owner) as share:
            await share.take(2)
            served.append(owner)

    async with (
        budget.share(never, owner="mallory") as first,
        budget.share(never, owner="mallory") as second,
        anyio.create_task_group() as tasks,
    ):
        await first.take(8)
        await second.take(2)
        for owner in ("mallory", "mallory", "bob"):
            tasks.start_soon(serve, owner)
            await anyio.wait_all_tasks_blocked()
        second.keep(0)
    assert served == ["bob", "mallory", "mallory"]


async def test_a_principal_that_waits_for_its_own_part_disconnects_only_its_own_clients() -> None:
    budget, gone = ByteBudget(UiBounds(memory_bytes=20, principal_bytes=6, patience_seconds=0.01)), anyio.Event()
    async with budget.share(never, owner="bob") as other, budget.share(never, owner="mallory") as live:
        await other.take(5)
        other.blocked_at = anyio.current_time()
        async with anyio.create_task_group() as tasks:

            async def stall(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                async with budget.share(gone.set, owner="mallory") as share:
                    await share.take(6)
                    share.blocked_at = anyio.current_time()
                    task_status.started()
                    await gone.wait()

            await tasks.start(stall)
            with anyio.fail_after(30):
                await live.take(1)
        assert gone.is_set()
        assert other.held == 5


async def test_a_share_that_was_given_back_or_is_paid_for_by_another_takes_nothing_and_never_waits() -> None:
    budget = ByteBudget(TINY)
    share = budget.open(never)
    share.close()
    await share.take(2)
    share.keep(3)
    assert budget.held == 0
    async with budget.share(never) as whole:
        await whole.take(3)
        await whole.paid().take(100, seconds=TINY.wait_seconds)
        assert budget.held == 3


# --- turns ----------------------------------------------------------------------------------------------------------


def turns(at_once: int = 1, *, own: int = 1, begun: int = 10, queued: int = 100, seconds: float = 60.0) -> Turns:
    return Turns(at_once, own=own, begun=begun, queued=queued, seconds=seconds)


Work = Callable[[str], Coroutine[None, None, None]]


def working(shared: Turns) -> tuple[Turns, list[str], Work]:
    """Return turns, who has worked, and what works in a turn of an owner."""
    worked = list[str]()

    async def work(owner: str) -> None:
        async with shared.turn(owner):
            worked.append(owner)

    return shared, worked, work


async def test_principals_go_round_and_the_requests_of_one_wait_behind_each_other() -> None:
    shared, worked, work = working(turns())
    async with anyio.create_task_group() as tasks, shared.turn("first"):
        for owner in ("mallory", "mallory", "mallory", "bob", "carol", "bob"):
            tasks.start_soon(work, owner)
            await anyio.wait_all_tasks_blocked()
    assert worked == ["mallory", "bob", "carol", "mallory", "bob", "mallory"]


async def test_work_that_rests_lets_another_principal_work_and_then_goes_on() -> None:
    shared, worked, work = working(turns())
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
    shared, worked, work = working(turns())
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
    (shared, worked, work), back = working(turns(begun=2)), anyio.Event()

    async def list_slowly(owner: str) -> None:
        async with shared.turn(owner) as turn, turn.away():
            worked.append(f"list of {owner}")
            await back.wait()

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
    async with fresh_bus() as bus, ByteBudget().share(lambda: None, owner="mallory") as share:
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
