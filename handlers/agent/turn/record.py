"""What a loop appends to its session: a turn's start, its answer, the loop's end, and the answers to commands."""

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import JsonValue

from lanebus.bus import OpenMessage
from lanebus.bus.errors import MessageError, MessageTooLarge
from lanebus.bus.messages import (
    Abort,
    AgentEnded,
    AgentEvent,
    AssistantMessage,
    ControlAnswered,
    ExtensionMessage,
    Handoff,
    InputRejected,
    Lane,
    MessageEnded,
    MessageStarted,
    Pause,
    Prune,
    Publishable,
    StopReason,
    TurnEnded,
    TurnId,
    TurnStarted,
    Usage,
    UserMessage,
    now_ms,
    parse_event,
)
from lanebus.bus.text import number_in, whole_model, without_secrets
from lanebus.bus.wire import Cursor, Receipt, ReservedKey
from lanebus.handlers.agent.models.model import PartialResponse, cut_content
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import LoopSettings
from lanebus.handlers.agent.tools.tool_executor import fail_calls
from lanebus.handlers.agent.turn.decision import (
    ABORTED,
    SKIPPED,
    AdoptToolCalls,
    CallModel,
    Interrupt,
    StopAtLimit,
    command_outcome,
    loop_usage,
)
from lanebus.handlers.agent.turn.loop_state import AGAIN, CUT, WARNING, SessionSnapshot, next_turn, wanted_calls
from lanebus.handlers.agent.turn.request import Offer
from lanebus.handlers.context import DEFERRED, READ_UP_TO, Context
from lanebus.handlers.projections import Command

# Record the start of a turn before the model is called, so that another worker knows that the model may have been
# called.

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


class TurnRecord:
    """Appends the answer of one model call, once. A repeated append adds nothing."""

    def __init__(self, run: Run, snapshot: SessionSnapshot, step: CallModel, response: PartialResponse) -> None:
        """
        Args:
            run: the run of the session.
            snapshot: the session as the model saw it, without the messages that `step` defers.
            step: the model call.
            response: the response so far.
        """
        self._run, self._snapshot, self._step, self._response = run, snapshot, step, response

    async def append(
        self,
        message: AssistantMessage,
        *,
        read_up_to: int | None = None,
        flag: str | None = None,
        also: Sequence[AgentEvent] = (),
    ) -> bool:
        """Append the answer. Return whether it was added. For arguments and errors see `record_answer`."""
        receipt = await record_answer(
            self._run,
            self._snapshot.context,
            self._step.turn_id,
            message,
            read_up_to=read_up_to,
            deferred=self._step.deferred if read_up_to is None else (),
            flag=flag,
            also=also,
            instead=lambda error: self._response.without_content(str(error)),
        )
        return not receipt.is_duplicate

    async def append_cut(self, interrupt: Interrupt) -> bool:
        """Append a response that a command has cut.

        The same append also answers the command, unless an older command is still unanswered.

        Returns:
            True if the loop is over.
        """
        command, control = interrupt
        is_next = (await self._run.refresh()).status.commands[:1] == (command,)
        also = (ControlAnswered(control=command.position, outcome="applied"),) if is_next else ()
        if isinstance(control, Abort) and is_next:
            return await self.append(self._response.cut("aborted", ABORTED), read_up_to=command.position, also=also)
        message = self._response.cut("aborted", ABORTED if isinstance(control, Abort) else SKIPPED)
        await self.append(message, flag=CUT, also=also)
        return False

    async def cut_preview(self, reason: str) -> None:
        """End the preview of a message that is not published. Errors are only logged."""
        turn_id = self._step.turn_id
        await self._run.cut_preview(answer_id(self._run, turn_id), turn_id, reason)


# The record of an answer: one append with the message and the ends of its turn and loop.

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


LOST = "the worker was lost"


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


# End a loop without an answer of the model: at a limit, by a guard, by a command, or after a failure of the agent.


def ended_event(
    snapshot: SessionSnapshot, loop_id: str, stop_reason: StopReason, *, turns: int | None = None
) -> AgentEnded:
    """Return the event that ends an open loop now.

    Args:
        turns: the loop's number of turns; None takes the number from the log.
    """
    return AgentEnded(
        loop_id=loop_id,
        stop_reason=stop_reason,
        turns=next_turn(snapshot, loop_id).turn_index if turns is None else turns,
        usage=loop_usage(snapshot.context, loop_id),
    )


async def stop_loop(run: Run, snapshot: SessionSnapshot, step: StopAtLimit) -> None:
    """End a loop at its limit, and append a note for the next model call.

    Source: the `two-lane-agent` system, which appends such a note too.
    """
    loop_id = step.turn_id.loop_id
    note = _note(step.reached.text, step.turn_id, step.read_up_to, step.deferred)
    ended = ended_event(snapshot, loop_id, step.reached.stop_reason, turns=step.turn_id.turn_index + 1)
    await run.publish(note, ended.as_extension(), key=ReservedKey(f"{loop_id}.stopped"))


