"""Run functions in the background of an `async with` block."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager

import anyio

from lanebus.bus.exception_groups import first_error

__all__ = ("in_background",)


@asynccontextmanager
async def in_background(*functions: Callable[[], Coroutine[object, None, None]]) -> AsyncGenerator[None, None]:
    """Run functions during the block. The end of the block cancels the functions and waits until they have ended.

    An error of the block or of a function is raised as it is, never in an exception group. An error of a function
    cancels the others and the block. If the block fails too, the block's error is raised.
    """
    failure: BaseException | None = None
    # Not the scope of the task group, which would cancel the task of the block too. If that task is cancelled from
    # outside in the same step of the event loop, anyio 4.16 can take one cancellation for the other and drop both, so
    # the block would go on. It does so if a function has task groups of its own.
    scopes = [anyio.CancelScope() for _ in functions]

    async def run(function: Callable[[], Coroutine[object, None, None]], scope: anyio.CancelScope) -> None:
        with scope:
            await function()

    try:
        async with anyio.create_task_group() as tasks:
            for function, scope in zip(functions, scopes, strict=True):
                tasks.start_soon(run, function, scope, name=getattr(function, "__qualname__", None))
            try:
                yield
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # raised below,
                failure = error  # outside of the task group, which would wrap it in an exception group
            for scope in scopes:
                scope.cancel()
    except BaseExceptionGroup as group:
        failure = failure or first_error(group)
    if failure is not None:
        raise failure
