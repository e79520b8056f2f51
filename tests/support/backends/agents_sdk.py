"""Agents of OpenAI's Agents SDK that answer without a provider, for tests and for processes that tests kill.

    python -m tests.support.backends.agents_sdk append URL SESSION     append batches of three items until killed
    python -m tests.support.backends.agents_sdk work URL NAME STEPS    run `shop_agent` in a worker until killed

`append` prints a number after each batch is acknowledged. `work` prints "running" when the tool `wait` runs; STEPS is
the JSON of the model's answers: a text, or a list of the name of a tool and its arguments.
"""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import count

import anyio
from agents import Agent, TResponseInputItem, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from lanebus import Bus
from lanebus.agent import Worker
from lanebus.openai_agents import LanebusSession, RunnerAgent
from tests.support.paths import ROOT

__all__ = ("Step", "add", "main", "process", "scripted", "shop_agent", "user")

Step = str | Sequence[object]
"""an answer: a text; or the name of a tool and its arguments"""


def user(text: str) -> TResponseInputItem:
    """Return an item with a text of the user."""
    return {"role": "user", "content": text}


@function_tool
def add(one: int, other: int) -> str:
    """Add two numbers."""
    return str(one + other)


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


def scripted(*steps: Step) -> ScriptedModel:
    """Return a model that gives these answers. Each has used 20 tokens of input, 8 of them cached, and 5 of output."""
    return ScriptedModel([_step(step, number) for number, step in enumerate(steps)])


def _step(step: Step, number: int) -> ModelStep:
    usage = Usage(
        requests=1,
        input_tokens=20,
        output_tokens=5,
        total_tokens=25,
        input_tokens_details=InputTokensDetails(cached_tokens=8, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
    )
    if isinstance(step, str):
        return ModelStep(output=[assistant_message(step)], usage=usage)
    name, arguments = step
    call = function_call(str(name), json.dumps(arguments), call_id=f"call-{name}-{number}")
    return ModelStep(output=[call], usage=usage)


def shop_agent(
    *steps: Step,
    expert: Sequence[Step] = (),
    waiting: Callable[[], None] = lambda: None,
    model: ScriptedModel | None = None,
) -> Agent[None]:
    """Return an agent with the tools `add`, `refund` (asks a person) and `wait` (never returns), and an expert.

    Args:
        steps: the answers of its model.
        expert: the answers of the agent that it hands over to.
        waiting: called when `wait` runs.
        model: used instead of `steps`.
    """

    @function_tool
    async def wait() -> str:
        """Wait for ever."""
        waiting()
        await anyio.sleep_forever()
        return ""

    other = Agent[None](name="expert", model=scripted(*expert))
    return Agent[None](name="shop", model=model or scripted(*steps), tools=[add, refund, wait], handoffs=[other])


async def _append(url: str, name: str) -> None:
    async with Bus.open(url) as bus:
        session = LanebusSession(name, bus)
        for number in count():
            await session.add_items([user(f"{number}.{part}") for part in range(3)])
            print(number, flush=True)


async def _work(url: str, name: str, steps: str) -> None:
    async with Bus.open(url) as bus:
        agent = shop_agent(*json.loads(steps), waiting=lambda: print("running", flush=True))
        await Worker(bus, RunnerAgent(agent), name=name, heartbeat=0.5).run()


def main() -> None:
    """Do what the arguments say until killed."""
    match sys.argv[1:]:
        case ["append", url, name]:
            anyio.run(_append, url, name)
        case ["work", url, name, steps]:
            anyio.run(_work, url, name, steps)
        case _:
            sys.exit(__doc__)


@contextmanager
def process(*arguments: str) -> Generator[Callable[[], Awaitable[str]]]:
    """Run this module in a process that is killed at the end of the block. Yield what reads its next line."""
    command = [sys.executable, "-m", "tests.support.backends.agents_sdk", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as started:
        output = started.stdout
        assert output is not None
        try:
            yield lambda: anyio.to_thread.run_sync(output.readline)
        finally:
            started.kill()


if __name__ == "__main__":
    main()
