"""Seed 001's messages: our native JSON is theirs extended, so this is where theirs ends.

Accepted and refused is what 001 itself accepts and refuses, see `reading.py` for the two exceptions. It has user,
assistant and tool result messages with text, inline images, thinking and tool calls, and extensions; all else that our
messages say is a loss.
"""

from collections.abc import Sequence

from pydantic import JsonValue

from bus.messages.parsing import require_json
from bus.messages.reading import Publishable
from handlers.codecs.c001.reading import read_message
from handlers.codecs.c001.writing import MessageWriter
from handlers.codecs.codec import Codec, Written, written

__all__ = ("C001",)


def _read(value: JsonValue) -> tuple[Publishable, ...]:
    require_json(value)
    return (read_message(value),)


def _write(messages: Sequence[Publishable], lossy: bool) -> Written:
    writer = MessageWriter()
    values = [writer.write(message, str(index)) for index, message in enumerate(messages)]
    return written("001", [value for value in values if value is not None], writer.losses, lossy=lossy)


C001 = Codec(name="001", about="seed 001, the Rust agent loop with two lanes", read=_read, write=_write)
