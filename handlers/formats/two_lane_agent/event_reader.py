"""Read the two-lane agent's events as entries: each message once, and events that name its position.

The two-lane agent's events contain whole messages. The same message appears up to four times: at its start, at its end,
at the end of its turn and at the end of its loop. This reader appends a message when the message ends. A message
without an end is appended when the end of its turn or loop contains it. All other events name the message's position.
The two-lane agent omits the turn of most messages; this reader adds it.
"""

from collections import defaultdict

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, UnknownKind, require_count
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    AssistantMessage,
    BranchSummary,
    CompactionEnded,
    CompactionStarted,
    Delta,
    InputRejected,
    LeafMove,
    LlmMessage,
    MessageEnded,
    MessageStarted,
    ParallelLoopsEnded,
    ParallelLoopsStarted,
    Progress,
    PruneApplied,
    Publishable,
    RevertApplied,
    ToolEnded,
    ToolResultMessage,
    ToolStarted,
    ToolUpdated,
    TurnEnded,
    TurnId,
    TurnStarted,
    require_json,
)
from lanebus.handlers.context import made
from lanebus.handlers.formats.codec import ORIGIN
from lanebus.handlers.formats.two_lane_agent.codec import (
    CONTINUATION,
    DELTA,
    TRIGGER,
    Fields,
    Seen,
    Spoken,
    read_blocks,
    read_llm_message,
    read_message,
    read_moment,
    read_usage,
    to_ours,
)

EntryOrDelta = Publishable | Delta


class ReadingState:
    """The state after the events that were read so far. `position` is the position of the last entry."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.seen = Seen()
        self._turns: dict[str, int] = {}
        self._message_counts: defaultdict[str, int] = defaultdict(int)
        self._open: dict[str, str] = {}

    def append(self, message: EntryOrDelta | AgentEvent) -> EntryOrDelta:
        """Return the message, or the event as a message, and assign the next position to it.

        A live delta gets no position.
        """
        entry = message.as_extension() if isinstance(message, AgentEvent) else message
        if not isinstance(entry, Delta):
            self.position += 1
        self.seen.add(self.position, entry)
        return entry

    # --- turns ----------------------------------------------------------------------------------------------------

    def turn(self, loop_id: str) -> TurnId:
        """Return the loop's current turn. If no event named a turn, return the loop's first turn."""
        return TurnId(loop_id=loop_id, turn_index=self._turns.get(loop_id, 0))

    def enter(self, turn_id: TurnId) -> TurnId:
        """Make this the current turn of its loop."""
        self._turns[turn_id.loop_id] = turn_id.turn_index
        return turn_id

    def turns(self, loop_id: str) -> int:
        """Return the number of turns that a loop has had."""
        return self._turns[loop_id] + 1 if loop_id in self._turns else 0

    # --- messages -------------------------------------------------------------------------------------------------

    def begin_message(self, loop_id: str) -> str:
        """Return a new id for the message that starts. The two-lane agent's messages have no ids, and live deltas need
        an id."""
        self._message_counts[loop_id] += 1
        self._open[loop_id] = f"{loop_id}.message.{self._message_counts[loop_id]}"
        return self._open[loop_id]

    def open_message(self, loop_id: str) -> str:
        """Return the id of the loop's current message. If there is no current message, begin one."""
        return self._open.get(loop_id) or self.begin_message(loop_id)

    def end_message(self, loop_id: str) -> str | None:
        """End the loop's current message and return its id; None if there is no current message."""
        return self._open.pop(loop_id, None)

    @staticmethod
    def take(message: Spoken, known: dict[int, Spoken]) -> int | None:
        """Return the position of `message` in `known`, or None, and remove that position from `known`.

        The removal ensures that two equal messages get two positions.
        """
        bare = _bare(message)
        position = next((place for place, each in known.items() if _bare(each) == bare), None)
        if position is not None:
            del known[position]
        return position

    def stamped(
        self, message: Spoken, turn_id: TurnId, mark: str | None = None, message_id: str | None = None
    ) -> Spoken:
        """Return the message as the log stores it.

        Args:
            message: the message as it was read.
            turn_id: the message's turn.
            mark: stored in the origin to write the same event again. "told" if the two-lane agent's event names a turn
                that it normally omits. "absent" if the event omits a turn that it normally names. None stores nothing.
            message_id: the message's id.
        """
        if not isinstance(message, LlmMessage):
            return message
        noted: dict[str, JsonValue] = {} if mark is None else {"turnId": mark}
        if isinstance(message, ToolResultMessage) and (beside := self.seen.beside(message.tool_call_id)):
            noted["result"] = beside
        origin: dict[str, JsonValue] = {ORIGIN: {"codec": "001", **noted}} if noted else {}
        metadata = {**(message.metadata or {}), **origin} or None
        return message.model_copy(update={"turn_id": turn_id, "id": message_id, "metadata": metadata})


