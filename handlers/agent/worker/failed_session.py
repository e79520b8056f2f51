"""Give up a session: record the failure in its log, and make its work a dead letter."""

from contextlib import aclosing

from lanebus.bus.error_text import describe_error
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import ControlAnswered
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.wire.codec import encode
from lanebus.bus.wire.envelope import DecodeFailure
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.apply_command import refused
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.tool_decision import LOOP_ENDED
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.tool_executor import fail_calls
from lanebus.handlers.agent.turn.answer_record import reading_metadata
from lanebus.handlers.agent.turn.end_loop import fail_loop
from lanebus.handlers.agent.worker.assignment import Assignment, Done
from lanebus.handlers.monitoring.worker_counts import WorkerCounts
from lanebus.handlers.projections.agent_status import STATUS, Status

__all__ = ("give_up", "give_up_unreadable")


async def give_up(
    run: Run, snapshot: SessionSnapshot, error: Exception, assignment: Assignment, counts: WorkerCounts
) -> Done:
    """Record that the agent failed. The messages at which it failed count as answered and are not retried.

    The session stops even if work is left, such as another command that the agent cannot handle. A later wake-up, or a
    wake-up since the session was last read, starts the agent again.

    Args:
        run: the session's run, whose lease is released.
        snapshot: the session's state with which the agent was called.
        error: the agent's error.
        assignment: the session's work, which becomes a dead letter.
        counts: the worker's counters; `given_up` is increased.
    """
    prompts = snapshot.loop_state.prompts
    raw = b""
    for envelope in snapshot.context.path:
        if prompts and envelope.position == prompts[-1] and not isinstance(envelope.message, DecodeFailure | Delta):
            raw = encode(envelope.message)
    current = await run.refresh()  # includes the answers and the loop that the agent has added
    text, answer = describe_error(error), current.loop_state.answer
    if answer is not None and answer.open_calls and answer.turn_id.session == run.session.id:
        # No loop continues these calls, and a call that was started must not look as if it had not run.
        cause = f"{LOOP_ENDED}: {text}"
        await fail_calls(run, answer, current, f"Not finished: {text}", since=snapshot, cause=cause)
        current = await run.refresh()
    read_up_to = max(snapshot.context.position, current.loop_state.read_up_to)
    left = [command for command in snapshot.status.commands if command in current.status.commands]
    also = refused(left, "the agent failed")
    key = ReservedKey(f"failed.{read_up_to}.{run.position}")
    await fail_loop(run, current, text, read_up_to=read_up_to, key=key, also=also)
    counts.given_up += 1
    await assignment.dead_letter(error, raw, read_up_to)
    assignment.attempt = 1
    return Done(run.lease)


async def give_up_unreadable(run: Run, error: Exception, assignment: Assignment, counts: WorkerCounts) -> Done:
    """Record that the session can no longer be read. The session's prompts count as answered, its commands are refused.

    No worker can build a context from the rest of the log. Without this record, the user would see no failure.
    """
    at = await run.session.head()
    head, status = at.position, Status()
    kinds = {"control.*", ControlAnswered.KIND}
    kept = run.session.read(lanes={Lane.EXTENSION}, kinds=kinds, after=at.cursor_at(at.trimmed), until=head)
    async with aclosing(kept) as entries:
        async for envelope in entries:
            status = STATUS.evolve(status, envelope)
    refusals = refused(status.commands, "the session can no longer be read")
    failed = AssistantMessage(
        stop_reason="error", error_message=describe_error(error), metadata=reading_metadata(head), timestamp=now_ms()
    )
    # The key has the position that woke the session and not the head: if this append is repeated, the head has moved.
    woken = head if assignment.work is None else assignment.work.position
    await run.publish(failed, *(each.as_extension() for each in refusals), key=ReservedKey(f"unreadable.{woken}"))
    counts.given_up += 1
    await assignment.dead_letter(error, read_up_to=head)
    return Done(run.lease)
