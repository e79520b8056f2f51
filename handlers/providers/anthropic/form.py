"""Write a context as a request to Anthropic's Messages API. The request is plain dicts; no SDK is imported.

Source: the Messages API and the parameter types of its Python SDK (2.11).
"""

from collections import deque
from typing import Unpack

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.anthropic.blocks import (
    PROVIDER,
    assistant_blocks,
    result_block,
    system_blocks,
    user_blocks,
)
from lanebus.handlers.providers.common.blocks import copied
from lanebus.handlers.providers.common.form import build_request
from lanebus.handlers.providers.common.request import Json, ProviderRequest
from lanebus.handlers.providers.common.target import RequestOptions, Target
from lanebus.handlers.providers.common.wire_ids import WireIds, WireNames, WirePattern

__all__ = ("PLACEHOLDER", "to_anthropic")

CALL_ID = WirePattern.of("a-zA-Z0-9_-", 64)
TOOL_NAME = WirePattern.of("a-zA-Z0-9_-", 128)

MAX_TOKENS = 4096
"""Default of `max_tokens`. The API requires a limit."""

_CHOICE = {"auto": "auto", "required": "any", "named": "tool"}

_UNMARKED = frozenset({"thinking", "redacted_thinking"})

PLACEHOLDER = "..."
"""Text of the user message that is added if the context does not start with a user message."""


def to_anthropic(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """Return the request that sends the context to a model. The request's warnings include the context's faults.

    Roles alternate and start with the user. Tool results come first in the user message after their calls. Metadata,
    raw provider objects, usage and names are not sent.

    With `cache`, the body has up to three marks, and the API caches the request up to each mark. The marks are at the
    end of the instructions, at the last tool, and at the second last message. The `two-lane-agent` system has the same
    marks.

    Args:
        context: the context to send.
        options: see `RequestOptions`; `max_tokens` defaults to 4096.

    Raises:
        NoModel: no model is passed, and the session names no model.
        ToolNotOffered: the tool choice names a tool that is not offered.
        ContentRefused: `strict` is True, and a part of the context would be left out or changed.
    """
    return build_request(PROVIDER, context, options, _Form)


class _Form:
    """Builds the request: turns with alternating roles."""

    def __init__(self, target: Target) -> None:
        self._system: list[Json] = []
        self._ids = WireIds(CALL_ID)
        self.call_ids = self._ids.originals
        self.names = WireNames(TOOL_NAME, (tool.name for tool in target.tools))
        self._target = target
        self._turns: list[tuple[str, list[Json]]] = []
        self._last_blocks: deque[Json] = deque(maxlen=2)
        """For each of the last two messages, the last block that can be marked for the cache."""

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._system += system_blocks(message, self._target, losses)

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._add("user", user_blocks(message, self._target, losses))

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """See `Form`."""
        del index
        ids = self._ids.take_all(message)
        blocks, left_out = assistant_blocks(message, ids, self.names, self._target, losses)
        self._add("assistant", blocks)
        return left_out

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._add("user", [result_block(message, self._ids.take_unanswered(), self._target, losses)])

    def body(self) -> Json:
        """See `Form`."""
        target = self._target
        body: Json = {"model": target.model, "max_tokens": target.max_tokens or MAX_TOKENS}
        if self._system:
            body["system"] = [*self._system]
        body["messages"] = self._messages()
        body |= self._offered()
        if target.cache:
            self._mark(body)
        if target.stream:
            body["stream"] = True
        return body

    def _messages(self) -> list[JsonValue]:
        """Return the turns as messages.

        The API requires that the first message is a user message, so a placeholder is added if necessary. The API
        refuses white space at the end of a last assistant message, so this white space is stripped.
        """
        self._strip_end()
        if not self._turns or self._turns[0][0] != "user":
            self._turns.insert(0, ("user", [{"type": "text", "text": PLACEHOLDER}]))
        return [{"role": role, "content": [*blocks]} for role, blocks in self._turns]

    def _mark(self, body: Json) -> None:
        """Add the marks up to which the provider should cache the request."""
        tools = body.get("tools")
        marked = [self._system[-1]] if self._system else []
        if isinstance(tools, list) and tools and isinstance(last := tools[-1], dict):
            marked.append(last)
        if len(self._last_blocks) == 2:  # the second last message
            marked.append(self._last_blocks[0])
        for block in marked:
            block["cache_control"] = {"type": "ephemeral"}

    def _offered(self) -> Json:
        """Return the tools and the tool choice. With choice "none", no tools are offered."""
        target = self._target
        choice = target.tool_choice
        if not target.tools or (choice and choice.mode == "none"):
            return {}
        tools: list[JsonValue] = [
            {"name": self.names.of(tool.name), "description": tool.description, "input_schema": copied(tool.schema)}
            for tool in target.tools
        ]
        if choice is None:
            return {"tools": tools}
        named: Json = {"name": self.names.of(choice.name or "")} if choice.mode == "named" else {}
        return {"tools": tools, "tool_choice": {"type": _CHOICE[choice.mode], **named}}

    def _add(self, role: str, blocks: list[Json]) -> None:
        if not blocks:
            return
        self._last_blocks.extend([block for block in blocks if block["type"] not in _UNMARKED][-1:])
        if self._turns and self._turns[-1][0] == role:
            self._turns[-1][1].extend(blocks)
        else:
            self._turns.append((role, blocks))

    def _strip_end(self) -> None:
        """Strip white space from the end of the request if the last turn is the assistant's.

        The model continues such a turn, and the API refuses white space at its end.
        """
        if self._turns and self._turns[-1][0] == "assistant":
            last = self._turns[-1][1][-1]
            if isinstance(text := last.get("text"), str):
                last["text"] = text.rstrip()
