"""An iterator that can be ended at any moment, whatever it is made of."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from typing import TypeVar

import anyio

__all__ = ("pumped",)

T = TypeVar("T")


async def pumped(items: AsyncIterable[T], ahead: int) -> AsyncGenerator[T, None]:
    """The same items, read by a task of its own; closed or cancelled, it ends what reads them before it returns.

    A generator that is closed between two items does not close those inside of it: they wait for the garbage collector,
    and with them the connection that they read from. A task that is cancelled while it waits for the next item closes
    them all.

    Args:
        ahead: items that are read and not taken yet, at most; one more waits for room.
    """
    send, receive = anyio.create_memory_object_stream[T](ahead)

    async def pump() -> None:
        with send:
            async for item in items:
                try:
                    await send.send(item)
                except (asyncio.CancelledError, anyio.BrokenResourceError):
                    # It was ended between two items. Cancelled where it waits for the next one, it closes them all.
                    if (task := asyncio.current_task()) is not None:
                        task.cancel()

    task = asyncio.create_task(pump())
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
            task.exception()  # taken note of, else the event loop complains of it
