"""Write messages as the two-lane agent's JSON. Each part that this JSON cannot represent is a loss with its path."""

from collections.abc import Collection, Iterator
from hashlib import sha256

from pydantic import BaseModel, JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock, UnknownBlock
from lanebus.bus.messages.context_entry import ContextEntry
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.media import MediaRef, sniff
from lanebus.bus.messages.message import SystemMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.codecs.two_lane_agent.reader import INVALID, is_malformed
from lanebus.handlers.json_fields import Object

__all__ = ("MessageWriter", "write_usage")

_COMMON = ("role", "content", "timestamp", "turn_id", "node_id", "parent_id", "tags", "provenance_hint", "metadata")
_ASSISTANT = ("stop_reason", "model", "provider", "usage", "error_message")
_RESULT = ("tool_call_id", "tool_name", "is_error")
_USAGE = ("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens")
# Size and checksum can be derived from the data, so leaving them out is no loss.
_IMAGE = ("kind", "data", "mime_type", "size_bytes", "sha256")


def write_usage(usage: Usage) -> Object:
    """Return the six counts of tokens that the two-lane agent's usage has."""
    return {name: getattr(usage, name) for name in _USAGE}


class MessageWriter:
    """Writes messages in order, and collects the losses.

    The two-lane agent requires the tool's name in every result. If a result has no name, the name is taken from the
    call.
    """

    def __init__(self) -> None:
        self.losses: list[str] = []
        self._names: dict[str, str] = {}

    def write(self, message: Publishable, path: str) -> Object | None:
        """Return the JSON of one message; None if the two-lane agent has no such message. Paths of losses start with
        `path`."""
        match message:
            case ExtensionMessage():
                return {"role": "extension", "kind": message.kind, "data": message.data}
            case UserMessage():
                self._lose_rest(message, _COMMON, path)
                own: Object = {}
            case AssistantMessage():
                self._lose_rest(message, (*_COMMON, *_ASSISTANT), path)
                self._names.update((call.id, call.name) for call in message.tool_calls())
                own = self._assistant(message, path)
            case ToolResultMessage():
                self._lose_rest(message, (*_COMMON, *_RESULT), path)
                own = self._result(message, path)
            case ContextEntry():
                self.losses.append(f"{path}: a context entry")
                return None
            case _:
                self.losses.append(
                    f"{path}: a {'system' if isinstance(message, SystemMessage) else 'developer'} message"
                )
                return None
        content: list[JsonValue] = [*self._content(message.content, f"{path}.content")]
        return {"role": message.role, "content": content, **own, **self._added(message, path)}

    def _assistant(self, message: AssistantMessage, path: str) -> Object:
        usage = message.usage or Usage()
        self._lose_rest(usage, _USAGE, f"{path}.usage")
        for name in ("model", "provider", "usage"):
            if getattr(message, name) is None:
                self.losses.append(f"{path}.{name}: is unknown")
        own: Object = {
            "stopReason": message.stop_reason,
            "model": message.model or "",
            "provider": message.provider or "",
            "usage": {name: self._u64(count, f"{path}.usage.{name}") for name, count in write_usage(usage).items()},
        }
        return own if message.error_message is None else {**own, "error_message": message.error_message}

    def _result(self, message: ToolResultMessage, path: str) -> Object:
        name = self._names.get(message.tool_call_id) if message.tool_name is None else message.tool_name
        if name is None:
            self.losses.append(f"{path}.toolName: is unknown")
        return {"toolCallId": message.tool_call_id, "toolName": name or "", "isError": message.is_error}

    def _added(self, message: LlmMessage, path: str) -> Object:
        """Return the timestamp, and the optional fields that the two-lane agent adds to a message, if they are set."""
        if message.timestamp is None:
            self.losses.append(f"{path}.timestamp: is missing")
        added: Object = {"timestamp": self._u64(message.timestamp or 0, f"{path}.timestamp")}
        if message.turn_id is not None:
            added["turnId"] = self._turn(message.turn_id, path)
        if message.node_id is not None:
            added["nodeId"] = message.node_id
        if message.parent_id is not None:
            added["parentId"] = message.parent_id
        if message.tags:
            added["tags"] = [tag.model_dump(mode="json") for tag in message.tags]
        match message.provenance_hint:
            case None:
                pass
            case {"kind": str()} as hint:
                added["provenanceHint"] = hint
            case _:
                self.losses.append(f"{path}.provenanceHint: it has no kind")
        for name, item in (message.metadata or {}).items():
            key = INVALID.get(name)
            # The reader keeps only malformed values here. A valid value was forged, and the two-lane agent would accept
            # it.
            if key is None or key in added or not is_malformed(key, item):
                self.losses.append(f"{path}.metadata.{name}")
            else:
                added[key] = item
        return added

    def _turn(self, turn_id: TurnId, path: str) -> Object:
        if turn_id.turn_index >= 2**32:
            self.losses.append(f"{path}.turnId: its value, which 001 ignores")
        return {"loopId": turn_id.loop_id, "turnIndex": turn_id.turn_index}

    def _content(self, blocks: tuple[Block, ...], path: str) -> Iterator[Object]:
        for index, block in enumerate(blocks):
            written = self._block(block, f"{path}.{index}")
            if written is None:
                self.losses.append(f"{path}.{index}: a block {block.type}")
            else:
                yield written

    def _block(self, block: Block, path: str) -> Object | None:
        match block:
            case TextBlock():
                self._lose_rest(block, ("type", "text"), path)
                return {"type": "text", "text": block.text}
            case ThinkingBlock():
                self._lose_rest(block, ("type", "text", "signature"), path)
                signature: Object = {} if block.signature is None else {"signature": block.signature}
                return {"type": "thinking", "thinking": block.text, **signature}
            case ToolCallBlock():
                self._lose_rest(block, ("type", "id", "name", "arguments"), path)
                return {"type": "toolCall", "id": block.id, "name": block.name, "arguments": block.arguments}
            case ImageBlock(media=MediaRef(kind="data", data=str() as data) as media):
                self._lose_rest(block, ("type", "media"), path)
                self._lose_rest(media, _IMAGE, f"{path}.media")
                self._lose_false(media, f"{path}.media")
                return {"type": "image", "data": data, "mimeType": self._mime_type(media, path)}
            case UnknownBlock(raw={"type": "image", "data": str() as data, "mimeType": str() as mime_type} as raw):
                # an image whose data is not base64; the reader keeps such an image as an unknown block
                return {"type": "image", "data": data, "mimeType": mime_type} if len(raw) == 3 else None
            case _:
                return None

    def _lose_false(self, media: MediaRef, path: str) -> None:
        """Add a loss for a size or checksum that does not match the data and so cannot be derived from the data."""
        if media.size_bytes not in (None, media.inline_size_bytes):
            self.losses.append(f"{path}.sizeBytes")
        if media.sha256 not in (None, sha256(media.decoded()).hexdigest()):
            self.losses.append(f"{path}.sha256")

    def _mime_type(self, media: MediaRef, path: str) -> str:
        if media.mime_type is not None:
            return media.mime_type
        found = sniff(media.decoded())
        if found is None:
            self.losses.append(f"{path}.media.mimeType: is unknown")
        return found or "application/octet-stream"

    def _u64(self, value: JsonValue, path: str) -> int:
        """Return `value` if the two-lane agent can read it. Otherwise add a loss and return 0."""
        if isinstance(value, int) and 0 <= value < 2**64:
            return value
        self.losses.append(f"{path}: its value")
        return 0

    def _lose_rest(self, value: BaseModel, kept: Collection[str], path: str) -> None:
        """Add a loss for every field that is set and is not in `kept`."""
        for name, field in type(value).model_fields.items():
            item: object = getattr(value, name)
            is_empty = item in (None, ()) or (name == "metadata" and item == {})
            if name not in kept and not is_empty and item != field.default:
                self.losses.append(f"{path}.{field.serialization_alias or name}")
