"""The record of an answer: one append with the message and the ends of its turn and loop."""

from collections.abc import Callable, Sequence

from pydantic import JsonValue

from lanebus.bus.digits import number_in
from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.events import AgentEnded, AgentEvent, MessageEnded, TurnEnded
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.bus.whole_text import whole_model
from lanebus.bus.wire.receipt import Receipt
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.decide.open_answer import wanted_calls
from lanebus.handlers.agent.limits import loop_usage
from lanebus.handlers.agent.metadata_keys import AGAIN, CUT
from lanebus.handlers.agent.run import Run
from lanebus.handlers.context.fold import Context
from lanebus.handlers.context.read_marks import DEFERRED, READ_UP_TO

__all__ = ("answer_id", "is_of_earlier_lease", "reading_metadata", "record_answer")

_OWN = frozenset({AGAIN, CUT, DEFERRED, READ_UP_TO})


def answer_id(run: Run, turn_id: TurnId) -> str:
    """Return the id of a turn's answer and of its preview.

    The id contains the lease's epoch. So if a turn begins again, its new preview is not mistaken for the earlier
    preview that was cut.
    """
    return f"{turn_id}.{run.lease.epoch}"


def is_of_earlier_lease(run: Run, turn_id: TurnId, message_id: str) -> bool:
    """Whether a message has the id of an answer of this turn that was streamed under an earlier lease."""
    stem, _, digits = message_id.rpartition(".")
    epoch = number_in(digits)
    return stem == str(turn_id) and epoch is not None and epoch < run.lease.epoch


def reading_metadata(read_up_to: int, deferred: Sequence[int] = ()) -> dict[str, JsonValue]:
    """Return metadata for an answer: the position up to which the model has read, and the `deferred` positions that it
    was not shown."""
    metadata: dict[str, JsonValue] = {READ_UP_TO: read_up_to}
    left: list[JsonValue] = [position for position in deferred if position <= read_up_to]
    if left:
        metadata[DEFERRED] = left
    return metadata


async def record_answer(
    run: Run,
    context: Context,
    turn_id: TurnId,
    message: AssistantMessage,
    *,
    read_up_to: int | None = None,
    deferred: Sequence[int] = (),
    flag: str | None = None,
    is_over: bool = True,
    message_id: str | None = None,
    also: Sequence[AgentEvent] = (),
    instead: Callable[[MessageError], AssistantMessage] | None = None,
) -> Receipt:
    """Append a turn's answer once. A repeat adds nothing, even with another message.

    Text that UTF-8 cannot hold is replaced: the answer is paid for, and a repeat may have the same text.

    Args:
        context: the context that the model has read, except for deferred messages.
        read_up_to: messages up to this position count as read; None means the whole context.
        deferred: positions that the model was not shown.
        flag: metadata key that keeps the loop open after a failed answer: `CUT` or `AGAIN`. None sets no flag.
        is_over: end the loop if the answer calls no tool and has no flag.
        message_id: id of the preview that the answer ends; None means this run's preview.
        also: more events for the same append.
        instead: returns the message to append if the log refuses the answer, for example because it is too large.

    Raises:
        Fenced: the lease was lost.
        MessageError: the log refuses the answer, and the message from `instead`.
        BusError: as for `Session.publish`.
    """
    message_id = message_id or answer_id(run, turn_id)
    own = reading_metadata(context.position if read_up_to is None else read_up_to, deferred)

    async def append(message: AssistantMessage) -> Receipt:
        # Drop the loop's own keys if a model's adapter has set them.
        adapters = {name: value for name, value in (message.metadata or {}).items() if name not in _OWN}
        metadata = {**adapters, **own} if flag is None else {**adapters, **own, flag: True}
        spent = None if message.usage is None else message.usage.with_total()
        whole = message.model_copy(
            update={
                "usage": spent,
                "id": message_id,
                "turn_id": turn_id,
                "metadata": metadata,
                "timestamp": message.timestamp or now_ms(),
                "error_message": None if message.error_message is None else without_secrets(message.error_message),
            }
        )
        usage = Usage().combine(spent or Usage())  # without the provider's raw object
        loop = AgentEnded(
            loop_id=turn_id.loop_id,
            stop_reason=whole.stop_reason,
            turns=turn_id.turn_index + 1,
            usage=loop_usage(context, turn_id.loop_id).combine(usage),
        )

        def build(position: int) -> list[Publishable]:
            ended = MessageEnded(turn_id=turn_id, message_id=message_id, position=position)
            batch: list[Publishable] = [whole, ended.as_extension()]
            if not wanted_calls(whole):
                turn = TurnEnded(turn_id=turn_id, stop_reason=whole.stop_reason, usage=usage, message=position)
                batch.append(turn.as_extension())
                if is_over and flag is None:
                    batch.append(loop.as_extension())
            return [*batch, *(event.as_extension() for event in also)]

        return await run.publish_at(build, key=ReservedKey(f"{turn_id}.answer"))

    try:
        return await append(message)
    except MessageError as error:
        refused, whole = error, whole_model(message)
    try:
        if whole != message:
            return await append(whole)
    except MessageError as error:
        refused = error
    if instead is None:
        raise refused
    return await append(instead(refused))
