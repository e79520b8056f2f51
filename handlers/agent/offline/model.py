"""A model that needs no provider. The model calls tools, and gives the same answer to the same conversation."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal
from itertools import count

import anyio
from pydantic import JsonValue

from lanebus.bus.errors import require_seconds, require_text
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.llm import LlmMessage, now_ms
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.usage import Rates, Usage
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.agent.offline.intents import Intent, find_intents, reflection, result_text
from lanebus.handlers.providers.common.answer import ModelEvent, Piece
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("OFFLINE_RATES", "OfflineModel")

OFFLINE_RATES = Rates(input=Decimal(1), output=Decimal(5))
"""fictional prices, so that turns have a cost to show; the cost's source says that it is made up"""

PRICE_SOURCE = "offline (made up)"

_CHARACTERS_PER_TOKEN = 4
_WORD = re.compile(r"\s*\S+|\s+")


class OfflineModel:
    """A deterministic model for demos and tests. It understands arithmetic, and questions about the time and dice."""

    provider = "offline"
    context_window: int | None = None
    """None: the model reads only the last question and the messages after it, so it needs no limit"""

    def __init__(self, *, name: str = "offline-1", delay: float = 0.03) -> None:
        """
        Args:
            name: the model's name.
            delay: seconds before each word. 0 answers without yielding to the event loop.
        """
        require_text("name", name, is_filled=True)
        require_seconds("delay", delay)
        self.name, self._delay = name, delay

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`. It never fails."""
        input_tokens = _tokens(_text_of_request(request))
        yield self._usage(input_tokens, 0, 0)
        blocks = _answer(request)
        for index, block in enumerate(blocks):
            match block:
                case ThinkingBlock(text=text):
                    async for piece in self._words("thinking", text, index):
                        yield piece
                case TextBlock(text=text):
                    async for piece in self._words("text", text, index):
                        yield piece
                case ToolCallBlock(name=name, arguments=arguments):
                    await self._pause()
                    yield Piece("toolCall", json.dumps(arguments, ensure_ascii=False), index, name)
                case _:
                    pass
        output = sum(_tokens(_text_of_block(block)) for block in blocks)
        reasoning = sum(_tokens(block.text) for block in blocks if isinstance(block, ThinkingBlock))
        calls = any(isinstance(block, ToolCallBlock) for block in blocks)
        yield AssistantMessage(
            content=blocks,
            stop_reason="toolUse" if calls else "stop",
            provider=self.provider,
            model=self.name,
            usage=self._usage(input_tokens, output, reasoning),
            timestamp=now_ms(),
        )

    def price(self, usage: Usage) -> Usage:
        """See `Pricing.price`."""
        return usage.model_copy(update={"cost": usage.cost_at(OFFLINE_RATES, source=PRICE_SOURCE)})

    async def _words(self, kind: str, text: str, index: int) -> AsyncGenerator[Piece, None]:
        for word in _WORD.findall(text):
            await self._pause()
            yield Piece("thinking" if kind == "thinking" else "text", word, index)

    def _usage(self, input_tokens: int, output: int, reasoning: int) -> Usage:
        usage = Usage(input=input_tokens, output=output, reasoning=reasoning, total_tokens=input_tokens + output)
        return self.price(usage)

    async def _pause(self) -> None:
        if self._delay > 0:  # a sleep of 0 would still cost one pass of the event loop for each word
            await anyio.sleep(self._delay)


def _answer(request: ModelRequest) -> tuple[Block, ...]:
    messages = request.context.messages
    last = next((at for at in range(len(messages) - 1, -1, -1) if isinstance(messages[at], UserMessage)), None)
    since: Sequence[LlmMessage] = messages[last + 1 :] if last is not None else messages[:]
    results = [message for message in since if isinstance(message, ToolResultMessage)]
    if results:
        calls = {
            call.id: call for message in since if isinstance(message, AssistantMessage) for call in message.tool_calls()
        }
        return (TextBlock(text=_sentence(calls, results)),)
    text = messages[last].text_content() if last is not None else ""
    return _reply(text, request.tools, request.context.position)


def _reply(text: str, tools: Sequence[ToolSpec], position: int) -> tuple[Block, ...]:
    known = {spec.name: spec.description for spec in tools}
    intents = find_intents(text, known)
    if not intents:
        thought = "Nothing here asks for one of my tools, so I say what I can do."
        return (ThinkingBlock(text=thought), TextBlock(text=reflection(text, known)))
    thought = f"This asks for {_listed([intent.subject for intent in intents])}; I call {_listed(_names(intents))}."
    numbers = count(1)
    # With the position, ids are unique in a session, and the same if the model is called again for the same context.
    calls = (
        ToolCallBlock(id=f"call-{position}-{next(numbers)}", name=i.tool, arguments=dict(i.arguments)) for i in intents
    )
    return (ThinkingBlock(text=thought), *calls)


def _sentence(calls: dict[str, ToolCallBlock], results: Sequence[ToolResultMessage]) -> str:
    parts: list[str] = []
    for result in results:
        call = calls.get(result.tool_call_id)
        arguments: JsonValue = call.arguments if call else None
        parts.append(result_text(call.name if call else result.tool_name, arguments, result))
    sentence = _listed(parts, comma=True)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _names(intents: Sequence[Intent]) -> list[str]:
    return list(dict.fromkeys(intent.tool for intent in intents))


def _listed(parts: Sequence[str], *, comma: bool = False) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])}{',' if comma else ''} and {parts[-1]}"


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _text_of_request(request: ModelRequest) -> str:
    context = request.context
    messages = [*context.system, *context.messages]
    tools = "".join(f"{spec.name}{spec.description}{json.dumps(spec.schema)}" for spec in request.tools)
    return "".join(_text_of_block(block) for message in messages for block in message.content) + tools


def _text_of_block(block: Block) -> str:
    match block:
        case TextBlock(text=text) | ThinkingBlock(text=text):
            return text
        case ToolCallBlock(name=name, arguments=arguments):
            return name + json.dumps(arguments, ensure_ascii=False)
        case _:
            return ""
