"""End a loop without an answer of the model: at a limit, by a guard, by a command, or after a failure of the agent."""

from collections.abc import Sequence

from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.context_entry import Prune
from lanebus.bus.messages.control import Abort
from lanebus.bus.messages.events import AgentEnded, AgentEvent, ControlAnswered, InputRejected, TurnEnded
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.decide.decision import ABORTED, CallModel, StopAtLimit
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.turn_numbers import next_turn
from lanebus.handlers.agent.limits import loop_usage
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import LoopSettings
from lanebus.handlers.agent.turn.answer_record import reading_metadata

__all__ = ("abort_loop", "ended_event", "fail_loop", "reject_input", "stop_loop")


def ended_event(
    snapshot: SessionSnapshot, loop_id: str, stop_reason: StopReason, *, turns: int | None = None
) -> AgentEnded:
    """Return the event that ends an open loop now.

    Args:
        turns: the loop's number of turns; None takes the number from the log.
    """
    return AgentEnded(
        loop_id=loop_id,
        stop_reason=stop_reason,
        turns=next_turn(snapshot, loop_id).turn_index if turns is None else turns,
        usage=loop_usage(snapshot.context, loop_id),
    )


async def stop_loop(run: Run, snapshot: SessionSnapshot, step: StopAtLimit) -> None:
    """End a loop at its limit, and append a note for the next model call.

    Source: the `two-lane-agent` system, which appends such a note too.
    """
    loop_id = step.turn_id.loop_id
    note = _note(step.reached.text, step.turn_id, step.read_up_to, step.deferred)
    ended = ended_event(snapshot, loop_id, step.reached.stop_reason, turns=step.turn_id.turn_index + 1)
    await run.publish(note, ended.as_extension(), key=ReservedKey(f"{loop_id}.stopped"))


async def reject_input(
    run: Run, snapshot: SessionSnapshot, settings: LoopSettings, step: CallModel, reason: str
) -> None:
    """End a loop whose input a guard rejected, before the model is called. The input is pruned from the context.

    Source of the events: the `two-lane-agent` system.
    """
    loop_id = step.turn_id.loop_id
    left = [position for position in (*step.prompts, *step.deferred) if position not in step.fresh]
    events: list[AgentEvent] = [InputRejected(loop_id=loop_id, reason=reason)]
    if step.start is not None:
        events.insert(0, settings.started(run, loop_id, step.start))
    ended = ended_event(snapshot, loop_id, "guardRail").model_copy(update={"rejection": reason})
    await run.publish(
        *(event.as_extension() for event in events),
        Prune(pruned=step.fresh, timestamp=now_ms()),
        _note(f"input rejected: {reason}", step.turn_id, max(step.fresh), left),
        ended.as_extension(),
        key=ReservedKey(f"{step.turn_id}.rejected"),
    )


async def abort_loop(run: Run, snapshot: SessionSnapshot, abort: Abort, answered: ControlAnswered) -> None:
    """End the open turn and loop after an `Abort`. User messages before the command are not answered any more.

    To mark these messages as answered, an empty aborted answer is appended to the LLM lane. No model reads it.
    """
    answer = _empty_answer("aborted", ABORTED, answered.control)
    stop_reason: StopReason = "aborted" if abort.when == "now" else "userStop"
    await _end(run, snapshot, answer, stop_reason, key=ReservedKey(f"control.{answered.control}"), also=(answered,))


async def fail_loop(
    run: Run,
    snapshot: SessionSnapshot,
    reason: str,
    *,
    read_up_to: int | None = None,
    key: ReservedKey | None = None,
    also: Sequence[AgentEvent] = (),
) -> None:
    """End the open turn and loop because the agent failed. The loop's prompts count as answered and are not retried.

    Args:
        read_up_to: messages up to this position count as answered; None means all.
        key: idempotency key; None makes a key from the context's position.
        also: events that are appended last, in the same append.

    Raises:
        Fenced: the lease was lost.
        BusError: as for `Session.publish`.
    """
    last = snapshot.context.position
    answer = _empty_answer("error", reason, last if read_up_to is None else read_up_to)
    await _end(run, snapshot, answer, "error", key=key or ReservedKey(f"failed.{last}"), also=also)


def _empty_answer(stop_reason: StopReason, text: str, read_up_to: int) -> AssistantMessage:
    return AssistantMessage(
        stop_reason=stop_reason, error_message=text, metadata=reading_metadata(read_up_to), timestamp=now_ms()
    )


async def _end(
    run: Run,
    snapshot: SessionSnapshot,
    answer: AssistantMessage,
    stop_reason: StopReason,
    *,
    key: ReservedKey,
    also: Sequence[AgentEvent],
) -> None:
    """Append an empty answer. If a loop is open, also append the ends of its turn and of the loop."""
    state, loop = snapshot.loop_state, snapshot.status.loop
    loop_id = state.loop_id or (loop.loop_id if loop is not None and state.is_stopped else None)
    turn_id = None if loop_id is None else next_turn(snapshot, loop_id)

    def build(position: int) -> Sequence[Publishable]:
        events: list[AgentEvent] = []
        if turn_id is not None and state.loop_id is not None:
            events += (
                TurnEnded(turn_id=turn_id, stop_reason=answer.stop_reason, usage=Usage(), message=position),
                ended_event(snapshot, turn_id.loop_id, stop_reason, turns=turn_id.turn_index + 1),
            )
        return [answer.model_copy(update={"turn_id": turn_id}), *(each.as_extension() for each in (*events, *also))]

    await run.publish_at(build, key=key)


def _note(text: str, turn_id: TurnId, read_up_to: int, deferred: Sequence[int]) -> UserMessage:
    note = UserMessage.text(f"[Agent stopped: {text}]").with_turn_id(turn_id)
    return note.model_copy(update={"metadata": reading_metadata(read_up_to, deferred)})