def _bare(message: Spoken) -> Spoken:
    """Return a copy to compare with copies of the same message in other events.

    In the copy, the fields that the two-lane agent sometimes omits and the fields that the event reader adds are None.
    """
    if not isinstance(message, LlmMessage):
        return message
    return message.model_copy(
        update={
            "turn_id": None,
            "id": None,
            "metadata": None,
            "node_id": None,
            "parent_id": None,
            "tags": None,
            "provenance_hint": None,
        }
    )


def _agent_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    fields.text("session_id")
    kind, tag = _continuation(fields)
    event: dict[str, object] = {
        "loop_id": fields.text("loop_id"),
        "agent": fields.text("agent_id"),
        "parent_loop_id": fields.optional_text("parent_loop_id"),
        "continuation": kind,
        "continuation_tag": tag,
        "config": fields.value.get("config_snapshot"),
        "metadata": fields.value.get("metadata"),
        "timestamp": read_moment(fields),
    }
    return [now.append(made(AgentStarted, event, fields.path))]


def _continuation(fields: Fields) -> tuple[str, str | None]:
    """Return the kind of continuation, and its tag or None.

    The JSON is a name or `{"Rerun":{"tag":…}}`. Older logs have null for the first loop.
    """
    kind = fields.value.get("continuation_kind")
    if kind is None:
        return "initial", None
    path = fields.at("continuation_kind")
    if isinstance(kind, str) and kind not in {"Rerun", "Branch"}:
        return to_ours(CONTINUATION, kind, path), None
    if isinstance(kind, dict) and len(kind) == 1:
        (theirs,) = kind
        if theirs in {"Rerun", "Branch"}:
            return CONTINUATION[theirs], Fields(kind, path).object(theirs).text("tag")
    raise DecodeError(path, "is not a kind of continuation")


def _agent_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    loop_id = fields.text("loop_id")
    usage, moment, rejection = (
        read_usage(fields.object("usage")),
        read_moment(fields),
        fields.optional_text("rejection"),
    )
    messages = [
        read_message(item, f"{fields.at('messages')}.{index}") for index, item in enumerate(fields.items("messages"))
    ]
    known = now.seen.of_loop(loop_id)
    new = [message for message in messages if now.take(message, known) is None]
    entries = [now.append(now.stamped(message, message.turn_id or now.turn(loop_id))) for message in new]
    answers = [each for each in now.seen.of_loop(loop_id).values() if isinstance(each, AssistantMessage)]
    event = AgentEnded(
        loop_id=loop_id,
        stop_reason=answers[-1].stop_reason if answers else "stop",
        turns=now.turns(loop_id),
        usage=usage,
        rejection=rejection,
        timestamp=moment,
    )
    return [*entries, now.append(event)]


def _turn_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    turn_id = TurnId(loop_id=fields.text("loop_id"), turn_index=fields.whole("turn_index", bits=32))
    trigger = to_ours(TRIGGER, fields.text("triggered_by"), fields.at("triggered_by"))
    event = TurnStarted(turn_id=turn_id, trigger=trigger, timestamp=read_moment(fields))
    now.enter(turn_id)
    return [now.append(event)]


def _turn_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    loop_id = fields.text("loop_id")
    usage, moment = read_usage(fields.object("usage")), read_moment(fields)
    message = read_message(fields.any("message"), fields.at("message"))
    results = [
        read_llm_message(item, f"{fields.at('tool_results')}.{index}")
        for index, item in enumerate(fields.items("tool_results"))
    ]
    turn_id = now.enter(message.turn_id or now.turn(loop_id))
    known = {at: each for at, each in now.seen.of_loop(loop_id).items() if (each.turn_id or turn_id) == turn_id}
    entries: list[EntryOrDelta] = []

    def place(each: Spoken, mark: str | None) -> int:
        position = now.take(each, known)
        if position is None:
            entries.append(now.append(now.stamped(each, turn_id, mark)))
        return position or now.position

    position = place(message, "absent" if message.turn_id is None else None)
    event = TurnEnded(
        turn_id=turn_id,
        stop_reason=message.stop_reason if isinstance(message, AssistantMessage) else "stop",
        usage=usage,
        message=position,
        tool_results=tuple(place(result, None) for result in results),
        timestamp=moment,
    )
    return [*entries, now.append(event)]


