"""A context that a fixture holds: pytest enters and leaves a fixture in different tasks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def held(manager: AbstractAsyncContextManager[T]) -> AsyncGenerator[T]:
    """Enter and leave a context in a task of its own, as a task group in it demands."""
    entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with manager as value:
            entered.set_result(value)
            await over.wait()

    task = asyncio.create_task(hold())
    await asyncio.wait((task, entered), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task  # raises
    yield await entered
    over.set()
    await task
