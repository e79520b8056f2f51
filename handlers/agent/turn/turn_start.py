"""Record the start of a turn before the model is called, so that another worker knows that the model may have been
called."""

import logging
from collections.abc import Sequence
from typing import Literal

from lanebus.bus.errors import MessageError, MessageTooLarge
from lanebus.bus.messages.events import AgentEvent, MessageStarted, TurnStarted, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.decide.decision import AdoptToolCalls, CallModel
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.metadata_keys import WARNING
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import LoopSettings
from lanebus.handlers.agent.turn.answer_record import answer_id
from lanebus.handlers.agent.turn.recover_partial import LOST
from lanebus.handlers.agent.turn.request_definition import Offer

__all__ = ("adopt_calls", "start_turn")

_log = logging.getLogger(__name__)


async def start_turn(
    run: Run,
    snapshot: SessionSnapshot,
    settings: LoopSettings,
    step: CallModel,
    offer: Offer,
    *,
    warnings: tuple[str, ...] = (),
) -> str:
    """Record that a turn begins and the model is called. If the turn began earlier and was cut, end its old preview.

    Args:
        snapshot: the session's present state, which the model's context is built from. If there are warnings, the
            context ends with the warnings.
        offer: the tools and options. Their definition is appended too, unless the log's newest definition is the same.
        warnings: the guards' warnings about the prompts.

    Returns:
        The idempotency key of the model call. The key stays the same if the turn begins again, and is unique over all
        logs.
    """
    try:
        return await _start(run, snapshot, settings, step, offer, warnings=warnings)
    except MessageTooLarge:
        if offer.definition is None:
            raise
        _log.warning("session %s: the tools and options are too large to be recorded", run.session.id)
        settings.definitions.leave_out(offer)
        return await _start(run, snapshot, settings, step, offer._replace(definition=None), warnings=warnings)


async def _start(
    run: Run,
    snapshot: SessionSnapshot,
    settings: LoopSettings,
    step: CallModel,
    offer: Offer,
    *,
    warnings: tuple[str, ...],
) -> str:
    turn_id, definition = step.turn_id, offer.definition
    prompts = (*step.results, *step.prompts)
    request = None if definition is None else definition.hash
    turn = TurnStarted(turn_id=turn_id, trigger=step.trigger, prompts=prompts, request=request)
    speaking = MessageStarted(
        turn_id=turn_id,
        message_id=answer_id(run, turn_id),
        shown=None if warnings else snapshot.context.position or None,
        held=step.deferred or None,
    )
    is_new = definition is not None and definition.hash != snapshot.status.request
    defined = [definition.as_extension()] if definition is not None and is_new else []
    loop_started = [] if step.start is None else [settings.started(run, turn_id.loop_id, step.start).as_extension()]
    notes = [_warning(text, step) for text in warnings]
    receipt = await run.publish(
        *loop_started,
        *defined,
        turn.as_extension(),
        *notes,
        speaking.as_extension(),
        key=ReservedKey(f"{turn_id}.started"),
    )
    if receipt.is_duplicate:
        await _start_again(run, turn, speaking, defined, receipt)
    return f"{turn_id}@{receipt.incarnation}"


async def adopt_calls(run: Run, settings: LoopSettings, step: AdoptToolCalls) -> None:
    """Record that a loop begins with the open calls of an earlier answer."""
    turn_id = step.answer.turn_id
    trigger: Literal["branch", "continuation"] = "branch" if step.start.continuation == "branch" else "continuation"
    events: tuple[AgentEvent, ...] = (
        settings.started(run, turn_id.loop_id, step.start),
        TurnStarted(turn_id=turn_id, trigger=trigger, prompts=(step.answer.position,)),
    )
    await run.publish(*(event.as_extension() for event in events), key=ReservedKey(f"{turn_id}.started"))


async def _start_again(
    run: Run, turn: TurnStarted, speaking: MessageStarted, defined: Sequence[Publishable], receipt: Receipt
) -> None:
    turn_id = turn.turn_id
    known: set[int] = set()
    offered: str | None = None
    async for envelope in run.session.read(lanes={Lane.EXTENSION}, after=Cursor(receipt.positions[0] - 1)):
        match None if envelope.is_imported else _event(envelope.message):
            case MessageStarted(turn_id=started, message_id=message_id):
                if started == turn_id and message_id != speaking.message_id:
                    await run.cut_preview(message_id, turn_id, LOST)
            case TurnStarted(turn_id=started, prompts=prompts, request=request) if started == turn_id:
                known.update(prompts)
                offered = request
            case _:
                pass
    again: list[Publishable] = [speaking.as_extension()]
    # A prompt has arrived since the turn began, or the previous worker had other tools or options.
    if offered != turn.request or not known.issuperset(turn.prompts):
        again[:0] = (*defined, turn.as_extension())
    await run.publish(*again, key=ReservedKey(f"{turn_id}.started.{run.lease.epoch}"))


def _event(message: object) -> AgentEvent | None:
    try:
        return parse_event(message) if isinstance(message, ExtensionMessage) else None
    except MessageError:
        return None


def _warning(text: str, step: CallModel) -> UserMessage:
    """Return a guard's warning as a note to the model. Source of the text: the `two-lane-agent` system, which appends
    it to the user message."""
    note = UserMessage.text(f"[Warning: {text}]").with_turn_id(step.turn_id)
    return note.model_copy(update={"metadata": {WARNING: list(step.fresh)}})
