"""The memory that responses share: who waits, who is served first, and which clients are disconnected for it."""

import anyio
import pytest

from lanebus.handlers.serve.budget import ByteBudget, Share
from lanebus.handlers.serve.errors import ServerBusy
from tests.support.serve import UiBounds

__all__ = ()

TINY = UiBounds(memory_bytes=3, patience_seconds=0.01, wait_seconds=0.01)


def never() -> None:
    raise AssertionError("this client is not blocked")


async def test_a_response_waits_until_other_responses_give_their_bytes_back() -> None:
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


async def test_a_response_larger_than_the_budget_is_served_alone() -> None:
    budget = ByteBudget(TINY)
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


async def test_a_share_that_was_given_back_takes_nothing_more() -> None:
    budget = ByteBudget(TINY)
    share = budget.open(never)
    share.close()
    await share.take(2)
    share.keep(3)
    assert budget.held == 0


async def test_a_share_that_is_paid_for_by_another_takes_nothing_and_never_waits() -> None:
    budget = ByteBudget(TINY)
    async with budget.share(never) as whole:
        await whole.take(3)
        await whole.paid().take(100, seconds=TINY.wait_seconds)
        assert budget.held == 3
