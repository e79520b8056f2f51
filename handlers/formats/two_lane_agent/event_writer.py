"""Write lanebus events of tools, and other events that concern no loop, turn or message, as the two-lane agent's."""

from collections.abc import Iterator

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    AssistantMessage,
    BranchSummary,
    CompactionEnded,
    CompactionStarted,
    Delta,
    ExtensionMessage,
    InputRejected,
    LlmMessage,
    MessageEnded,
    MessageStarted,
    ParallelLoopsEnded,
    ParallelLoopsStarted,
    Progress,
    PruneApplied,
    RevertApplied,
    ToolEnded,
    ToolResultMessage,
    ToolStarted,
    ToolUpdated,
    TurnEnded,
    TurnStarted,
    UserMessage,
    parse_event,
)
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.handlers.context import Object
from lanebus.handlers.formats.codec import ORIGIN, Written
from lanebus.handlers.formats.two_lane_agent.codec import (
    CONTINUATION,
    DELTA,
    TRIGGER,
    MessageWriter,
    Seen,
    Spoken,
    to_theirs,
    write_moment,
    write_usage,
)


class EventForm:
    """Writes the messages, tool results and times in the two-lane agent's events of one entry.

    `losses` lists everything that the two-lane agent cannot represent.
    """

    def __init__(self, seen: Seen, envelope: Envelope) -> None:
        self.seen = seen
        self.session, self.position = envelope.session, envelope.position
        self._now = round(envelope.time * 1000)
        self._writer = MessageWriter()

    @property
    def losses(self) -> list[str]:
        return self._writer.losses

    def moment(self, event: AgentEvent) -> str:
        """Return the time of the event. If the event has no timestamp, return the envelope's time."""
        return write_moment(self._now if event.timestamp is None else event.timestamp)

    def message(self, message: Spoken, path: str, *, has_turn: bool) -> Object:
        """Return a message in the form that events contain.

        Args:
            message: the message.
            path: path of the message in the event, for losses.
            has_turn: whether the message names its turn, as in events that end a turn or a loop. `EventReader` may have
                noted in the message's metadata whether the original event named the turn. Such a note overrides
                `has_turn`.
        """
        if isinstance(message, LlmMessage):
            message, notes = _without_notes(message)
            mark = notes.get("turnId")
            has_turn = has_turn if mark is None else mark == "told"
            message = message.model_copy(update={"id": None, "turn_id": message.turn_id if has_turn else None})
        return self._writer.write(message, path) or {}

    def draft(self, message_id: str) -> Object:
        """Return the part of a message that was streamed so far. The model and the usage are missing until the message
        ends."""
        draft = self.seen.drafts.get(message_id) or AssistantMessage()
        if isinstance(draft, AssistantMessage) and draft.timestamp is None:
            return MessageWriter().write(AssistantMessage(content=draft.content, timestamp=self._now), "") or {}
        return self.message(draft, "message", has_turn=False)

    def result(self, call: str, position: int | None) -> Object:
        """Return a tool call's result.

        Args:
            call: id of the tool call.
            position: position of the result message. None returns the result that an event reported, or else the newest
                result in the log.
        """
        if position is None and call in self.seen.results:
            return self.seen.results[call]
        message = self.seen.message(position) or self.seen.result(call)
        if not isinstance(message, ToolResultMessage):
            return {"content": [], "details": None}
        unstructured = message.model_copy(update={"structured": None})  # `structured` becomes `details`
        noted = _without_notes(message)[1].get("result")
        beside = noted if isinstance(noted, dict) else {}
        content = self.message(unstructured, "result", has_turn=False)["content"]
        return {"content": content, "details": message.structured, **beside}


def _without_notes(message: LlmMessage) -> tuple[LlmMessage, Object]:
    """Split a message into the message without the event reader's notes, and these notes."""
    origin = (message.metadata or {}).get(ORIGIN)
    if not isinstance(origin, dict) or not _is_ours(origin):
        return message, {}
    rest = {key: item for key, item in (message.metadata or {}).items() if key != ORIGIN}
    return message.model_copy(update={"metadata": rest or None}), origin


def _is_ours(origin: Object) -> bool:
    noted = origin.keys() - {"codec"}
    is_turn_told = isinstance(origin.get("turnId"), str | None)
    return origin.get("codec") == "001" and bool(noted) and noted <= {"turnId", "result"} and is_turn_told


# The two-lane agent's events contain whole messages; lanebus events name messages by position. So an `EventWriter`
# needs every entry, in order. Messages alone produce no events. lanebus has no message events for prompts and tool
# results. The writer adds such events after the turn's start and after the tool's end.


