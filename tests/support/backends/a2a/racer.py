"""A process that saves a task repeatedly, always after the version that it has read, while others do the same.

    python -m tests.support.backends.a2a.racer URL NAMESPACE TASK NAME COUNT

It ends after COUNT saves, and prints how many more were refused.
"""

import sys

import anyio
from a2a.server.cluster import ConcurrentTaskModificationError
from a2a.types import TaskState

from lanebus import Bus
from lanebus.a2a import LanebusTaskStore
from tests.support.backends.a2a.tasks import manager, status


async def race(url: str, namespace: str, task: str, name: str, count: str) -> None:
    refused, saved = 0, 0
    async with Bus.open(url, namespace=namespace) as bus:
        store = LanebusTaskStore(bus)
        while saved < int(count):
            tasks = manager(store, task)
            await tasks.get_task()
            try:
                await tasks.save_task_event(status(task, TaskState.TASK_STATE_WORKING, f"{name} {saved}"))
            except ConcurrentTaskModificationError:
                refused += 1
            else:
                saved += 1
    print(refused)


if __name__ == "__main__":
    url, namespace, task, name, count = sys.argv[1:]
    anyio.run(race, url, namespace, task, name, count)
