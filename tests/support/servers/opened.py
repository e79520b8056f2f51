"""Context managers as async fixtures."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

_T = TypeVar("_T")


@asynccontextmanager
async def opened(opening: AbstractAsyncContextManager[_T]) -> AsyncGenerator[_T, None]:
    """Enter and leave `opening` in one task, as a task group demands. The halves of an async fixture run in two."""
    found: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with opening as entered:
            found.set_result(entered)
            await over.wait()

    holding = asyncio.ensure_future(hold())
    await asyncio.wait((holding, found), return_when=asyncio.FIRST_COMPLETED)
    if holding.done():
        holding.result()
    yield found.result()
    over.set()
    await holding
