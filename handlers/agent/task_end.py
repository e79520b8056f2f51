"""The end of a task that runs foreign code: it is cancelled once, waited for, and left behind if it does not end."""

import asyncio
import logging
from typing import TypeVar

import anyio

__all__ = ("end_task",)

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def end_task(task: asyncio.Future[T], who: str, *, seconds: float) -> bool:
    """Cancel a task and wait until it has ended; gives whether it has.

    It is cancelled once, and not at every await as a scope would: what it awaits to clean up goes on. Whatever is
    cancelled meanwhile, this waits. A task that does not end in time is cancelled once more and left behind, so that
    code which ignores cancellation holds up nobody.

    Args:
        task: a task of its own, in no cancel scope of the caller's.
        who: runs in it, for the process's log.
        seconds: most time to wait.
    """
    if not task.done():
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,), timeout=seconds)
    if task.done():
        return True
    _log.warning("%s does not end after it was cancelled, and is left behind", who)
    task.cancel()
    task.add_done_callback(_forget)
    return False


def _forget(task: asyncio.Future[T]) -> None:
    """Look at how a task ended, which asyncio wants of somebody."""
    if not task.cancelled():
        task.exception()
