"""Render the input items of a Responses request."""

from collections.abc import Sequence
from typing import assert_never

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolCallBlock
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
    """Render a system, developer or user message."""
    return {"type": "message", "role": role, "content": [_input_part(part) for part in parts]}


def result_item(wire_id: str, parts: Sequence[Part]) -> Json:
    """Render a tool's result: a bare string for at most one text, otherwise an array."""
    if not parts or (len(parts) == 1 and isinstance(parts[0], Text)):
        output: JsonValue = "".join(part.text for part in parts if isinstance(part, Text))
    else:
        output = [_input_part(part) for part in parts]
    return {"type": "function_call_output", "call_id": wire_id, "output": output}


class AnswerItems:
    """Renders one assistant message as items, in order. Adjacent texts of one phase become one message item.

    Thinking of the same model goes back as the original reasoning items. The API refuses a reasoning item without the
    item that followed it. So thinking is left out at the end of the message, and before a block that is left out. Calls
    have only a `call_id`, because the API refuses an `id` that OpenAI did not generate.
    """

    def __init__(
        self, message_id: str, names: WireNames, target: Target, losses: list[str], reasoned: set[str]
    ) -> None:
        """Make an empty list of items.

        Args:
            message_id: prefix of the ids that the API requires for message items; a number is appended.
            names: names of the tools on the wire.
            target: the options of the request.
            losses: list to which each loss is appended.
            reasoned: ids of the reasoning items of the request so far. New ids are added. The API refuses an id that
                appears twice.
        """
        self.left_out = False
        """Whether thinking was left out."""
        self._message_id, self._names, self._target, self._losses = message_id, names, target, losses
        self._reasoned = reasoned
        self._items: list[Json] = []

    def of(self, message: AssistantMessage, ids: Sequence[str]) -> list[Json]:
        """Return the items of a message.

        Args:
            message: the message to render.
            ids: ids of the message's tool calls on the wire, in order.
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
        """Remove the reasoning items at the end of the items so far. Each is a loss with this reason."""
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
        elif text := as_text(block, self._target):
            self._say(text)
        else:
            self.left_out = True

    def _is_known(self, item: Json) -> bool:
        """Return whether the API can resolve a reasoning item.

        An item without encrypted content is only an id. Such an item needs an answer that the provider stores.
        """
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
            fields = {"file_data": data, "file_url": url, "file_id": file_id, "filename": filename}
            return {"type": "input_file", **{name: value for name, value in fields.items() if value}}
        case Audio():
            raise AssertionError("media.py returns no audio for this API")
        case _:
            assert_never(part)
