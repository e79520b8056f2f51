"""A worker in its own process, for tests that kill it.

The argument DIR runs the demo's agent, slowly, on the embedded server in DIR. A URL runs it on the server at that URL.
"""

import sys
from pathlib import Path

import anyio

from lanebus import Bus
from lanebus.handlers.agent import Worker, demo_agent


def main() -> None:
    """Work until killed."""
    anyio.run(_work)


async def _work() -> None:
    place = sys.argv[1]
    async with Bus.open(place) if "://" in place else Bus.open(data_dir=Path(place)) as bus:
        await Worker(bus, demo_agent(delay=0.2), name="victim", heartbeat=1).run()
