"""What a worker was saying when it was lost: whoever takes its session over records it, so that its preview ends."""

import logging
from functools import partial

from bus.errors import MessageTooLarge
from bus.messages.message import AssistantMessage, now_ms
from bus.messages.turn import TurnId
from bus.spoken import OpenMessage
from handlers.agent.draft import cut_content
from handlers.agent.marks import CUT
from handlers.agent.recording import is_of_earlier_lease, record_answer
from handlers.agent.run import Run
from handlers.agent.standing import read_standing

__all__ = ("LOST", "record_lost")

LOST = "the worker was lost"

_log = logging.getLogger(__name__)


async def record_lost(run: Run) -> None:
    """Put into the log what was said of answers whose speakers held the session's lease before us.

    They cannot say more: the server refuses previews and publishes under a lease that was taken over. As with a worker
    that was stopped, the loop is not over; its next turn answers the same. Cancelled, or run again after a crash, it
    goes on where it was.

    Raises:
        Fenced: the lease is lost.
        BusError: the log cannot be read or refuses.
    """
    for spoken in await run.open_messages():
        if spoken.turn_id is not None and is_of_earlier_lease(run, spoken.turn_id, spoken.message_id):
            _log.info("session %s: records what %s said until it was lost", run.session.id, spoken.message_id)
            await _record(run, spoken, spoken.turn_id)


async def _record(run: Run, spoken: OpenMessage, turn_id: TurnId) -> None:
    view = await run.refresh()
    standing = read_standing(*view)
    message = AssistantMessage(
        content=cut_content((block.kind, block.delta) for block in spoken.blocks),
        stop_reason="aborted",
        error_message=LOST,
        timestamp=now_ms(),
    )
    is_left = bool(standing.prompts) or standing.answer is not None
    record = partial(
        record_answer,
        run,
        view.context,
        turn_id,
        # Nobody knows how far its model had read; what was shown to one before is.
        seen=standing.shown if is_left else None,
        held=standing.held,
        mark=CUT if is_left else None,
        # Where all was answered meanwhile, what was said is recorded and the loop is over.
        is_over=not view.status.is_over(turn_id.loop_id),
        message_id=spoken.message_id,
    )
    try:
        receipt = await record(message)
    except MessageTooLarge as error:
        receipt = await record(message.model_copy(update={"content": (), "error_message": f"{LOST}; {error}"}))
    if receipt.is_duplicate:  # the turn has another answer, so this one has no place in the log
        await run.cut_preview(spoken.message_id, turn_id, LOST)
