"""Record the partial answer of a lost worker when another worker takes the session over, which ends the preview."""

import logging

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import now_ms
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
    """Record the partial answers of workers that had the session's lease before this run.

    Those workers can no longer add to their answers: the server refuses previews and publishes under a lease that was
    taken over. The loop stays open, as after a stopped worker, and its next turn answers the same prompts. If
    `record_lost` is cancelled or crashes, the next call records the rest.

    Returns:
        True if a partial answer was recorded. The caller then has to read the session again.

    Raises:
        Fenced: the lease was lost.
        BusError: the log cannot be read, or refuses an append.
    """
    is_any = False
    for message in await run.open_messages():
        if message.turn_id is not None and is_of_earlier_lease(run, message.turn_id, message.message_id):
            _log.info(
                "session %s: recording the partial answer %s of a lost worker", run.session.id, message.message_id
            )
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
        # The log does not say how far this model had read, only how far the models of earlier answers had.
        read_up_to=state.visible_up_to if is_left else None,
        deferred=state.deferred,
        flag=CUT if is_left else None,
        # If everything was answered meanwhile, the loop has ended and only the text is recorded.
        is_over=not snapshot.status.is_over(turn_id.loop_id),
        message_id=partial.message_id,
        instead=lambda error: message.model_copy(update={"content": (), "error_message": f"{LOST}; {error}"}),
    )
    if receipt.is_duplicate:  # the turn has another answer already
        await run.cut_preview(partial.message_id, turn_id, LOST)
