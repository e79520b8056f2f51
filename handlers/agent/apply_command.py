"""Answer each command once, in log order. One append holds both the command's answer and its effect."""

from collections.abc import Sequence

from lanebus.bus.messages.control import Abort, Handoff, Pause
from lanebus.bus.messages.events import AgentEvent, ControlAnswered
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.decide.command_outcome import command_outcome
from lanebus.handlers.agent.decide.decision import ABORTED
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.tool_executor import fail_calls
from lanebus.handlers.agent.turn.end_loop import abort_loop, ended_event
from lanebus.handlers.projections.agent_status import Command

__all__ = ("apply_command", "refuse", "refused")


async def apply_command(run: Run, snapshot: SessionSnapshot, command: Command) -> None:
    """Answer the session's oldest unanswered command, which is `command`, and apply it.

    Raises:
        Fenced: the lease was lost.
        BusError: the log refuses the append.
    """
    outcome, reason = command_outcome(snapshot, command)
    answered = ControlAnswered(control=command.position, outcome=outcome, reason=reason)
    control, loop_id = command.control, snapshot.loop_state.loop_id
    events: list[AgentEvent] = [answered]
    if outcome == "applied":
        if isinstance(control, Abort):
            answer = snapshot.loop_state.answer
            if answer is not None and answer.open_calls and answer.turn_id.session == run.session.id:
                await fail_calls(run, answer, snapshot, ABORTED)  # of a stopped loop, which no loop continues
                snapshot = await run.refresh()
            await abort_loop(run, snapshot, control, answered)
            return
        if isinstance(control, Pause | Handoff) and loop_id is not None:
            stopped = ended_event(snapshot, loop_id, "paused" if isinstance(control, Pause) else "handoff")
            events.insert(0, stopped)
    await run.publish(*(event.as_extension() for event in events), key=ReservedKey(f"control.{command.position}"))


async def refuse(run: Run, commands: Sequence[Command], reason: str) -> None:
    """Refuse commands that the session's agent does not handle.

    Raises:
        Fenced: the lease was lost.
        BusError: the log refuses an append.
    """
    for event in refused(commands, reason):
        await run.publish(event.as_extension(), key=ReservedKey(f"control.{event.control}"))


def refused(commands: Sequence[Command], reason: str) -> tuple[ControlAnswered, ...]:
    """Return one answer for each of `commands`, with the outcome "refused" and this reason."""
    return tuple(ControlAnswered(control=each.position, outcome="refused", reason=reason) for each in commands)
