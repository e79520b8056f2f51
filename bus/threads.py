"""The bus's own threads: blocking code of the process must not keep those that read files and hash media."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("run_in_thread",)

T = TypeVar("T")

_limiter: RunVar[CapacityLimiter] = RunVar("lanebus_threads")


async def run_in_thread(function: Callable[[], T], *, threads: int = 16, abandon: bool = False) -> T:
    """Call a function in a thread of the bus, and return what it returns.

    A call waits for a free thread. The threads are not those of `anyio.to_thread.run_sync` and `asyncio.to_thread`,
    which a program may fill with code that blocks.

    Args:
        function: the function.
        threads: maximum number of such threads of an event loop; its first call sets it.
        abandon: whether a cancelled call leaves the thread running. By default, it waits for the thread.

    Raises:
        Exception: any error of the function.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(threads)
        _limiter.set(limiter)
    return await run_sync(function, abandon_on_cancel=abandon, limiter=limiter)
