"""End a task that runs foreign code: cancel it once, wait for it, and abandon it if it does not end."""

import asyncio
import logging
from typing import TypeVar

import anyio

__all__ = ("end_task",)

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def end_task(task: asyncio.Future[T], name: str, *, seconds: float) -> bool:
    """Cancel a task and wait until the task has ended. Return whether it ended in time.

    The task is cancelled once, not at every await as a cancel scope would, so it can await its clean-up. The wait is
    shielded from cancellation. A task that does not end in time is cancelled once more and abandoned, so code that
    ignores cancellation does not block the caller.

    Args:
        task: a task that runs in no cancel scope of the caller.
        name: name of the code that the task runs, for the log.
        seconds: longest wait.
    """
    if not task.done():
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,), timeout=seconds)
    if task.done():
        return True
    _log.warning("%s did not end after it was cancelled, and is abandoned", name)
    task.cancel()
    task.add_done_callback(_forget)
    return False


def _forget(task: asyncio.Future[T]) -> None:
    """Retrieve the task's exception, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
