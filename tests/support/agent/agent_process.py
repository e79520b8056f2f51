"""A worker in a process of its own, for tests that kill it.

python -m tests.support.agent.agent_process DIR    runs the demo's agent, slowly, on the embedded server in DIR
python -m tests.support.agent.agent_process URL    the same on the server there
"""

import sys
from pathlib import Path

import anyio

from bus import Bus
from handlers.agent.demo import demo_agent
from handlers.agent.worker import Worker

__all__ = ()


async def main() -> None:
    place = sys.argv[1]
    async with Bus.open(place) if "://" in place else Bus.open(data_dir=Path(place)) as bus:
        await Worker(bus, demo_agent(delay=0.2), name="victim", heartbeat=1).run()


if __name__ == "__main__":
    anyio.run(main)
