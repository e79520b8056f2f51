"""Transcript files made of JSON, and the logs that importing them creates."""

import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import JsonValue

from lanebus.bus import Bus, Session
from lanebus.bus.messages import Delta, Publishable
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.handlers.formats import ImportReport, import_transcript
from lanebus.handlers.formats.transcript import DEFAULT_TRANSCRIPT_BOUNDS, TranscriptBounds

__all__ = ("TALK", "Imported", "Object", "file_of", "imported", "messages_of")
Object = dict[str, JsonValue]
TALK: list[JsonValue] = [
    {"role": "system", "content": "be brief"},
    {"role": "developer", "content": "no lists", "name": "ops"},
    {"role": "user", "content": "what time is it?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"zone":"UTC"}'}},
            {"id": "call_2", "type": "function", "function": {"name": "clock", "arguments": '{"zone":'}},
            {"id": "call_3", "type": "custom", "custom": {"name": "shell", "input": "date"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "bad arguments"}]},
    {"role": "tool", "tool_call_id": "call_3", "content": "noon"},
    {"role": "assistant", "content": "It is noon.", "weight": 1},
]
"""a conversation of Chat Completions"""


class Imported:
    """A session with the imported entries."""

    def __init__(self, session: Session, report: ImportReport, log: list[Publishable]) -> None:
        self.session, self.report, self.log = session, report, log


def file_of(*lines: JsonValue | bytes) -> io.BytesIO:
    """Return a file with one JSON value a line. Bytes are used as a line unchanged."""
    return io.BytesIO(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )


async def messages_of(session: Session) -> list[Publishable]:
    """Return the session's messages, from position 1."""
    return [_message(envelope) async for envelope in session.read()]


@asynccontextmanager
async def imported(
    data_dir: Path, *lines: JsonValue | bytes, bounds: TranscriptBounds = DEFAULT_TRANSCRIPT_BOUNDS
) -> AsyncGenerator[Imported]:
    """Import the lines into a new session."""
    async with Bus.open(data_dir=data_dir) as bus:
        session = bus.session("s1")
        report = await import_transcript(session, file_of(*lines), bounds=bounds)
        yield Imported(session, report, await messages_of(session))


def _message(envelope: Envelope) -> Publishable:
    assert not isinstance(envelope.message, DecodeFailure | Delta)
    return envelope.message
