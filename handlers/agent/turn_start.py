"""A turn is begun in the log before the model is asked: whoever takes the session over knows that it may have been."""

import logging
from collections.abc import Sequence
from typing import Literal

from bus.envelope import Cursor
from bus.errors import MessageError, MessageTooLarge
from bus.messages.events import AgentEvent, MessageStarted, TurnStarted, parse_event
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.message import UserMessage
from bus.messages.reading import Publishable
from bus.receipt import Receipt
from handlers.agent.definition import Offer
from handlers.agent.lost import LOST
from handlers.agent.marks import WARNING
from handlers.agent.recording import answer_id
from handlers.agent.run import Run, View
from handlers.agent.settings import LoopSettings
from handlers.agent.steps import Speak, TakeUp

__all__ = ("start_turn", "take_up")

_log = logging.getLogger(__name__)


async def start_turn(
    run: Run, view: View, settings: LoopSettings, step: Speak, offer: Offer, *, warnings: tuple[str, ...] = ()
) -> str:
    """Say that a turn begins, and that the model is asked. Where it began before and was cut, close what was shown of
    it and begin again.

    Args:
        view: what the model is to be shown; with warnings, all that is there once they are.
        offer: what it is offered beside. The log is told in the same step, if it was told another one last.
        warnings: what the model is told of what users said.

    Returns:
        The name of the model call, the same each time it is begun, and no other's in any log.
    """
    try:
        return await _start(run, view, settings, step, offer, warnings=warnings)
    except MessageTooLarge:
        if offer.definition is None:
            raise
        _log.warning("session %s: what the model is offered is too large to be told", run.session.id)
        settings.definitions.leave_out(offer)
        return await _start(run, view, settings, step, offer._replace(definition=None), warnings=warnings)


async def _start(
    run: Run, view: View, settings: LoopSettings, step: Speak, offer: Offer, *, warnings: tuple[str, ...]
) -> str:
    turn_id, definition = step.turn_id, offer.definition
    prompts = (*step.results, *step.prompts)
    request = None if definition is None else definition.hash
    turn = TurnStarted(turn_id=turn_id, trigger=step.trigger, prompts=prompts, request=request)
    speaking = MessageStarted(
        turn_id=turn_id,
        message_id=answer_id(run, turn_id),
        shown=None if warnings else view.context.position or None,
        held=step.held or None,
    )
    is_new = definition is not None and definition.hash != view.status.request
    defined = [definition.as_extension()] if definition is not None and is_new else []
    began = [] if step.begins is None else [settings.started(turn_id.loop_id, step.begins).as_extension()]
    notes = [_warning(text, step) for text in warnings]
    receipt = await run.publish(
        *began, *defined, turn.as_extension(), *notes, speaking.as_extension(), key=f"{turn_id}.started"
    )
    if receipt.is_duplicate:
        await _start_again(run, turn, speaking, defined, receipt)
    return f"{turn_id}@{receipt.incarnation}"


async def take_up(run: Run, settings: LoopSettings, step: TakeUp) -> None:
    """Say that a loop begins with the tools of an answer from before it."""
    turn_id = step.answer.turn_id
    trigger: Literal["branch", "continuation"] = "branch" if step.begins.continuation == "branch" else "continuation"
    events: tuple[AgentEvent, ...] = (
        settings.started(turn_id.loop_id, step.begins),
        TurnStarted(turn_id=turn_id, trigger=trigger, prompts=(step.answer.position,)),
    )
    await run.publish(*(event.as_extension() for event in events), key=f"{turn_id}.started")


async def _start_again(
    run: Run, turn: TurnStarted, speaking: MessageStarted, defined: Sequence[Publishable], receipt: Receipt
) -> None:
    turn_id = turn.turn_id
    known: set[int] = set()
    offered: str | None = None
    async for envelope in run.session.read(lanes={Lane.EXTENSION}, after=Cursor(receipt.positions[0] - 1)):
        match _event(envelope.message):
            case MessageStarted(turn_id=began, message_id=message_id):
                if began == turn_id and message_id != speaking.message_id:
                    await run.cut_preview(message_id, turn_id, LOST)
            case TurnStarted(turn_id=began, prompts=prompts, request=request) if began == turn_id:
                known.update(prompts)
                offered = request
            case _:
                pass
    again: list[Publishable] = [speaking.as_extension()]
    # Somebody has spoken since, or the worker before us offered its model something else.
    if offered != turn.request or not known.issuperset(turn.prompts):
        again[:0] = (*defined, turn.as_extension())
    await run.publish(*again, key=f"{turn_id}.started.{run.lease.epoch}")


def _event(message: object) -> AgentEvent | None:
    try:
        return parse_event(message) if isinstance(message, ExtensionMessage) else None
    except MessageError:
        return None


def _warning(text: str, step: Speak) -> UserMessage:
    """Source of the words: seed 001, which puts them at the end of the user's own."""
    note = UserMessage.text(f"[Warning: {text}]").with_turn_id(step.turn_id)
    return note.model_copy(update={"metadata": {WARNING: list(step.fresh)}})
