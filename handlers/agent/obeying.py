"""Commands are answered in the order of the log, each once, and each in the same append as what it does."""

from collections.abc import Sequence

from bus.messages.control import Abort, Handoff, Pause
from bus.messages.events import AgentEvent, ControlAnswered
from handlers.agent.ending import abort_loop, ended_event
from handlers.agent.judging import judge
from handlers.agent.run import Run, View
from handlers.agent.standing import read_standing
from handlers.agent.status import Command

__all__ = ("obey", "refuse", "refused")


async def obey(run: Run, view: View, command: Command) -> None:
    """Answer the oldest command, and do what it says.

    Raises:
        Fenced: the lease is lost.
        BusError: the log refuses.
    """
    judgement = judge(view, command)
    answered = ControlAnswered(control=command.position, outcome=judgement.outcome, reason=judgement.reason)
    control, loop_id = command.control, read_standing(*view).loop_id
    events: list[AgentEvent] = [answered]
    if judgement.outcome == "applied":
        if isinstance(control, Abort):
            await abort_loop(run, view, control, answered)
            return
        if isinstance(control, Pause | Handoff) and loop_id is not None:
            stopped = ended_event(view, loop_id, "paused" if isinstance(control, Pause) else "handoff")
            events.insert(0, stopped)
    await run.publish(*(event.as_extension() for event in events), key=f"control.{command.position}")


async def refuse(run: Run, commands: Sequence[Command], reason: str) -> None:
    """Answer commands that the session's agent does not answer.

    Raises:
        Fenced: the lease is lost.
        BusError: the log refuses.
    """
    for command, event in zip(commands, refused(commands, reason), strict=True):
        await run.publish(event.as_extension(), key=f"control.{command.position}")


def refused(commands: Sequence[Command], reason: str) -> tuple[ControlAnswered, ...]:
    """The answers to commands that nobody obeys."""
    return tuple(ControlAnswered(control=each.position, outcome="refused", reason=reason) for each in commands)
