"""An agent that answers at once, and a worker process that runs it and says how far it is.

python -m bench.instant DIR [CONCURRENCY]    prints after each `SESSIONS` answers the monotonic time, in seconds
"""

import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio

from bus import AssistantMessage, Bus, TextBlock, Usage
from handlers.agent import AgentLoop, ModelRequest, Run, Worker
from handlers.providers.answer import ModelEvent

__all__ = ("SESSIONS", "InstantModel")

SESSIONS = 1_000


class InstantModel:
    """Says the same at once, in one piece."""

    provider = "bench"
    name = "instant"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The answer, and nothing before it."""
        del request
        yield AssistantMessage(
            content=(TextBlock(text="Yes."),), stop_reason="stop", usage=Usage(input=10, output=2, total_tokens=12)
        )


async def _main(data_dir: Path, concurrency: int) -> None:
    loop, answered = AgentLoop(InstantModel()), 0

    async def agent(run: Run) -> None:
        nonlocal answered
        await loop(run)
        answered += 1
        if answered % SESSIONS == 0:
            print(time.monotonic(), flush=True)

    async with Bus.open(data_dir=data_dir) as bus:
        await Worker(bus, agent, concurrency=concurrency).run()


if __name__ == "__main__":
    anyio.run(_main, Path(sys.argv[1]), int(sys.argv[2]))
