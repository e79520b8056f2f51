"""A worker in a process of its own, for tests that kill it.

python -m tests.handlers.agent_process DIR    runs the demo's agent, slowly, on the embedded server in DIR
"""

import sys
from pathlib import Path

import anyio

from bus import Bus
from handlers.agent.demo import demo_agent
from handlers.agent.worker import Worker

__all__ = ()


async def main() -> None:
    async with Bus.open(data_dir=Path(sys.argv[1])) as bus:
        await Worker(bus, demo_agent(delay=0.2), name="victim", lease_seconds=1).run()


if __name__ == "__main__":
    anyio.run(main)
