"""A worker in its own process with an agent of pydantic-ai, for tests that kill it.

The arguments are URL NAME FILE. Each call of the tool `note` appends a line to FILE. The tool `wait` never returns in
the process with the name "victim".
"""

import sys
from pathlib import Path

import anyio
from pydantic_ai import Agent

from lanebus import Bus
from lanebus.agent import Worker
from lanebus.pydantic_ai import PydanticAgent
from tests.support.backends.pydantic_ai.agents import scripted

__all__ = ("agent_of", "main")


def agent_of(file: Path, name: str) -> PydanticAgent[None, str]:
    """Return the agent: it notes, notes and waits, and says a text."""
    agent = Agent(scripted({"note": '{"text": "a"}'}, {"note": '{"text": "b"}', "wait": "{}"}, "all is noted"))

    @agent.tool_plain
    def note(text: str) -> str:  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
        """Append a line."""
        with file.open("a") as lines:
            lines.write(f"{text}\n")
        return f"noted {text}"

    @agent.tool_plain
    async def wait() -> str:  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
        """Wait, in one process for ever."""
        if name == "victim":
            await anyio.sleep_forever()
        return "waited"

    return PydanticAgent(agent)


def main() -> None:
    """Work until killed."""
    anyio.run(_work)


async def _work() -> None:
    url, name, file = sys.argv[1:]
    async with Bus.open(url) as bus:
        await Worker(bus, agent_of(Path(file), name), name=name, heartbeat=1).run()


if __name__ == "__main__":
    main()
