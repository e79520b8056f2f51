"""A worker in its own process, for tests that kill, pause and stop it.

The arguments are URL NAME HEARTBEAT DELAY DRAIN. It runs the demo's agent, with DELAY seconds between two words.

It prints "told" each time it is asked to stop.
"""

import signal
import sys

import anyio

from lanebus import Bus
from lanebus.handlers.agent import Worker, demo_agent


def main() -> None:
    """Work until stopped."""
    anyio.run(_work)


async def _work() -> None:
    url, name, heartbeat, delay, drain = sys.argv[1:]
    async with Bus.open(url) as bus:
        agent = demo_agent(delay=float(delay))
        worker = Worker(bus, agent, name=name, heartbeat=float(heartbeat), drain_seconds=float(drain))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_when_told, worker)
            await worker.run()
            tasks.cancel_scope.cancel()


async def _stop_when_told(worker: Worker) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            worker.stop()
            print("told", flush=True)
