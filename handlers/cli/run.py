"""An async command in a process that may be told to end."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import anyio

from handlers.cli.exits import Terminated

__all__ = ("run",)

T = TypeVar("T")


def run(main: Callable[[], Awaitable[T]]) -> T:
    """What `main` gives. On Ctrl-C or SIGTERM it is cancelled, and what it has open is closed.

    Raises:
        KeyboardInterrupt, Terminated: it was.
    """

    async def guarded() -> T:
        with anyio.CancelScope() as scope:
            # Ctrl-C needs nothing: asyncio cancels the main task for it. Not on Windows, which has no such signals.
            with suppress(NotImplementedError, ValueError, RuntimeError):
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, scope.cancel)
            return await main()
        raise Terminated

    return anyio.run(guarded)
