"""What a lost worker was streaming: the worker that takes the session over records it, so that its preview ends."""

import logging

from lanebus.bus.messages.message import AssistantMessage, now_ms
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.previews.session_deltas import OpenMessage
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.metadata_keys import CUT
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.turn.answer_record import is_of_earlier_lease, record_answer
from lanebus.handlers.agent.turn.partial_response import cut_content

__all__ = ("LOST", "record_lost")

LOST = "the worker was lost"

_log = logging.getLogger(__name__)


async def record_lost(run: Run) -> bool:
    """Record the partial answers of workers that held the session's lease before this run.

    They cannot say more: the server refuses previews and publishes under a lease that was taken over. As with a worker
    that was stopped, the loop is not over; its next turn answers the same. Cancelled, or run again after a crash, this
    goes on where it was.

    Returns:
        Whether there were any, so that the session has to be read again.

    Raises:
        Fenced: the lease is lost.
        BusError: the log cannot be read or refuses.
    """
    is_any = False
    for message in await run.open_messages():
        if message.turn_id is not None and is_of_earlier_lease(run, message.turn_id, message.message_id):
            _log.info("session %s: records what %s said until it was lost", run.session.id, message.message_id)
            await _record(run, await run.refresh(), message, message.turn_id)
            is_any = True
    return is_any


async def _record(run: Run, snapshot: SessionSnapshot, partial: OpenMessage, turn_id: TurnId) -> None:
    state = snapshot.loop_state
    is_left = bool(state.prompts) or state.answer is not None
    message = AssistantMessage(
        content=cut_content((block.kind, block.delta) for block in partial.blocks),
        stop_reason="aborted",
        error_message=LOST,
        timestamp=now_ms(),
    )
    receipt = await record_answer(
        run,
        snapshot.context,
        turn_id,
        message,
        # How far its model had read is not known; what an earlier call was shown is.
        read_up_to=state.visible_up_to if is_left else None,
        deferred=state.deferred,
        flag=CUT if is_left else None,
        # If all was answered meanwhile, the text is recorded and the loop is over.
        is_over=not snapshot.status.is_over(turn_id.loop_id),
        message_id=partial.message_id,
        instead=lambda error: message.model_copy(update={"content": (), "error_message": f"{LOST}; {error}"}),
    )
    if receipt.is_duplicate:  # the turn has another answer, so this one has no place in the log
        await run.cut_preview(partial.message_id, turn_id, LOST)
