"""The Anthropic adapter, with the real SDK and a local server of the Messages API."""

from decimal import Decimal

import pytest

from lanebus.agent import ModelEvent, ModelRequest, Piece
from lanebus.bus.messages import ToolCallBlock, Usage, UserMessage
from lanebus.handlers.agent.models.provider_model import AnthropicModel
from lanebus.messages import AssistantMessage, Rates, RedactedThinkingBlock, TextBlock, ThinkingBlock, UnknownBlock
from tests.support.log.entries import context_of
from tests.support.models.messages_api import Cut, Step, block, delta, finish, serve, start

TEXT: list[Step] = block(
    0, {"type": "text", "text": ""}, delta(0, "text_delta", text="Hel"), delta(0, "text_delta", text="lo")
)
PING: Step = {"type": "ping"}


async def run(*script: Step, rates: Rates | None = None) -> tuple[AssistantMessage, list[ModelEvent]]:
    """Return the answer to a script, and all events before it."""
    async with serve(script) as (_, client):
        model = AnthropicModel("claude-test", client=client, rates=rates)
        request = ModelRequest(context_of(UserMessage.text("hi")), max_tokens=100)
        *told, last = [event async for event in model.stream(request)]
    assert isinstance(last, AssistantMessage)
    return last, told


async def test_reported_usage_replaces_earlier_reports() -> None:
    first = start(cache_read_input_tokens=100, cache_creation_input_tokens=20)
    ending = finish(
        output_tokens=40, input_tokens=26, output_tokens_details={"thinking_tokens": 9}, cache_read_input_tokens=None
    )
    message, told = await run(first, PING, *TEXT, *ending, rates=Rates(input=Decimal(1_000_000), output=Decimal(0)))
    assert message.metadata == {"responseModel": "claude-test-20990101"}
    usage = message.usage
    assert usage is not None
    assert (usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write) == (26, 40, 9, 100, 20)
    assert usage.total_tokens == 26 + 40 + 100 + 20
    assert usage.raw == {
        "input_tokens": 26,
        "output_tokens": 40,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 9},
    }
    assert usage.cost is not None
    assert (usage.cost.total, usage.cost.source) == (Decimal(26), "caller")
    assert [event.output for event in told if isinstance(event, Usage)] == [1, 40]


async def test_thinking_keeps_its_signature_and_redacted_thinking_its_data() -> None:
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        delta(0, "thinking_delta", thinking="Let me "),
        delta(0, "thinking_delta", thinking="see."),
        delta(0, "signature_delta", signature="c2ln"),
    )
    redacted = block(1, {"type": "redacted_thinking", "data": "secret"})
    text = block(2, {"type": "text", "text": ""}, delta(2, "text_delta", text="Yes."))
    message, told = await run(start(), *thinking, *redacted, *text, *finish(output_tokens=9))
    assert message.content == (
        ThinkingBlock(text="Let me see.", signature="c2ln"),
        RedactedThinkingBlock(data="secret"),
        TextBlock(text="Yes."),
    )
    pieces = [(event.kind, event.block) for event in told if isinstance(event, Piece)]
    assert pieces == [("thinking", 0), ("thinking", 0), ("text", 2)]


def tool_use(index: int, call: str, *fragments: str) -> list[Step]:
    content: dict[str, object] = {"type": "tool_use", "id": call, "name": "add", "input": {}}
    pieces = [delta(index, "input_json_delta", partial_json=fragment) for fragment in fragments]
    return block(index, content, *pieces)  # type: ignore[arg-type]  # of strings and an empty dict


async def test_arguments_that_are_no_json_and_blocks_of_other_kinds_are_kept() -> None:
    message, _ = await run(start(), *tool_use(0, "tu_1", '{"a": '), *finish("max_tokens", output_tokens=9))
    assert message.content == (ToolCallBlock(id="tu_1", name="add", arguments={}, arguments_raw='{"a": '),)
    assert message.stop_reason == "length"
    other = block(0, {"type": "server_tool_use", "id": "st_1", "name": "web_search", "input": {"query": "x"}})
    message, _ = await run(start(), *other, *finish(output_tokens=3))
    (kept,) = message.content
    assert isinstance(kept, UnknownBlock)
    assert kept.raw["name"] == "web_search"


@pytest.mark.parametrize(
    ("raw", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "paused"),
        ("refusal", "guardRail"),
        ("something_new", "stop"),
    ],
)
async def test_stop_reasons_are_mapped_and_keep_the_providers_value(raw: str, ours: str) -> None:
    message, _ = await run(start(), *TEXT, *finish(raw, output_tokens=3))
    assert (message.stop_reason, message.raw_stop_reason) == (ours, raw)


async def test_a_broken_stream_keeps_its_text_without_incomplete_calls() -> None:
    message, _ = await run(start(), *TEXT, *tool_use(1, "tu_1", '{"a": ')[:-1], Cut())
    assert (message.stop_reason, message.content) == ("error", (TextBlock(text="Hello"),))
    assert message.error_message
    message, _ = await run(start(), *TEXT)
    assert (message.stop_reason, message.error_message) == ("error", "the stream ended before the message did")