async def reject_input(
    run: Run, snapshot: SessionSnapshot, settings: LoopSettings, step: CallModel, reason: str
) -> None:
    """End a loop whose input a guard rejected, before the model is called. The input is pruned from the context.

    Source of the events: the `two-lane-agent` system.
    """
    loop_id = step.turn_id.loop_id
    left = [position for position in (*step.prompts, *step.deferred) if position not in step.fresh]
    events: list[AgentEvent] = [InputRejected(loop_id=loop_id, reason=reason)]
    if step.start is not None:
        events.insert(0, settings.started(run, loop_id, step.start))
    ended = ended_event(snapshot, loop_id, "guardRail").model_copy(update={"rejection": reason})
    await run.publish(
        *(event.as_extension() for event in events),
        Prune(pruned=step.fresh, timestamp=now_ms()),
        _note(f"input rejected: {reason}", step.turn_id, max(step.fresh), left),
        ended.as_extension(),
        key=ReservedKey(f"{step.turn_id}.rejected"),
    )


async def abort_loop(run: Run, snapshot: SessionSnapshot, abort: Abort, answered: ControlAnswered) -> None:
    """End the open turn and loop after an `Abort`. User messages before the command are not answered any more.

    To mark these messages as answered, an empty aborted answer is appended to the LLM lane. No model reads it.
    """
    answer = _empty_answer("aborted", ABORTED, answered.control)
    stop_reason: StopReason = "aborted" if abort.when == "now" else "userStop"
    await _end(run, snapshot, answer, stop_reason, key=ReservedKey(f"control.{answered.control}"), also=(answered,))


async def fail_loop(
    run: Run,
    snapshot: SessionSnapshot,
    reason: str,
    *,
    read_up_to: int | None = None,
    key: ReservedKey | None = None,
    also: Sequence[AgentEvent] = (),
) -> None:
    """End the open turn and loop because the agent failed. The loop's prompts count as answered and are not retried.

    Args:
        read_up_to: messages up to this position count as answered; None means all.
        key: idempotency key; None makes a key from the context's position.
        also: events that are appended last, in the same append.

    Raises:
        Fenced: the lease was lost.
        BusError: as for `Session.publish`.
    """
    last = snapshot.context.position
    answer = _empty_answer("error", reason, last if read_up_to is None else read_up_to)
    await _end(run, snapshot, answer, "error", key=key or ReservedKey(f"failed.{last}"), also=also)


def _empty_answer(stop_reason: StopReason, text: str, read_up_to: int) -> AssistantMessage:
    return AssistantMessage(
        stop_reason=stop_reason, error_message=text, metadata=reading_metadata(read_up_to), timestamp=now_ms()
    )


async def _end(
    run: Run,
    snapshot: SessionSnapshot,
    answer: AssistantMessage,
    stop_reason: StopReason,
    *,
    key: ReservedKey,
    also: Sequence[AgentEvent],
) -> None:
    """Append an empty answer. If a loop is open, also append the ends of its turn and of the loop."""
    state, loop = snapshot.loop_state, snapshot.status.loop
    loop_id = state.loop_id or (loop.loop_id if loop is not None and state.is_stopped else None)
    turn_id = None if loop_id is None else next_turn(snapshot, loop_id)

    def build(position: int) -> Sequence[Publishable]:
        events: list[AgentEvent] = []
        if turn_id is not None and state.loop_id is not None:
            events += (
                TurnEnded(turn_id=turn_id, stop_reason=answer.stop_reason, usage=Usage(), message=position),
                ended_event(snapshot, turn_id.loop_id, stop_reason, turns=turn_id.turn_index + 1),
            )
        return [answer.model_copy(update={"turn_id": turn_id}), *(each.as_extension() for each in (*events, *also))]

    await run.publish_at(build, key=key)


def _note(text: str, turn_id: TurnId, read_up_to: int, deferred: Sequence[int]) -> UserMessage:
    note = UserMessage.text(f"[Agent stopped: {text}]").with_turn_id(turn_id)
    return note.model_copy(update={"metadata": reading_metadata(read_up_to, deferred)})


# Answer each command once, in log order. One append holds both the command's answer and its effect.


async def apply_command(run: Run, snapshot: SessionSnapshot, command: Command) -> None:
    """Answer the session's oldest unanswered command, which is `command`, and apply it.

    Raises:
        Fenced: the lease was lost.
        BusError: the log refuses the append.
    """
    outcome, reason = command_outcome(snapshot, command)
    answered = ControlAnswered(control=command.position, outcome=outcome, reason=reason)
    control, loop_id = command.control, snapshot.loop_state.loop_id
    events: list[AgentEvent] = [answered]
    if outcome == "applied":
        if isinstance(control, Abort):
            answer = snapshot.loop_state.answer
            if answer is not None and answer.open_calls and answer.turn_id.session == run.session.id:
                await fail_calls(run, answer, snapshot, ABORTED)  # of a stopped loop, which no loop continues
                snapshot = await run.refresh()
            await abort_loop(run, snapshot, control, answered)
            return
        if isinstance(control, Pause | Handoff) and loop_id is not None:
            stopped = ended_event(snapshot, loop_id, "paused" if isinstance(control, Pause) else "handoff")
            events.insert(0, stopped)
    await run.publish(*(event.as_extension() for event in events), key=ReservedKey(f"control.{command.position}"))


async def refuse(run: Run, commands: Sequence[Command], reason: str) -> None:
    """Refuse commands that the session's agent does not handle.

    Raises:
        Fenced: the lease was lost.
        BusError: the log refuses an append.
    """
    for event in refused(commands, reason):
        await run.publish(event.as_extension(), key=ReservedKey(f"control.{event.control}"))


def refused(commands: Sequence[Command], reason: str) -> tuple[ControlAnswered, ...]:
    """Return one answer for each of `commands`, with the outcome "refused" and this reason."""
    return tuple(ControlAnswered(control=each.position, outcome="refused", reason=reason) for each in commands)
