"""The codec of the `coding-agent` format."""

from pydantic import JsonValue

from lanebus.bus.errors import InvalidArgument, require_text
from lanebus.bus.messages.json_reader import Publishable
from lanebus.handlers.codecs.codec import Codec
from lanebus.handlers.codecs.coding_agent.contents import can_say
from lanebus.handlers.codecs.coding_agent.media import Files, inlined
from lanebus.handlers.codecs.coding_agent.reader import read_message
from lanebus.handlers.codecs.coding_agent.writer import same_message, written_message
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.codecs.round_trip import Dialect, round_trip_codec

__all__ = ("CODING_AGENT", "coding_agent_codec")

_ABOUT = "a coding agent: several images in a block, several results in a message"


def coding_agent_codec(*, provider: str | None = None, model: str | None = None, files: Files | None = None) -> Codec:
    """Return the codec of the `coding-agent` system's messages, including the extra roles of its session files.

    A custom message becomes an extension message of kind `custom`. Both kinds of summaries become context entries. A
    tool message with several results becomes several messages with one `batch_id`.

    Args:
        provider, model: provider and model to record in answers that do not name them. Most answers do not. None leaves
            them unknown.
        files: reads local files that messages name; see `Files`. None refuses such messages. No file is opened without
            `files`.
    """
    require_text("provider", provider, is_optional=True)
    require_text("model", model, is_optional=True)
    if files is not None and not callable(files):
        raise InvalidArgument("files", files, "pass a function that returns a MediaRef, or None")

    def prepare(value: JsonValue) -> JsonValue:
        return inlined(value, files)

    def read(value: JsonValue) -> tuple[Publishable, ...]:
        return read_message(JsonObject.of(value), provider, model)

    return round_trip_codec(
        Dialect(
            name="000",
            about=_ABOUT,
            read=read,
            write=written_message,
            can_say=can_say,
            same=same_message,
            prepare=prepare,
            names_results=False,
        )
    )


CODING_AGENT = coding_agent_codec()
