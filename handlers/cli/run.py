"""Run a coroutine function of a command, and cancel it on Ctrl-C or SIGTERM."""

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
    """Run `main`, and return its result. Ctrl-C and SIGTERM cancel `main`, so that it closes everything it has opened.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
        Terminated: the process received SIGTERM.
    """

    async def guarded() -> T:
        # Ctrl-C needs no handler: asyncio cancels the main task.
        with anyio.CancelScope() as scope, on_sigterm(scope.cancel):
            return await main()
        raise Terminated

    return anyio.run(guarded)


@contextmanager
def on_sigterm(callback: Callable[[], object]) -> Generator[None]:
    """Call `callback` on SIGTERM during the block, instead of ending the process. In nested blocks, only the innermost
    callback is called. Does nothing on Windows."""
    if sys.platform == "win32":  # Windows has no SIGTERM handlers
        yield
        return
    loop = asyncio.get_running_loop()
    outer = _callbacks.get()
    loop.add_signal_handler(signal.SIGTERM, callback)
    token = _callbacks.set(callback)
    try:
        yield
    finally:
        _callbacks.reset(token)
        if outer is None:
            loop.remove_signal_handler(signal.SIGTERM)
        else:
            loop.add_signal_handler(signal.SIGTERM, outer)


_callbacks: ContextVar[Callable[[], object] | None] = ContextVar("lanebus_sigterm", default=None)
