"""A conversation in the form of OpenAI's Chat Completions API: one JSON document, `{"messages":[…]}` or the bare list.

A file with several conversations is refused, such as a fine-tuning file with one conversation per line: a session holds
one conversation. Nothing is lost: fields without a counterpart in lanebus go into the metadata. Source: the API's
reference.
"""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.handlers.json_fields import Object
from lanebus.handlers.transcripts.format import Format, TranscriptEntry
from lanebus.handlers.transcripts.openai_chat.message import ROLES, read_openai_message
from lanebus.handlers.transcripts.source import canonical_json

__all__ = ("OPENAI_CHAT", "SeveralConversations")

_NAME = "openai-chat"
_HEADER = "openai.document"
"""type of an extra first message that holds the document's fields other than `messages`"""


class SeveralConversations(MessageError):
    """The file holds several conversations, but a session holds only one conversation. Nothing was published."""

    def __init__(self, count: int) -> None:
        super().__init__(f"the file holds {count} conversations, a session takes one", "import each by itself")
        self.count = count


def _recognizes(value: JsonValue) -> bool:
    messages = _messages(value)
    return bool(messages) and all(isinstance(each, dict) and each.get("role") in ROLES for each in messages or ())


def _messages(value: JsonValue) -> list[JsonValue] | None:
    found = value.get("messages") if isinstance(value, dict) else value
    return found if isinstance(found, list) else None


def _identity(value: JsonValue) -> bytes:
    """Return the first message as the identity: a continued conversation is the same transcript."""
    return canonical_json((_messages(value) or [None])[0])


def _split(values: Sequence[JsonValue]) -> Sequence[JsonValue]:
    """Return the messages. If the document has other fields, an extra first message holds these fields."""
    if len(values) != 1:
        raise SeveralConversations(len(values))
    value = values[0]
    messages = _messages(value)
    if messages is None:
        raise DecodeError("messages", "wants a list of messages")
    rest = {key: item for key, item in value.items() if key != "messages"} if isinstance(value, dict) else {}
    return [{"type": _HEADER, "document": rest}, *messages] if rest else messages


def _read(value: JsonValue) -> TranscriptEntry:
    if not isinstance(value, dict):
        raise DecodeError("", "a message is a JSON object")
    if value.get("type") == _HEADER and "role" not in value:
        header: Object = {"format": _NAME, "header": value.get("document")}
        return TranscriptEntry(message=ExtensionMessage.of("import.header", header))
    return TranscriptEntry(message=read_openai_message(value))


OPENAI_CHAT = Format(
    name=_NAME,
    sign='one JSON document: {"messages":[…]}, or a list, of messages with the roles of OpenAI\'s Chat Completions',
    recognizes=_recognizes,
    read=_read,
    identity=_identity,
    split=_split,
)
