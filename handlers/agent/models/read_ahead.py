"""An async iterator that reads ahead in a task of its own, and closes its source when it is closed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from typing import TypeVar

import anyio

__all__ = ("read_ahead",)

T = TypeVar("T")


async def read_ahead(items: AsyncIterable[T], limit: int) -> AsyncGenerator[T, None]:
    """Yield the items, which a separate task reads. Closing or cancelling this waits until the source is closed.

    Closing an async generator between two items leaves its nested generators, and their connection, to the garbage
    collector. Cancelling a task while it waits for an item closes them.

    Args:
        limit: most items in the buffer. One more is read and waits for room.
    """
    send, receive = anyio.create_memory_object_stream[T](limit)

    async def read() -> None:
        with send:
            async for item in items:
                try:
                    await send.send(item)
                except (asyncio.CancelledError, anyio.BrokenResourceError):
                    # Ended between two items. Cancel once more, in the wait for the next item, to close the source.
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
