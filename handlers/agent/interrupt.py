"""A command that cannot wait for the end of a step: it ends what is being done at once."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio

from bus.messages.control import Abort, Steer
from handlers.agent.run import Run
from handlers.agent.standing import Standing, read_standing
from handlers.agent.status import Command

__all__ = ("Interrupt", "find_interrupt", "is_aborted", "until_interrupted")


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
        tasks.start_soon(watch, tasks.cancel_scope)
        try:
            await work()
        except Exception as error:  # noqa: BLE001
            failures.insert(0, error)
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


def is_aborted(standing: Standing) -> bool:
    """Whether an abort of what goes on now, or would go on next, is still to be answered."""
    loops = {None, standing.loop_id}
    return any(isinstance(each.control, Abort) and each.control.loop_id in loops for each in standing.commands)
