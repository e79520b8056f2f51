"""An event loop that a test runs step by step, with buses held open on it, for tests whose steps are plain functions.

Between two steps nothing runs, as if the process had been stopped there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

import anyio

from lanebus import Bus

T = TypeVar("T")

PATIENCE = 120.0
"""seconds after which a step counts as endless"""


class Held:
    """An event loop and the buses that are open on it."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._open: dict[Bus, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    def run(self, step: Coroutine[object, None, T]) -> T:
        """Run one step to its end.

        Raises:
            TimeoutError: the step did not end.
        """
        return self._runner.run(_within(step))

    def open(self, make: Callable[[], AbstractAsyncContextManager[Bus]]) -> Bus:
        """Open a bus until it is closed. It has its own task, because the task that opens it must close it."""
        return self.run(self._hold(make))

    async def _hold(self, make: Callable[[], AbstractAsyncContextManager[Bus]]) -> Bus:
        opened: asyncio.Future[Bus] = asyncio.get_running_loop().create_future()
        over = asyncio.Event()

        async def hold() -> None:
            try:
                async with make() as bus:
                    opened.set_result(bus)
                    await over.wait()
            except BaseException as error:
                if not opened.done():
                    opened.set_exception(error)
                raise

        task = asyncio.create_task(hold())
        bus = await opened
        self._open[bus] = (over, task)
        return bus

    def close(self, bus: Bus) -> None:
        over, task = self._open.pop(bus)
        over.set()
        self.run(_ended(task))

    def close_all(self) -> None:
        for bus in list(self._open):
            self.close(bus)


@contextmanager
def held_loop() -> Generator[Held, None, None]:
    """Yield a loop for the block. Its buses are closed at the end."""
    with asyncio.Runner() as runner:
        held = Held(runner)
        try:
            yield held
        finally:
            held.close_all()


async def _within(step: Coroutine[object, None, T]) -> T:
    with anyio.fail_after(PATIENCE):
        return await step


async def _ended(task: asyncio.Task[None]) -> None:
    await task
