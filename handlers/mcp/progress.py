"""Publish an MCP server's progress notifications, at a limited rate."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS

__all__ = ("ProgressReporter", "progress_text", "reporting")

Publish = Callable[[str], Awaitable[None]]


class ProgressReporter:
    """Receives progress without waiting. If progress arrives faster than it can be published, only the newest is
    published."""

    def __init__(self, pause: float = DEFAULT_MCP_BOUNDS.progress_pause_seconds) -> None:
        """`pause`: see `McpBounds.progress_pause_seconds`."""
        self._pause = pause
        self._text: str | None = None
        self._has_text = anyio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """See the SDK's `ProgressFnT`."""
        self._text = progress_text(progress, total, message)
        self._has_text.set()

    async def run(self, publish: Publish) -> None:
        """Publish progress until cancelled."""
        while True:
            await self._has_text.wait()
            self._has_text = anyio.Event()
            text, self._text = self._text, None
            if text is not None:
                await publish(text)
            await anyio.sleep(self._pause)


@asynccontextmanager
async def reporting(
    publish: Publish, *, pause: float = DEFAULT_MCP_BOUNDS.progress_pause_seconds
) -> AsyncGenerator[ProgressReporter, None]:
    """Yield a `ProgressReporter`, and publish the progress that it receives during the block.

    Progress that is unpublished at the end of the block is dropped: the tool's result replaces it. The block must not
    raise: its errors would be wrapped in an exception group.
    """
    reporter = ProgressReporter(pause)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reporter.run, publish)
        yield reporter
        tasks.cancel_scope.cancel()


def progress_text(progress: float, total: float | None, message: str | None, characters: int = 1_000) -> str:
    """Return progress as text, such as "reading (3 of 7)"."""
    amount = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
    return f"{message[:characters]} ({amount})" if message else amount
