"""Read answers of OpenAI's Responses API, whole or as a stream of events."""

from collections.abc import Mapping

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import Block
from lanebus.bus.messages.json_parser import require_json
from lanebus.bus.messages.usage import Rates, Usage
from lanebus.handlers.json_fields import as_object
from lanebus.handlers.providers.common.answer import NO_NAMES, AnswerState, ModelEvent, require_response, text_of
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.responses.output import output_blocks, refuses
from lanebus.handlers.providers.openai.responses.partial_item import GROWTH, GrowingItem
from lanebus.handlers.providers.openai.shared.fields import index_at, list_at, text_at
from lanebus.handlers.providers.openai.shared.usage import usage_of
from lanebus.handlers.providers.openai.shared.wire import PROVIDER

__all__ = ("OpenAIResponsesAnswer", "from_openai_responses")

_ENDS = ("completed", "incomplete", "failed", "cancelled")

_INCOMPLETE: Mapping[str, StopReason] = {"content_filter": "guardRail"}
"""Reason of an incomplete answer → stop reason. Any other reason means that the answer was too long: "length"."""

_UNFINISHED = ("in_progress", "incomplete")
"""Statuses of an item that did not arrive completely."""


def from_openai_responses(
    response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
) -> AssistantMessage:
    """Return the message of a whole response of the Responses API: the content of all its output items.

    Args:
        response: the response's JSON.
        model: the requested model's name; None uses the model name in the response.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.

    Raises:
        DecodeError: `response` is not a response of the Responses API, or is not finished.
    """
    require_response(response)
    if response.get("object") not in (None, "response") or not isinstance(response.get("output"), list):
        raise DecodeError("output", "a response of the Responses API has a list as output")
    require_json(response)
    answer = OpenAIResponsesAnswer(model, rates, names)
    answer.end(response, "")
    return answer.message()


class OpenAIResponsesAnswer(AnswerState):
    """Builds a message from the stream's events; see `Answer`.

    Args:
        model: the requested model's name; None uses the model name in the stream.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.
    """

    def __init__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
    ) -> None:
        super().__init__(model, rates, names)
        self._growing: dict[int, GrowingItem] = {}
        """Index of an item → the item, if it has not arrived completely."""
        self._whole: dict[int, list[Block]] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        """(index of an item, index of a part in the item) → index of the block in the message."""
        self._usage: Usage | None = None
        self._status: str | None = None
        self._reason: str | None = None
        self._is_refusal = False

    @property
    def is_counted(self) -> bool:
        """Whether the usage has arrived; see `Answer.is_counted`."""
        return self._usage is not None

    def take(self, event: Json) -> list[ModelEvent]:
        """Add one event of the stream, and return the model events that it adds; see `Answer.take`."""
        require_json(event)
        kind = event.get("type")
        match kind:
            case "response.created":
                self._identify(as_object(event.get("response"), "response"))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                return self.end(as_object(event.get("response"), "response"), "response")
            case "error":
                text_at(event, "message", "")  # refuse an error without readable text
                self._fail(event, "code")
            case "response.output_item.added":
                index, item = index_at(event, "output_index", ""), as_object(event.get("item"), "item")
                self._growing[index] = GrowingItem(index, item, self._names, self._numbers)
                return [*self._growing[index].begin()]
            case "response.output_item.done":
                index = index_at(event, "output_index", "")
                self._take_whole(index, as_object(event.get("item"), "item"), "item")
            case str() if kind in GROWTH:
                index = index_at(event, "output_index", "")
                if index not in self._growing:
                    raise DecodeError("output_index", f"no item {index} has begun")
                return [*self._growing[index].grow(kind, event)]
            case str():
                pass
            case _:
                raise DecodeError("type", "an event of the Responses API has a type")
        return []

    def end(self, response: Json, path: str) -> list[ModelEvent]:
        """Add the response that ends the stream.

        Args:
            response: the response's JSON.
            path: path of the response in the event, for errors.

        Raises:
            DecodeError: `response` is not finished, or not a response.
        """
        self._identify(response)
        self._status = text_at(response, "status", path) or "completed"
        if self._status not in _ENDS:
            raise DecodeError(f"{path}.status" if path else "status", f"it is not finished: {self._status}")
        details, error = response.get("incomplete_details"), response.get("error")
        self._reason = text_of(details, "reason") or None if isinstance(details, dict) else None
        if self._status == "failed":
            self._fail(error if isinstance(error, dict) else {}, "code")
        for index, item in enumerate(list_at(response, "output", path)):
            place = f"{path}.output.{index}" if path else f"output.{index}"
            self._take_whole(index, as_object(item, place), place)
        self._usage = usage_of(response.get("usage"), self._rates, f"{path}.usage" if path else "usage")
        self.is_complete = True
        return [self._usage] if self._usage else []

    def message(self, fault: str | None = None) -> AssistantMessage:
        """Return the message so far; see `Answer.message`."""
        fault = fault or self._error
        content = tuple(block for index in sorted({*self._whole, *self._growing}) for block in self._blocks(index))
        return self._message(PROVIDER, content, stop=self._stopped(), usage=self._usage, fault=fault)

    def _take_whole(self, index: int, item: Json, path: str) -> None:
        blocks = output_blocks(item, path, self._names)
        is_cut = self._error and item.get("type") == "function_call" and item.get("status") in _UNFINISHED
        self._whole[index] = [] if is_cut else blocks
        self._growing.pop(index, None)
        self._is_refusal = self._is_refusal or refuses(item)

    def _blocks(self, index: int) -> list[Block]:
        return self._whole[index] if index in self._whole else self._growing[index].blocks()

    def _stopped(self) -> tuple[StopReason, str | None]:
        match self._status:
            case "cancelled":
                return "aborted", self._status
            case "incomplete":
                return _INCOMPLETE.get(self._reason or "", "length"), self._reason or self._status
            case _ if self._is_refusal:
                return "guardRail", "refusal"
            case _:
                called = any(block.type == "toolCall" for blocks in self._whole.values() for block in blocks)
                return "toolUse" if called else "stop", self._status
