"""An async command in a process that may be told to end."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import anyio

from lanebus.handlers.cli.exits import Terminated

__all__ = ("on_sigterm", "run")

T = TypeVar("T")


def run(main: Callable[[], Awaitable[T]]) -> T:
    """What `main` gives. On Ctrl-C or SIGTERM it is cancelled, and what it has open is closed.

    Raises:
        KeyboardInterrupt, Terminated: it was.
    """

    async def guarded() -> T:
        # Ctrl-C needs nothing: asyncio cancels the main task for it.
        with anyio.CancelScope() as scope, on_sigterm(scope.cancel):
            return await main()
        raise Terminated

    return anyio.run(guarded)


@contextmanager
def on_sigterm(callback: Callable[[], object]) -> Generator[None]:
    """In this block SIGTERM calls back, and does nothing else. The innermost block counts."""
    if sys.platform == "win32":  # which has no such signal
        yield
        return
    loop = asyncio.get_running_loop()
    before = _callbacks.get()
    loop.add_signal_handler(signal.SIGTERM, callback)
    token = _callbacks.set(callback)
    try:
        yield
    finally:
        _callbacks.reset(token)
        if before is None:
            loop.remove_signal_handler(signal.SIGTERM)
        else:
            loop.add_signal_handler(signal.SIGTERM, before)


_callbacks: ContextVar[Callable[[], object] | None] = ContextVar("lanebus_sigterm", default=None)
