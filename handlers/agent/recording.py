"""An answer goes into the log together with all that it ends."""

from collections.abc import Sequence

from pydantic import JsonValue

from bus.messages.events import AgentEnded, AgentEvent, MessageEnded, TurnEnded
from bus.messages.message import AssistantMessage, now_ms
from bus.messages.reading import Publishable
from bus.messages.turn import TurnId
from bus.messages.usage import Usage
from bus.receipt import Receipt
from handlers.agent.marks import AGAIN, CUT, HELD, SEEN
from handlers.agent.run import Run
from handlers.agent.standing import loop_usage, wanted_calls
from handlers.context.fold import Context

__all__ = ("answer_id", "is_of_earlier_lease", "reading_marks", "record_answer")

_OWN = frozenset({AGAIN, CUT, HELD, SEEN})


def answer_id(run: Run, turn_id: TurnId) -> str:
    """The id of a turn's answer and of its preview. A turn that is begun again is spoken under another lease's epoch,
    so its pieces are not taken for those of the preview that was cut."""
    return f"{turn_id}.{run.lease.epoch}"


def is_of_earlier_lease(run: Run, turn_id: TurnId, message_id: str) -> bool:
    """Whether a message has the id of an answer of this turn whose speaker held the session's lease before us."""
    stem, _, epoch = message_id.rpartition(".")
    return stem == str(turn_id) and epoch.isdecimal() and int(epoch) < run.lease.epoch


def reading_marks(seen: int, held: Sequence[int] = ()) -> dict[str, JsonValue]:
    """What is noted of how far a model had read; `held` are positions up to `seen` that it was not shown."""
    marks: dict[str, JsonValue] = {SEEN: seen}
    left: list[JsonValue] = [position for position in held if position <= seen]
    if left:
        marks[HELD] = left
    return marks


async def record_answer(
    run: Run,
    context: Context,
    turn_id: TurnId,
    message: AssistantMessage,
    *,
    seen: int | None = None,
    held: Sequence[int] = (),
    mark: str | None = None,
    is_over: bool = True,
    message_id: str | None = None,
    also: Sequence[AgentEvent] = (),
) -> Receipt:
    """Append a turn's answer, once: a repeat adds nothing, whatever it says.

    Args:
        context: what the model had read, but for what was held.
        seen: up to where all is read or done with; None is all that is in the context.
        held: positions that the model was not shown.
        mark: why the loop goes on though the answer failed, `CUT` or `AGAIN`.
        is_over: the loop ends if the answer calls no tool and has no mark.
        message_id: of the preview that it ends; None is the one of this run.
        also: what is told in the same step.

    Raises:
        Fenced: the lease is lost.
        MessageTooLarge: the answer is over the limit.
        BusError: as for `Session.publish`.
    """
    # What an adapter brings along decides nothing: a loop is gone on with where we say so.
    given = {name: value for name, value in (message.metadata or {}).items() if name not in _OWN}
    private = {**given, **reading_marks(context.position if seen is None else seen, held)}
    if mark is not None:
        private[mark] = True
    message_id = message_id or answer_id(run, turn_id)
    whole = message.model_copy(
        update={
            "id": message_id,
            "turn_id": turn_id,
            "metadata": private,
            "timestamp": message.timestamp or now_ms(),
        }
    )
    own = Usage().combine(message.usage or Usage())  # which leaves the provider's own object out
    loop = AgentEnded(
        loop_id=turn_id.loop_id,
        stop_reason=whole.stop_reason,
        turns=turn_id.turn_index + 1,
        usage=loop_usage(context, turn_id.loop_id).combine(own),
    )

    def build(position: int) -> list[Publishable]:
        ended = MessageEnded(turn_id=turn_id, message_id=message_id, position=position)
        batch: list[Publishable] = [whole, ended.as_extension()]
        if not wanted_calls(whole):
            turn = TurnEnded(turn_id=turn_id, stop_reason=whole.stop_reason, usage=own, message=position)
            batch.append(turn.as_extension())
            if is_over and mark is None:
                batch.append(loop.as_extension())
        return [*batch, *(event.as_extension() for event in also)]

    return await run.publish_at(build, key=f"{turn_id}.answer")
