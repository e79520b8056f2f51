"""A command that cannot wait for the end of a step: it ends what is being done at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio

from bus.messages.control import Abort, Steer
from handlers.agent.run import Run
from handlers.agent.standing import Standing, read_standing
from handlers.agent.status import Command

__all__ = ("Interrupt", "find_interrupt", "until_interrupted")


LISTEN_SECONDS = 0.02
"""after which work is interrupted at all"""


class Interrupt(NamedTuple):
    """Why a step was ended. The command is still to be answered."""

    command: Command
    control: Abort | Steer


async def until_interrupted(run: Run, work: Callable[[], Awaitable[None]]) -> Interrupt | None:
    """Do some work until it is done, or until a command ends it: `work` is cancelled then, and has cleaned up when this
    returns. None if it came to its end.

    Whatever `work` raises is raised here, and not in a group. So is what keeps the log from being watched.
    """
    # Raised at the end: out of the task group they would come in a group.
    failures: list[Exception] = []
    found: Interrupt | None = None

    async def watch(scope: anyio.CancelScope) -> None:
        nonlocal found
        try:
            while found is None:
                await run.wait_rung()
                found = find_interrupt(read_standing(*await run.refresh()))
        except Exception as error:  # noqa: BLE001
            failures.append(error)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        # Whoever is done at once does not listen at all: an instant turn costs no task and no look at the index.
        watching = asyncio.get_running_loop().call_later(LISTEN_SECONDS, tasks.start_soon, watch, tasks.cancel_scope)
        try:
            await work()
        except Exception as error:  # noqa: BLE001
            failures.insert(0, error)
        finally:
            watching.cancel()
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return found


def find_interrupt(standing: Standing) -> Interrupt | None:
    """The first command that cannot wait, of those that are meant for what goes on now."""
    for command in standing.commands:
        match command.control:
            case Abort(when="now", loop_id=loop_id) as abort if loop_id in {None, standing.loop_id}:
                return Interrupt(command, abort)
            case Steer(when="now", position=position) as steer if position in standing.prompts:
                return Interrupt(command, steer)
            case _:
                pass
    return None
