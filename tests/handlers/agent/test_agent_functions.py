"""Agents that are functions: a worker awaits them, so a plain `def` is refused."""

from collections.abc import Awaitable, Callable, Generator
from functools import partial, wraps
from pathlib import Path

import pytest

from lanebus import AssistantMessage, Bus, Session, UserMessage
from lanebus.agent import AgentNotFound, Run, SubAgent, Worker, ask, load_agent
from lanebus.bus.errors import InvalidArgument
from tests.support.agent.agents import SECONDS
from tests.support.agent.logs import wait_for

__all__ = ()

PATIENT = 60.0


async def says_yes(run: Run) -> None:
    await run.publish(AssistantMessage.text("Yes."), key=f"answer.{run.position}")


def plain(run: Run) -> None:
    del run


def unannotated(run):  # type: ignore[no-untyped-def]  # as a user may write it
    return says_yes(run)  # pyright: ignore[reportUnknownArgumentType]


def generates(run: Run) -> Generator[Run, None, None]:
    yield run


class Plain:
    def __call__(self, run: Run) -> None:
        del run

    def method(self, run: Run) -> None:
        del run


class Async:
    async def __call__(self, run: Run) -> None:
        await says_yes(run)

    async def method(self, run: Run) -> None:
        await says_yes(run)


def awaitable(run: Run) -> Awaitable[None]:
    return says_yes(run)


@wraps(says_yes)
def wrapper(run: Run):  # type: ignore[no-untyped-def]  # as a decorator makes it
    return says_yes(run)


REFUSED: dict[str, object] = {
    "plain": plain,
    "unannotated": unannotated,
    "generator": generates,
    "object": Plain(),
    "method": Plain().method,
    "partial": partial(plain),
}
ACCEPTED: dict[str, Callable[[Run], Awaitable[None]]] = {
    "function": says_yes,
    "object": Async(),
    "method": Async().method,
    "partial": partial(says_yes),
    "awaitable": awaitable,
    "wrapper": wrapper,
    "lambda": lambda run: awaitable(run=run),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_function_that_cannot_be_awaited_is_refused_as_an_agent(bus: Bus, name: str) -> None:
    agent = REFUSED[name]
    with pytest.raises(InvalidArgument, match="async def"):
        Worker(bus, agent)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # what is tested
    with pytest.raises(InvalidArgument, match="async def"):
        SubAgent("helper", agent, "Helps.")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # same


@pytest.mark.parametrize("name", ACCEPTED)
async def test_a_function_that_returns_an_awaitable_is_an_agent(bus: Bus, name: str) -> None:
    async with Worker(bus, ACCEPTED[name], heartbeat=PATIENT):
        assert (await ask(bus.session("s1"), "hello?", seconds=SECONDS)).text_content() == "Yes."


async def test_an_agent_that_returns_nothing_to_await_fails_with_the_remedy(bus: Bus, session: Session) -> None:
    silent: Callable[[Run], object] = lambda run: None  # noqa: E731  # only a call shows what it returns
    async with Worker(bus, silent, heartbeat=PATIENT):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # same
        await session.publish(UserMessage.text("hello?"))
        await wait_for(session, "assistant error")
        failed = [e.message async for e in session.read() if isinstance(e.message, AssistantMessage)][-1]
    assert "async def" in (failed.error_message or "")


def test_a_plain_function_is_not_loaded_as_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def agent(run):\n    pass\n")
    with pytest.raises(AgentNotFound, match="an async function of a Run"):
        load_agent(f"{file}:agent")
