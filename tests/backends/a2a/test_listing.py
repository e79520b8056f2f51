"""Lists of tasks: selected, ordered and paged as the SDK's own stores do it."""

import random

import pytest
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.types import ListTasksRequest, Task, TaskState
from a2a.utils.errors import InvalidParamsError

from lanebus import ExtensionMessage
from lanebus.a2a import BackendBounds, LanebusTaskStore
from tests.support.backends.a2a.tasks import ANYONE, call_of, manager, new_task, status
from tests.support.servers.real import AnyServer, RealServer
from tests.support.suite.scale import SEED

__all__ = ()

STATES = [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_INPUT_REQUIRED]


def timed(task: Task, seconds: int) -> Task:
    if seconds:
        task.status.timestamp.FromSeconds(seconds)
    return task


def requests() -> list[ListTasksRequest]:
    found = [ListTasksRequest(), ListTasksRequest(page_size=3), ListTasksRequest(context_id="c1")]
    found += [ListTasksRequest(status=state, page_size=2) for state in STATES]
    late = ListTasksRequest(page_size=4)
    late.status_timestamp_after.FromSeconds(3)
    return [*found, late]


@pytest.mark.cluster("the tasks are on several nodes")
async def test_the_pages_are_those_of_the_sdks_store(server: AnyServer) -> None:
    dice, theirs = random.Random(SEED), InMemoryTaskStore()  # noqa: S311  a test's dice
    async with server.bus() as bus:
        ours = LanebusTaskStore(bus)
        for _ in range(2):  # the second time some tasks are old, and some have changed
            for number in range(12):
                user = call_of(f"user{number % 2}")
                task = new_task(f"t{number}", context_id=f"c{dice.randrange(2)}")
                task.status.state = dice.choice(STATES)
                timed(task, dice.randrange(6))
                stored = await ours.get(task.id, user)
                if stored is not None and dice.random() < 0.5:
                    continue
                if stored is not None:
                    await ours.delete(task.id, user)
                await manager(ours, task.id, user).save_task_event(task)
                await theirs.save(task, user)
            for user in (call_of("user0"), call_of("user1"), call_of("nobody")):
                for asked in requests():
                    while True:
                        page, expected = await ours.list(asked, user), await theirs.list(asked, user)
                        assert page == expected
                        asked.page_token = page.next_page_token
                        if not asked.page_token:
                            break


@pytest.mark.parametrize("bounds", [BackendBounds(), BackendBounds(listed_sessions=1, reads_at_once=1)])
async def test_a_list_has_what_other_replicas_saved_and_not_what_was_deleted(
    shared_valkey: RealServer, bounds: BackendBounds
) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        store, lists = LanebusTaskStore(one), LanebusTaskStore(other, bounds=bounds)
        for name in ("t", "u", "v", "an id with spaces"):
            await manager(store, name).save_task_event(new_task(name))
        await bus_fork(store)
        await one.session("foreign", agent="a2a").publish(ExtensionMessage.of("progress"))
        await one.session("damaged", agent="a2a").publish(ExtensionMessage.of("store.a2a.saved", 5))
        assert {task.id for task in (await lists.list(ListTasksRequest(), ANYONE)).tasks} == {
            *("t", "u", "v", "an id with spaces", "fork")
        }
        await manager(store, "t").save_task_event(status("t", TaskState.TASK_STATE_COMPLETED))
        await store.delete("u", ANYONE)
        await store.session("v").erase()
        page = await lists.list(ListTasksRequest(), ANYONE)
        assert {task.id: task.status.state for task in page.tasks} == {
            "t": TaskState.TASK_STATE_COMPLETED,
            "an id with spaces": TaskState.TASK_STATE_SUBMITTED,
            "fork": TaskState.TASK_STATE_SUBMITTED,
        }
        assert page.total_size == 3


async def bus_fork(store: LanebusTaskStore) -> None:
    await store.session("t").fork(id="fork")


async def test_a_page_token_that_no_list_returned_is_refused(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        with pytest.raises(InvalidParamsError, match="page token"):
            await LanebusTaskStore(bus).list(ListTasksRequest(page_token="x"), ANYONE)
