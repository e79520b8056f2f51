"""The messages to publish: from a recorded coding session if the file exists, otherwise from a generated session."""

from itertools import cycle, islice
from pathlib import Path

from lanebus import (
    ALL_LANES,
    AssistantMessage,
    Bus,
    Lane,
    LlmMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.handlers.formats import import_transcript

__all__ = ("Material", "take")

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "pi-session.jsonl"

_MADE_TURNS = 300
_MADE_OUTPUT = "src/module_{}.py: 214 lines, last changed by the refactoring of the loader\n"


class Material:
    """Messages of the LLM lane, repeated as often as needed."""

    def __init__(self, source: str, messages: list[LlmMessage]) -> None:
        self.source, self._messages = source, messages
        sizes = [len(message.to_json().encode()) for message in messages]
        self.mean_bytes = sum(sizes) // len(sizes)

    def take(self, count: int) -> list[LlmMessage]:
        """Return `count` messages in the session's order, repeated from the start if the session has fewer."""
        return list(islice(cycle(self._messages), count))


async def take(bus: Bus) -> Material:
    """Return the recorded session, imported into the bus and read back, or, without a recording, a generated
    session."""
    if not REAL.exists():
        return Material("a made session", _made())
    session = bus.session("material")
    await import_transcript(session, REAL)
    envelopes = [envelope.message async for envelope in session.read(lanes=ALL_LANES - {Lane.EXTENSION})]
    return Material("a real coding session", [message for message in envelopes if isinstance(message, LlmMessage)])


def _made() -> list[LlmMessage]:
    """Return a session like a coding agent's: questions, tool calls and long results; about 2 KB a message."""
    messages: list[LlmMessage] = []
    for turn in range(_MADE_TURNS):
        call = ToolCallBlock(id=f"call_{turn}", name="search", arguments={"query": f"loader {turn}", "limit": 40})
        usage = Usage(input=12, output=180 + turn, cache_read=40_000 + 900 * turn, cache_write=900)
        rows = "".join(_MADE_OUTPUT.format(row) for row in range(turn % 100))
        messages += [
            UserMessage(content=(TextBlock(text=f"Where is loader {turn} used, and what would break?"),)),
            AssistantMessage(content=(call,), stop_reason="toolUse", model="made", provider="bench", usage=usage),
            ToolResultMessage(tool_call_id=call.id, tool_name=call.name, content=(TextBlock(text=rows),)),
            AssistantMessage(content=(TextBlock(text=f"It is used in {turn} places. " + rows[:1500]),), usage=usage),
        ]
    return messages
