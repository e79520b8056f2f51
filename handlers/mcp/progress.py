"""A server's progress notifications → what the user is told."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS

__all__ = ("Teller", "progress_text", "telling")

Say = Callable[[str], Awaitable[None]]


class Teller:
    """Takes in progress without waiting. Of what comes faster than it can be told, the newest is."""

    def __init__(self, pause: float = DEFAULT_MCP_BOUNDS.progress_pause) -> None:
        """`pause`: see `McpBounds.progress_pause`."""
        self._pause = pause
        self._text: str | None = None
        self._some = anyio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """See the SDK's `ProgressFnT`."""
        self._text = progress_text(progress, total, message)
        self._some.set()

    async def run(self, say: Say) -> None:
        """Tell what comes, one after the other, until cancelled."""
        while True:
            await self._some.wait()
            self._some = anyio.Event()
            text, self._text = self._text, None
            if text is not None:
                await say(text)
            await anyio.sleep(self._pause)


@asynccontextmanager
async def telling(say: Say, *, pause: float = DEFAULT_MCP_BOUNDS.progress_pause) -> AsyncGenerator[Teller, None]:
    """Tell progress for the length of the block; what was not told by then is made obsolete by the result.

    The block must not raise: errors would come out in a group.
    """
    teller = Teller(pause)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(teller.run, say)
        yield teller
        tasks.cancel_scope.cancel()


def progress_text(progress: float, total: float | None, message: str | None) -> str:
    """How far it is, in words: "reading (3 of 7)"."""
    amount = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
    return f"{message} ({amount})" if message else amount
