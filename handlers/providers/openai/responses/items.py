"""The input items of a Responses request, message by message."""

from collections.abc import Sequence
from typing import assert_never

from pydantic import JsonValue

from lanebus.bus.messages.content import RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.message import AssistantMessage
from lanebus.handlers.providers.common.blocks import called, name_of
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.common.thinking import as_text
from lanebus.handlers.providers.common.wire_ids import WireNames
from lanebus.handlers.providers.openai.responses.phase import phase_of
from lanebus.handlers.providers.openai.responses.reasoning import reasoning_item
from lanebus.handlers.providers.openai.shared.calls import arguments_text
from lanebus.handlers.providers.openai.shared.parts import Audio, File, Image, Part, Text

__all__ = ("AnswerItems", "message_item", "result_item")


def message_item(role: str, parts: Sequence[Part]) -> Json:
    """What anybody but a model said."""
    return {"type": "message", "role": role, "content": [_input_part(part) for part in parts]}


def result_item(wire_id: str, parts: Sequence[Part]) -> Json:
    """A tool's result: a bare string if it is one text or nothing, an array if it is more."""
    if not parts or (len(parts) == 1 and isinstance(parts[0], Text)):
        output: JsonValue = "".join(part.text for part in parts if isinstance(part, Text))
    else:
        output = [_input_part(part) for part in parts]
    return {"type": "function_call_output", "call_id": wire_id, "output": output}


class AnswerItems:
    """What a model said, as items in its order: texts of one phase that follow each other are one message.

    Its own thinking goes back as the reasoning items it was. The API takes none without what followed it, so that
    thinking is left out that ends the message, or whose following block is. Calls have no `id` but their call's: one
    that OpenAI has not made would be refused.
    """

    def __init__(
        self, message_id: str, names: WireNames, target: Target, losses: list[str], reasoned: set[str]
    ) -> None:
        """
        Args:
            message_id: what the API's messages are called, which want an id here; each gets a number behind it.
            reasoned: ids of the reasoning items so far, which grows: the API takes none twice.
        """
        self.left_out = False
        """whether thinking was"""
        self._message_id, self._names, self._target, self._losses = message_id, names, target, losses
        self._reasoned = reasoned
        self._items: list[Json] = []

    def of(self, message: AssistantMessage, ids: Sequence[str]) -> list[Json]:
        """The items.

        Args:
            ids: what the tool calls are called on the wire, one each, in order.
        """
        own, remaining = self._target.wrote(message), iter(ids)
        for block in message.content:
            match block:
                case TextBlock(text=text):
                    self._say(text, phase_of(block) if own else None)
                case ThinkingBlock() | RedactedThinkingBlock():
                    self._think(block, own=own)
                case ToolCallBlock():
                    self._items.append(self._call(block, next(remaining)))
                case _:
                    self._losses.append(f"{name_of(block)} left out: assistants cannot send it")
                    self._drop_reasoning("what followed it is left out")
        self._drop_reasoning("it ends the message")
        return self._items

    def _drop_reasoning(self, reason: str) -> None:
        """Leave out the reasoning that nothing follows."""
        while self._items and self._items[-1]["type"] == "reasoning":
            del self._items[-1]
            self._losses.append(f"thinking left out: {reason}")

    def _say(self, text: str, phase: str | None = None) -> None:
        if not text:
            return
        part: Json = {"type": "output_text", "text": text, "annotations": []}
        last = self._items[-1] if self._items else {}
        said_before = last.get("content") if last.get("type") == "message" and last.get("phase") == phase else None
        if isinstance(said_before, list):
            said_before.append(part)
            return
        item_id = f"{self._message_id}_{len(self._items)}"
        item: Json = {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": [part]}
        self._items.append({**item, "phase": phase} if phase else item)

    def _think(self, block: ThinkingBlock | RedactedThinkingBlock, *, own: bool) -> None:
        item = reasoning_item(block) if own else None
        if item is not None and self._is_known(item) and (item_id := str(item["id"])) not in self._reasoned:
            self._reasoned.add(item_id)
            self._items.append(item)
        elif told := as_text(block, self._target):
            self._say(told)
        else:
            self.left_out = True

    def _is_known(self, item: Json) -> bool:
        """Without its content an item is only a name, for what the provider keeps."""
        return "encrypted_content" in item or self._target.store is not False

    def _call(self, call: ToolCallBlock, wire_id: str) -> Json:
        return {
            "type": "function_call",
            "call_id": wire_id,
            "name": called(call, self._names, self._losses),
            "arguments": arguments_text(call, self._losses),
        }


def _input_part(part: Part) -> Json:
    match part:
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Image(url=url, file_id=file_id, detail=detail):
            where: Json = {"image_url": url} if url else {"file_id": file_id}
            return {"type": "input_image", **where, "detail": detail or "auto"}
        case File(data=data, url=url, file_id=file_id, filename=filename):
            told = {"file_data": data, "file_url": url, "file_id": file_id, "filename": filename}
            return {"type": "input_file", **{name: value for name, value in told.items() if value}}
        case Audio():
            raise AssertionError("media.py gives no audio for this API")
        case _:
            assert_never(part)
