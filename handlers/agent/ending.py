"""The ends of a loop that no answer of the model brings: a limit, a guard, a command."""

from collections.abc import Sequence

from bus.messages.context_entry import Prune
from bus.messages.control import Abort
from bus.messages.events import AgentEnded, AgentEvent, ControlAnswered, InputRejected, TurnEnded
from bus.messages.message import AssistantMessage, StopReason, UserMessage, now_ms
from bus.messages.reading import Publishable
from bus.messages.turn import TurnId
from bus.messages.usage import Usage
from handlers.agent.recording import reading_marks
from handlers.agent.run import Run, View
from handlers.agent.settings import LoopSettings
from handlers.agent.standing import loop_usage, read_standing
from handlers.agent.steps import ABORTED, Speak, Stop
from handlers.agent.turn_numbers import next_turn

__all__ = ("abort_loop", "ended_event", "fail_loop", "reject_input", "stop_loop")


def ended_event(view: View, loop_id: str, stop_reason: StopReason) -> AgentEnded:
    """The event that an open loop ends where it stands."""
    return AgentEnded(
        loop_id=loop_id,
        stop_reason=stop_reason,
        turns=next_turn(view.context, loop_id, view.status.loop).turn_index,
        usage=loop_usage(view.context, loop_id),
    )


async def stop_loop(run: Run, view: View, step: Stop) -> None:
    """End a loop at its limit, with a note for the model that goes on. Source of the note: seed 001."""
    loop_id = step.turn_id.loop_id
    note = _note(step.reached.text, step.turn_id, step.seen, step.held)
    ended = AgentEnded(
        loop_id=loop_id,
        stop_reason=step.reached.stop_reason,
        turns=step.turn_id.turn_index + 1,
        usage=loop_usage(view.context, loop_id),
    )
    await run.publish(note, ended.as_extension(), key=f"{loop_id}.stopped")


async def reject_input(run: Run, view: View, settings: LoopSettings, step: Speak, reason: str) -> None:
    """End a loop whose input a guard rejects, before a model is asked. What was said stays in the log, and out of every
    context. Source of the events: seed 001."""
    loop_id = step.turn_id.loop_id
    left = [position for position in (*step.prompts, *step.held) if position not in step.fresh]
    events: list[AgentEvent] = [InputRejected(loop_id=loop_id, reason=reason)]
    if step.begins is not None:
        events.insert(0, settings.started(loop_id, step.begins))
    ended = ended_event(view, loop_id, "guardRail").model_copy(update={"rejection": reason})
    await run.publish(
        *(event.as_extension() for event in events),
        Prune(pruned=step.fresh, timestamp=now_ms()),
        _note(f"input rejected: {reason}", step.turn_id, max(step.fresh), left),
        ended.as_extension(),
        key=f"{step.turn_id}.rejected",
    )


async def abort_loop(run: Run, view: View, abort: Abort, answered: ControlAnswered) -> None:
    """End what is open, and have nothing answered that was said before the command.

    An empty answer says so in the LLM lane: no model is shown it.
    """
    last_word = AssistantMessage(
        stop_reason="aborted",
        error_message=ABORTED,
        metadata=reading_marks(answered.control),
        timestamp=now_ms(),
    )
    stop_reason: StopReason = "aborted" if abort.when == "now" else "userStop"
    await _end(run, view, last_word, stop_reason, key=f"control.{answered.control}", also=(answered,))


async def fail_loop(
    run: Run,
    view: View,
    reason: str,
    *,
    seen: int | None = None,
    key: str | None = None,
    also: Sequence[AgentEvent] = (),
) -> None:
    """End what is open because the agent itself failed: what it was to answer counts as answered, and is not repeated.

    Args:
        seen: up to where it counts so; None is all that there is.
        key: names this failure, so that it is told once; None names it after what there is.
        also: goes into the same append, behind all else.

    Raises:
        Fenced: the lease is lost.
        BusError: as for `Session.publish`.
    """
    last = view.context.position
    last_word = AssistantMessage(
        stop_reason="error",
        error_message=reason,
        metadata=reading_marks(last if seen is None else seen),
        timestamp=now_ms(),
    )
    await _end(run, view, last_word, "error", key=key or f"failed.{last}", also=also)


async def _end(
    run: Run,
    view: View,
    last_word: AssistantMessage,
    stop_reason: StopReason,
    *,
    key: str,
    also: Sequence[AgentEvent],
) -> None:
    """Put the last word into the log, and end the turn and the loop with it, if one is open."""
    standing, loop = read_standing(*view), view.status.loop
    loop_id = standing.loop_id or (loop.loop_id if loop is not None and standing.is_stopped else None)
    turn_id = None if loop_id is None else next_turn(view.context, loop_id, loop)

    def build(position: int) -> Sequence[Publishable]:
        events: list[AgentEvent] = []
        if turn_id is not None and standing.loop_id is not None:
            turns = {"turns": turn_id.turn_index + 1}
            events += (
                TurnEnded(turn_id=turn_id, stop_reason=last_word.stop_reason, usage=Usage(), message=position),
                ended_event(view, turn_id.loop_id, stop_reason).model_copy(update=turns),
            )
        return [last_word.model_copy(update={"turn_id": turn_id}), *(each.as_extension() for each in (*events, *also))]

    await run.publish_at(build, key=key)


def _note(text: str, turn_id: TurnId, seen: int, held: Sequence[int]) -> UserMessage:
    note = UserMessage.text(f"[Agent stopped: {text}]").with_turn_id(turn_id)
    return note.model_copy(update={"metadata": reading_marks(seen, held)})
