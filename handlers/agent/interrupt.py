"""A command that cannot wait for the end of a step: it ends what is being done at once."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio

from bus.errors import MessageError
from bus.messages.control import Abort, Steer, parse_control
from handlers.agent.run import Run
from handlers.agent.status import Command, Status

__all__ = ("Interrupt", "until_interrupted")


class Interrupt(NamedTuple):
    """Why a step was ended. The command is still to be answered."""

    command: Command
    control: Abort | Steer


async def until_interrupted(run: Run, work: Callable[[], Awaitable[None]]) -> Interrupt | None:
    """Do some work until it is done, or until a command ends it: `work` is cancelled then, and has cleaned up when this
    returns. None if it came to its end.

    Whatever `work` raises is raised here, and not in a group.
    """
    failure: Exception | None = None
    found: Interrupt | None = None

    async def watch(scope: anyio.CancelScope) -> None:
        nonlocal found
        while found is None:
            await run.wait_rung()
            found = _interrupt((await run.refresh()).status)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope)
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # raised below: out of the group it would come in another
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return found


def _interrupt(status: Status) -> Interrupt | None:
    for command in status.commands:
        try:
            control = parse_control(command.message)
        except MessageError:
            continue
        if isinstance(control, Abort | Steer) and control.when == "now":
            return Interrupt(command, control)
    return None
