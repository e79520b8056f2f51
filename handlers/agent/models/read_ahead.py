"""An async generator that reads its source ahead in a separate task. Closing the generator also closes the source."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from typing import TypeVar

import anyio

__all__ = ("read_ahead",)

T = TypeVar("T")


async def read_ahead(items: AsyncIterable[T], limit: int) -> AsyncGenerator[T, None]:
    """Yield the items, which a separate task reads ahead.

    Closing or cancelling the generator cancels this task, and waits until `items` is closed. The cancellation is raised
    inside `items`, so generators nested in it, and their connection, are closed at once. Closing only `items` would
    leave these to the garbage collector.

    Args:
        limit: maximum number of items in the buffer. One more item is read and waits for room in the buffer.
    """
    send, receive = anyio.create_memory_object_stream[T](limit)

    async def read() -> None:
        with send:
            async for item in items:
                try:
                    await send.send(item)
                except (asyncio.CancelledError, anyio.BrokenResourceError):
                    # The cancellation hit between two items. Cancel again while waiting for the next item, to close the
                    # source.
                    if (task := asyncio.current_task()) is not None:
                        task.cancel()

    task = asyncio.create_task(read())
    try:
        with receive:
            async for item in receive:
                yield item
        await task
    finally:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # retrieved, else asyncio logs it
