"""A turn is begun in the log before the model is asked: whoever takes the session over knows that it may have been."""

from typing import Literal

from bus.envelope import Cursor
from bus.errors import MessageError
from bus.messages.events import AgentEvent, MessageStarted, TurnStarted, parse_event
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.message import UserMessage
from bus.messages.reading import Publishable
from bus.receipt import Receipt
from handlers.agent.lost import LOST
from handlers.agent.marks import WARNING
from handlers.agent.preview import Preview
from handlers.agent.recording import answer_id
from handlers.agent.run import Run
from handlers.agent.settings import LoopSettings
from handlers.agent.steps import Speak, TakeUp

__all__ = ("start_turn", "take_up")


async def start_turn(run: Run, settings: LoopSettings, step: Speak, warnings: tuple[str, ...] = ()) -> str:
    """Say that a turn begins, and that the model is asked. Where it began before and was cut, close what was shown of
    it and begin again.

    Args:
        warnings: what the model is told of what users said.

    Returns:
        The name of the model call, the same each time it is begun, and no other's in any log.
    """
    turn_id, message_id = step.turn_id, answer_id(run, step.turn_id)
    turn = TurnStarted(turn_id=turn_id, trigger=step.trigger, prompts=(*step.results, *step.prompts))
    speaking = MessageStarted(turn_id=turn_id, message_id=message_id)
    events: list[Publishable] = [turn.as_extension(), speaking.as_extension()]
    events[1:1] = [_warning(text, step) for text in warnings]
    if step.begins is not None:
        events.insert(0, settings.started(turn_id.loop_id, step.begins).as_extension())
    receipt = await run.publish(*events, key=f"{turn_id}.started")
    if receipt.is_duplicate:
        await _start_again(run, turn, speaking, receipt)
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


async def _start_again(run: Run, turn: TurnStarted, speaking: MessageStarted, receipt: Receipt) -> None:
    turn_id = turn.turn_id
    known: set[int] = set()
    async for envelope in run.session.read(lanes={Lane.EXTENSION}, after=Cursor(receipt.positions[0] - 1)):
        match _event(envelope.message):
            case MessageStarted(turn_id=began, message_id=message_id):
                if began == turn_id and message_id != speaking.message_id:
                    await Preview(run.session, message_id, turn_id, epoch=run.lease.epoch).cut(LOST)
            case TurnStarted(turn_id=began, prompts=prompts) if began == turn_id:
                known.update(prompts)
            case _:
                pass
    again: list[Publishable] = [speaking.as_extension()]
    if not known.issuperset(turn.prompts):  # somebody has spoken since
        again.insert(0, turn.as_extension())
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
