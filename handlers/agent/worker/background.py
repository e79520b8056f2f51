"""Run a worker in the background of an `async with` block."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager

import anyio

from lanebus.bus.exception_groups import first_error

__all__ = ("in_background",)


@asynccontextmanager
async def in_background(run: Callable[[], Coroutine[object, None, None]]) -> AsyncGenerator[None, None]:
    """Run a function during the block. The end of the block cancels the function and waits until it has ended.

    An error of the block or of the function is raised as it is, never in an exception group. An error of the function
    cancels the block. If both fail, the block's error is raised.
    """
    failure: BaseException | None = None
    # Not the scope of the task group, which would cancel the task of the block too. If that task is cancelled from
    # outside in the same step of the event loop, anyio 4.16 can take one cancellation for the other and drop both, so
    # the block would go on. It does so if the function has task groups of its own.
    running = anyio.CancelScope()

    async def run_in_scope() -> None:
        with running:
            await run()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_scope, name=getattr(run, "__qualname__", None))
            try:
                yield
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # raised below,
                failure = error  # outside of the task group, which would wrap it in an exception group
            running.cancel()
    except BaseExceptionGroup as group:
        failure = failure or first_error(group)
    if failure is not None:
        raise failure