def _message_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    loop_id = fields.text("loop_id")
    message = read_message(fields.any("message"), fields.at("message"))
    message_id = now.begin_message(loop_id)
    now.seen.tell_draft(message_id, message)
    return [now.append(MessageStarted(turn_id=now.turn(loop_id), message_id=message_id))]


def _message_update(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    loop_id, piece = fields.text("loop_id"), fields.object("delta")
    message = read_message(fields.any("message"), fields.at("message"))
    if len(piece.value) != 1:
        raise DecodeError(piece.path, f"wants one of {', '.join(DELTA)}")
    theirs = next(iter(piece.value))
    kind, text = to_ours(DELTA, theirs, piece.path), piece.object(theirs).text("delta")
    message_id = now.open_message(loop_id)
    now.seen.tell_draft(message_id, message)
    block = max(0, len(message.content) - 1) if isinstance(message, LlmMessage) else 0
    delta = Delta(kind=kind, message_id=message_id, turn_id=now.turn(loop_id), delta=text, block=block)
    return [now.append(delta)]


def _message_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    loop_id = fields.text("loop_id")
    message = read_message(fields.any("message"), fields.at("message"))
    message_id = now.end_message(loop_id)
    turn_id = message.turn_id or now.turn(loop_id)
    stamped = now.stamped(message, turn_id, "told" if message.turn_id else None, message_id)
    entry = now.append(stamped)
    ended = MessageEnded(turn_id=turn_id, message_id=message_id, position=now.position)
    return [entry, now.append(ended)]


LOOP_EVENTS = {
    "AgentStart": _agent_start,
    "AgentEnd": _agent_end,
    "TurnStart": _turn_start,
    "TurnEnd": _turn_end,
    "MessageStart": _message_start,
    "MessageUpdate": _message_update,
    "MessageEnd": _message_end,
}
"""Kind of event → function that reads it."""


def _tool_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    event = made(ToolStarted, _call(now, fields), fields.path)
    now.seen.arguments[event.tool_call_id] = fields.any("args")
    return [now.append(event)]


def _tool_update(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    event = made(ToolUpdated, _call(now, fields), fields.path)
    _result(now, event.tool_call_id, fields.object("partial_result"))
    return [now.append(event)]


def _tool_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    child, is_error = fields.optional_text("child_loop_id"), fields.flag("is_error")
    call = {**_call(now, fields), "is_error": is_error, "child_loop_id": child}
    event = made(ToolEnded, call, fields.path)
    _result(now, event.tool_call_id, fields.object("result"))
    return [now.append(event)]


def _result(now: ReadingState, call: str, result: Fields) -> None:
    read_blocks(result)
    result.optional_text("child_loop_id")
    names = {"content", "details", "child_loop_id"} & result.value.keys()
    now.seen.results[call] = {"details": None, **{name: result.value[name] for name in sorted(names)}}


def _progress(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    return [now.append(made(Progress, {**_call(now, fields), "text": fields.text("text")}, fields.path))]


def _call(now: ReadingState, fields: Fields) -> dict[str, object]:
    return {
        "turn_id": now.turn(fields.text("loop_id")),
        "tool_call_id": fields.text("tool_call_id"),
        "tool_name": fields.text("tool_name"),
    }


def _rejected(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    return [now.append(InputRejected(loop_id=fields.text("loop_id"), reason=fields.text("reason")))]


def _parallel_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    fields.text("session_id")
    return [now.append(ParallelLoopsStarted(loop_ids=fields.texts("loop_ids"), timestamp=read_moment(fields)))]


def _parallel_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    fields.text("session_id")
    event = ParallelLoopsEnded(
        selected_loop_id=fields.text("selected_loop_id"),
        selected_config_index=fields.whole("selected_config_index"),
        evaluation_usage=read_usage(fields.object("evaluation_usage")),
        timestamp=read_moment(fields),
    )
    return [now.append(event)]


def _compaction_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    event = CompactionStarted(
        loop_id=fields.text("loop_id"),
        estimated_tokens=fields.whole("estimated_tokens"),
        message_count=fields.whole("message_count"),
        timestamp=read_moment(fields),
    )
    return [now.append(event)]


def _compaction_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    event = CompactionEnded(
        loop_id=fields.text("loop_id"),
        messages_before=fields.whole("messages_before"),
        messages_after=fields.whole("messages_after"),
        estimated_tokens_before=fields.whole("estimated_tokens_before"),
        estimated_tokens_after=fields.whole("estimated_tokens_after"),
        loops_compacted=fields.whole("loops_compacted"),
        timestamp=read_moment(fields),
    )
    return [now.append(event)]


def _prune(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    """Read a prune. The two-lane agent names pruned messages only by timestamp; positions are added for known
    messages."""
    moments = fields.wholes("pruned_timestamps")
    known = now.seen.of_loop(fields.text("loop_id")).items()
    event = PruneApplied(
        loop_id=fields.text("loop_id"),
        tokens_removed=fields.whole("tokens_removed"),
        messages_removed=fields.whole("messages_removed"),
        memo=fields.optional_text("memo"),
        pruned=tuple(place for place, each in known if isinstance(each, LlmMessage) and each.timestamp in moments),
        pruned_timestamps=moments,
        timestamp=read_moment(fields),
    )
    return [now.append(event)]


def _revert(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    """Read a revert as up to three entries, in this order.

    The entries are a leaf move if the target is known, a branch summary if the revert has a summary, and the event. A
    refused revert is only the event.
    """
    applied, summary = fields.flag("applied"), fields.optional_text("summary")
    node, abandoned = fields.optional_whole("target"), fields.wholes("abandoned_node_ids")
    event: dict[str, object] = {
        "loop_id": fields.text("loop_id"),
        "category": fields.text("category"),
        "target_node": node,
        "abandoned_nodes": abandoned,
        "applied": applied,
        "reason": fields.optional_text("reason"),
        "timestamp": read_moment(fields),
    }
    checked = made(RevertApplied, event, fields.path)
    target = None if node is None else now.seen.node(node)
    entries: list[EntryOrDelta] = []
    place: int | None = None
    if applied and target is not None:
        entries.append(now.append(LeafMove(to=target)))
    if applied and summary is not None:
        branch = max(filter(None, map(now.seen.node, abandoned)), default=None)
        entries.append(now.append(BranchSummary(summary=summary, branch=branch)))
        place = now.position
    entries.append(now.append(checked.model_copy(update={"target": target, "summary": place})))
    if not applied and summary is not None:
        now.seen.summaries[now.position] = summary
    return entries


OTHER_EVENTS = {
    "ToolExecutionStart": _tool_start,
    "ToolExecutionUpdate": _tool_update,
    "ToolExecutionEnd": _tool_end,
    "ProgressMessage": _progress,
    "InputRejected": _rejected,
    "ParallelLoopStart": _parallel_start,
    "ParallelLoopEnd": _parallel_end,
    "CompactionStarted": _compaction_start,
    "CompactionEnded": _compaction_end,
    "PrunApplied": _prune,
    "RevertApplied": _revert,
}
"""Kind of event → function that reads it."""


_READERS = {**LOOP_EVENTS, **OTHER_EVENTS}


class EventReader:
    """Reads the events of one session, in order.

    Append the returned entries directly after `position` and without other entries in between, because the events name
    positions.

    Args:
        position: position of the session's last entry; 0 for an empty session.
    """

    def __init__(self, *, position: int = 0) -> None:
        require_count("position", position)
        self._now = ReadingState(position)

    @property
    def seen(self) -> Seen:
        """The messages, results and drafts that were read so far. Pass them to an `EventWriter`."""
        return self._now.seen

    def read(self, value: JsonValue) -> tuple[EntryOrDelta, ...]:
        """Convert one event to the entries and live deltas that describe it in a lanebus session, in order.

        A `TurnRequest` is converted to nothing, because it only repeats messages of earlier events.

        Args:
            value: the event's JSON, in the two-lane agent's format.

        Raises:
            UnknownKind: the two-lane agent has no such event.
            UnknownRole: a message in the event has a role that the two-lane agent does not have.
            DecodeError: a field is missing or has the wrong form. The error names the path to it.
        """
        require_json(value)
        fields = Fields(value)
        kind = fields.text("type")
        if kind == "TurnRequest":
            return ()
        if kind not in _READERS:
            raise UnknownKind(kind)
        return tuple(_READERS[kind](self._now, fields))