class EventWriter:
    """Writes a session's entries as the two-lane agent's events. Pass each entry once, in order.

    Args:
        seen: what the session held before the first entry that `write` gets. None means that the session was empty.
            With the `seen` of an `EventReader`, the writer returns the same events that the reader was given.
    """

    def __init__(self, seen: Seen | None = None) -> None:
        self._seen = seen or Seen()

    def write(self, envelope: Envelope) -> Written:
        """Return the events of one entry or live delta. Many entries have no events.

        The result's `losses` list the parts of messages that the two-lane agent cannot represent. A turn's end has no
        event if the turn's message is unknown, because the event must contain the message.

        Args:
            envelope: the next entry or live delta.
        """
        message = envelope.message
        if isinstance(message, DecodeFailure):
            return Written(())
        self._seen.add(envelope.position, message)
        form = EventForm(self._seen, envelope)
        return Written(tuple(_events(form, envelope)), tuple(form.losses))


def _events(form: EventForm, envelope: Envelope) -> Iterator[Object]:
    match envelope.message:
        case Delta() as delta:
            yield from update_view(form, delta)
        case ExtensionMessage() as message:
            event = _parsed(message)
            if event is not None:
                yield from view_of_loop(form, event)
                yield from view_of_other(form, event)
        case _:
            return


def _parsed(message: ExtensionMessage) -> AgentEvent | None:
    try:
        return parse_event(message)
    except MessageError:  # not an event of the agent, despite its kind
        return None


# Write lanebus events of loops, turns and messages as the two-lane agent's events, which contain whole messages.


def view_of_loop(form: EventForm, event: AgentEvent) -> Iterator[Object]:
    """Yield the two-lane agent's events for an event of a loop, turn or message. Yield nothing for other events."""
    match event:
        case AgentStarted():
            yield _agent_start(form, event)
        case AgentEnded():
            yield _agent_end(form, event)
        case TurnStarted():
            yield from _turn_start(form, event)
        case TurnEnded():
            yield from _turn_end(form, event)
        case MessageStarted():
            message = form.draft(event.message_id)
            yield {"type": "MessageStart", "loop_id": event.turn_id.loop_id, "message": message}
        case MessageEnded(turn_id=turn_id, position=position):
            ended = form.seen.message(position)
            if ended is not None:
                yield _message_event("MessageEnd", form, turn_id.loop_id, ended)
        case _:
            return


def update_view(form: EventForm, delta: Delta) -> Iterator[Object]:
    """Yield the two-lane agent's event for a live delta. Yield nothing for a delta of kind "cut" or without a turn."""
    if delta.kind == "cut" or delta.turn_id is None:
        return
    piece: Object = {to_theirs(DELTA, delta.kind): {"delta": delta.delta}}
    message = form.draft(delta.message_id)
    yield {"type": "MessageUpdate", "loop_id": delta.turn_id.loop_id, "message": message, "delta": piece}


def told_message(form: EventForm, loop_id: str, message: Spoken) -> Iterator[Object]:
    """Yield a start event and an end event for a message that was not streamed."""
    yield _message_event("MessageStart", form, loop_id, message)
    yield _message_event("MessageEnd", form, loop_id, message)


def _message_event(kind: str, form: EventForm, loop_id: str, message: Spoken) -> Object:
    return {"type": kind, "loop_id": loop_id, "message": form.message(message, "message", has_turn=False)}


def _agent_start(form: EventForm, event: AgentStarted) -> Object:
    theirs = to_theirs(CONTINUATION, event.continuation)
    is_tagged = event.continuation in {"rerun", "branch"}
    kind: JsonValue = {theirs: {"tag": event.continuation_tag or ""}} if is_tagged else theirs
    config: Object = {} if event.config is None else {"config_snapshot": event.config}
    return {
        "type": "AgentStart",
        "agent_id": event.agent,
        "session_id": form.session,
        "loop_id": event.loop_id,
        "parent_loop_id": event.parent_loop_id,
        "continuation_kind": kind,
        "timestamp": form.moment(event),
        "metadata": event.metadata,
        **config,
    }


def _agent_end(form: EventForm, event: AgentEnded) -> Object:
    llm_messages = [each for each in form.seen.of_loop(event.loop_id).values() if isinstance(each, LlmMessage)]
    messages: list[JsonValue] = [
        form.message(message, f"messages.{index}", has_turn=True) for index, message in enumerate(llm_messages)
    ]
    return {
        "type": "AgentEnd",
        "loop_id": event.loop_id,
        "messages": messages if event.rejection is None else [],
        "usage": write_usage(event.usage),
        "timestamp": form.moment(event),
        "rejection": event.rejection,
    }


def _turn_start(form: EventForm, event: TurnStarted) -> Iterator[Object]:
    yield {
        "type": "TurnStart",
        "loop_id": event.turn_id.loop_id,
        "turn_index": event.turn_id.turn_index,
        "timestamp": form.moment(event),
        "triggered_by": to_theirs(TRIGGER, event.trigger),
    }
    for position in event.prompts:
        prompt = form.seen.message(position)
        if isinstance(prompt, UserMessage):
            yield from told_message(form, event.turn_id.loop_id, prompt)


