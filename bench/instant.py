"""An agent that answers at once, and a worker process that runs this agent and reports its progress.

python -m bench.instant DIR NAME HEARTBEAT    print the monotonic time, in seconds, after every `SESSIONS` answers
python -m bench.instant DIR NAME HEARTBEAT hang    start turns and end none
"""

import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio

from lanebus import AssistantMessage, Bus, TextBlock, Usage
from lanebus.agent import AgentLoop, ModelRequest, Run, Worker
from lanebus.handlers.agent import collect_rarely
from lanebus.handlers.providers import ModelEvent

__all__ = ("CONCURRENCY", "SESSIONS", "InstantModel")

SESSIONS = 1_000
CONCURRENCY = 256


class InstantModel:
    """A model that always gives the same answer, at once and without deltas."""

    provider = "bench"
    name = "instant"
    context_window = None

    def __init__(self, *, hangs: bool = False) -> None:
        self._hangs = hangs
        self.called = anyio.Event()
        """set by the next call of the model; replace the event to wait for another call"""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the whole answer. A model that hangs never yields."""
        del request
        self.called.set()
        if self._hangs:
            await anyio.sleep_forever()
        yield AssistantMessage(
            content=(TextBlock(text="Yes."),), stop_reason="stop", usage=Usage(input=10, output=2, total_tokens=12)
        )


async def _main(data_dir: Path, name: str, heartbeat: float, *, hangs: bool) -> None:
    loop, answered = AgentLoop(InstantModel(hangs=hangs)), 0

    async def agent(run: Run) -> None:
        nonlocal answered
        await loop(run)
        answered += 1
        if answered % SESSIONS == 0:
            print(time.monotonic(), flush=True)

    collect_rarely()  # as `lanebus worker` does
    async with Bus.open(data_dir=data_dir) as bus:
        print("ready", flush=True)
        await Worker(bus, agent, name=name, concurrency=CONCURRENCY, heartbeat=heartbeat).run()


if __name__ == "__main__":
    anyio.run(lambda: _main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), hangs=sys.argv[4:] == ["hang"]))
