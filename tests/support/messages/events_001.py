"""Events as seed 001 writes them, read and written again."""

from collections.abc import Iterable
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.messages import Delta, Lane
from lanebus.bus.wire import Envelope
from lanebus.codecs import EventReader, EventWriter

__all__ = (
    "LOOP",
    "MOMENT",
    "USAGE",
    "Through",
    "agent_end",
    "agent_start",
    "answer",
    "message_end",
    "prompt",
    "through",
    "turn_end",
    "turn_start",
)
Json = dict[str, JsonValue]
LOOP = "s.m.1"
MOMENT = "2026-01-01T00:00:00Z"
USAGE: Json = {"input": 10, "output": 5, "reasoning": 0, "cache_read": 0, "cache_write": 0, "total_tokens": 15}


def prompt(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}


def answer(text: str, *, timestamp: int = 2) -> Json:
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "stopReason": "stop",
        "model": "mock",
        "provider": "mock",
        "usage": USAGE,
        "timestamp": timestamp,
    }


def agent_start(loop: str = LOOP, parent: str | None = None, kind: JsonValue = "Initial") -> Json:
    return {
        "type": "AgentStart",
        "agent_id": "a",
        "session_id": "s",
        "loop_id": loop,
        "parent_loop_id": parent,
        "continuation_kind": kind,
        "timestamp": MOMENT,
        "metadata": None,
    }


def agent_end(*messages: Json, loop: str = LOOP, usage: Json = USAGE) -> Json:
    told: list[JsonValue] = [*messages]
    return {
        "type": "AgentEnd",
        "loop_id": loop,
        "messages": told,
        "usage": usage,
        "timestamp": MOMENT,
        "rejection": None,
    }


def turn_start(index: int = 0, loop: str = LOOP, trigger: str = "User") -> Json:
    return {"type": "TurnStart", "loop_id": loop, "turn_index": index, "timestamp": MOMENT, "triggered_by": trigger}


def turn_end(message: Json, *results: Json, loop: str = LOOP) -> Json:
    told: list[JsonValue] = [*results]
    return {
        "type": "TurnEnd",
        "loop_id": loop,
        "message": message,
        "usage": USAGE,
        "timestamp": MOMENT,
        "tool_results": told,
    }


def message_end(message: Json, loop: str = LOOP) -> Json:
    return {"type": "MessageEnd", "loop_id": loop, "message": message}


class Through(NamedTuple):
    """The outcome of some events."""

    log: list[Envelope]
    live: list[Envelope]
    written: list[JsonValue]


def through(values: Iterable[JsonValue], session: str = "s") -> Through:
    """Read each event, append it to a log, and write it again."""
    reader, found = EventReader(), Through([], [], [])
    writer = EventWriter(reader.seen)
    for value in values:
        for message in reader.read(value):
            if isinstance(message, Delta):
                live = len(found.live) + 1
                envelope = Envelope(session, len(found.log), Lane.LLM, message, 0.0, "test", live)
                found.live.append(envelope)
            else:
                envelope = Envelope(session, len(found.log) + 1, message.lane, message, 0.0, "test")
                found.log.append(envelope)
            found.written.extend(writer.write(envelope).values)
    return found
