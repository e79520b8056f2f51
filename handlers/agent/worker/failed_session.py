"""A session whose agent failed for good: the log says so, and the work becomes a dead letter."""

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.message import AssistantMessage, now_ms
from lanebus.bus.wire.codec import encode
from lanebus.bus.wire.envelope import DecodeFailure
from lanebus.handlers.agent.apply_command import refused
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.turn.answer_record import reading_metadata
from lanebus.handlers.agent.turn.end_loop import fail_loop
from lanebus.handlers.agent.worker.assignment import Assignment, Done, error_text
from lanebus.handlers.agent.worker.worker_counts import WorkerCounts

__all__ = ("give_up", "give_up_unreadable")


async def give_up(
    run: Run, snapshot: SessionSnapshot, error: Exception, assignment: Assignment, counts: WorkerCounts
) -> Done:
    """Record that the agent failed; what it failed at counts as answered, and is not tried again.

    The session stops here, even if there is more to do, such as a command that the agent cannot handle either. The next
    wake-up of the session, or one since it was looked at, has that tried again.

    Args:
        snapshot: what the agent was called with.
    """
    prompts = snapshot.loop_state.prompts
    raw = b""
    for envelope in snapshot.context.path:
        if prompts and envelope.position == prompts[-1] and not isinstance(envelope.message, DecodeFailure | Delta):
            raw = encode(envelope.message)
    now = await run.refresh()  # what the agent has said, and the loop it began, if it got so far
    read_up_to = max(snapshot.context.position, now.loop_state.read_up_to)
    left = [command for command in snapshot.status.commands if command in now.status.commands]
    also = refused(left, "the agent failed")
    key = f"failed.{read_up_to}.{run.position}"
    await fail_loop(run, now, error_text(error), read_up_to=read_up_to, key=key, also=also)
    counts.given_up += 1
    await assignment.dead_letter(error, raw, read_up_to)
    assignment.attempt = 1
    return Done(run.lease)


async def give_up_unreadable(run: Run, error: Exception, assignment: Assignment, counts: WorkerCounts) -> Done:
    """Record that the session can no longer be read: its prompts count as answered.

    No worker can make a context of what is left, and without this the user would see nothing.
    """
    head = (await run.session.head()).position
    failed = AssistantMessage(
        stop_reason="error", error_message=error_text(error), metadata=reading_metadata(head), timestamp=now_ms()
    )
    # Named by what woke the session: the answer to this append may be lost, and the end of the log then moves on.
    await run.publish(failed, key=f"unreadable.{head if assignment.work is None else assignment.work.position}")
    counts.given_up += 1
    await assignment.dead_letter(error, read_up_to=head)
    return Done(run.lease)