def _turn_end(form: EventForm, event: TurnEnded) -> Iterator[Object]:
    message = form.seen.message(event.message)
    if message is None:
        return
    found = [form.seen.message(position) for position in event.tool_results]
    results = [result for result in found if isinstance(result, ToolResultMessage)]
    yield {
        "type": "TurnEnd",
        "loop_id": event.turn_id.loop_id,
        "message": form.message(message, "message", has_turn=True),
        "usage": write_usage(event.usage),
        "timestamp": form.moment(event),
        "tool_results": [
            form.message(each, f"tool_results.{index}", has_turn=False) for index, each in enumerate(results)
        ],
    }


def view_of_other(form: EventForm, event: AgentEvent) -> Iterator[Object]:
    """Yield the two-lane agent's events for an event that concerns no loop, turn or message. Yield nothing for other
    events."""
    match event:
        case ToolStarted():
            arguments = form.seen.arguments.get(event.tool_call_id)
            yield {"type": "ToolExecutionStart", **_call(event), "args": arguments}
        case ToolUpdated():
            result = form.result(event.tool_call_id, None)
            yield {"type": "ToolExecutionUpdate", **_call(event), "partial_result": result}
        case ToolEnded():
            yield from _tool_end(form, event)
        case Progress():
            yield {"type": "ProgressMessage", **_call(event), "text": event.text}
        case InputRejected():
            yield {"type": "InputRejected", "loop_id": event.loop_id, "reason": event.reason}
        case ParallelLoopsStarted() | ParallelLoopsEnded():
            yield {**_parallel(event), "session_id": form.session, "timestamp": form.moment(event)}
        case CompactionStarted() | CompactionEnded():
            yield {**_compaction(event), "loop_id": event.loop_id, "timestamp": form.moment(event)}
        case PruneApplied():
            yield _prune(form, event)
        case RevertApplied():
            yield _revert(form, event)
        case _:
            return


def _call(event: ToolStarted | ToolUpdated | ToolEnded | Progress) -> Object:
    return {"loop_id": event.turn_id.loop_id, "tool_call_id": event.tool_call_id, "tool_name": event.tool_name}


def _tool_end(form: EventForm, event: ToolEnded) -> Iterator[Object]:
    yield {
        "type": "ToolExecutionEnd",
        **_call(event),
        "result": form.result(event.tool_call_id, event.position),
        "is_error": event.is_error,
        "child_loop_id": event.child_loop_id,
    }
    message = form.seen.message(event.position)
    if message is not None:
        yield from told_message(form, event.turn_id.loop_id, message)


def _parallel(event: ParallelLoopsStarted | ParallelLoopsEnded) -> Object:
    if isinstance(event, ParallelLoopsStarted):
        return {"type": "ParallelLoopStart", "loop_ids": [*event.loop_ids]}
    return {
        "type": "ParallelLoopEnd",
        "selected_loop_id": event.selected_loop_id,
        "selected_config_index": event.selected_config_index,
        "evaluation_usage": write_usage(event.evaluation_usage),
    }


def _compaction(event: CompactionStarted | CompactionEnded) -> Object:
    if isinstance(event, CompactionStarted):
        return {
            "type": "CompactionStarted",
            "estimated_tokens": event.estimated_tokens,
            "message_count": event.message_count,
        }
    return {
        "type": "CompactionEnded",
        "messages_before": event.messages_before,
        "messages_after": event.messages_after,
        "estimated_tokens_before": event.estimated_tokens_before,
        "estimated_tokens_after": event.estimated_tokens_after,
        "loops_compacted": 1 if event.loops_compacted is None else event.loops_compacted,
    }


def _prune(form: EventForm, event: PruneApplied) -> Object:
    found = [form.seen.message(position) for position in event.pruned]
    known: list[JsonValue] = [each.timestamp or 0 for each in found if isinstance(each, LlmMessage)]
    return {
        "type": "PrunApplied",
        "loop_id": event.loop_id,
        "tokens_removed": event.tokens_removed,
        "messages_removed": len(event.pruned) if event.messages_removed is None else event.messages_removed,
        "memo": event.memo,
        "pruned_timestamps": known if event.pruned_timestamps is None else [*event.pruned_timestamps],
        "timestamp": form.moment(event),
    }


def _revert(form: EventForm, event: RevertApplied) -> Object:
    entry = form.seen.entries.get(event.summary or 0)
    target = form.seen.message(event.target)
    node = target.node_id if isinstance(target, LlmMessage) else None
    return {
        "type": "RevertApplied",
        "loop_id": event.loop_id,
        "category": event.category,
        "target": node if event.target_node is None else event.target_node,
        "abandoned_node_ids": [*event.abandoned_nodes],
        "summary": entry.summary if isinstance(entry, BranchSummary) else form.seen.summaries.get(form.position),
        "applied": event.applied,
        "reason": event.reason,
        "timestamp": form.moment(event),
    }
