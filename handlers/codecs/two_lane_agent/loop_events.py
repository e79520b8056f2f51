"""Read the two-lane agent's events of loops, turns and messages. These events contain whole messages."""

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import AgentEnded, AgentStarted, MessageEnded, MessageStarted, TurnEnded, TurnStarted
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.codecs.two_lane_agent.fields import Fields
from lanebus.handlers.codecs.two_lane_agent.moment import read_moment
from lanebus.handlers.codecs.two_lane_agent.reader import read_llm_message, read_message, read_usage
from lanebus.handlers.codecs.two_lane_agent.reading_state import EntryOrDelta, ReadingState
from lanebus.handlers.codecs.two_lane_agent.seen import Spoken
from lanebus.handlers.codecs.two_lane_agent.vocabulary import CONTINUATION, DELTA, TRIGGER, to_ours
from lanebus.handlers.json_fields import made

__all__ = ("LOOP_EVENTS",)


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
