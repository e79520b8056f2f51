"""The Anthropic adapter, with the real SDK and a local server of the Messages API."""

import subprocess
import sys
from decimal import Decimal

import anyio
import pytest

from lanebus import ToolCallBlock, Usage, UserMessage
from lanebus.agent import ModelEvent, ModelRequest, Piece, ToolSpec
from lanebus.errors import MissingExtra
from lanebus.handlers.agent.models.anthropic_model import AnthropicModel
from lanebus.handlers.agent.models.model import PartialResponse
from lanebus.messages import AssistantMessage, Rates, RedactedThinkingBlock, TextBlock, ThinkingBlock, UnknownBlock
from tests.support.agent.agents import Pause
from tests.support.log.entries import context_of
from tests.support.models.messages_api import Cut, ModelApi, Status, Step, block, delta, error, finish, serve, start
from tests.support.paths import ROOT

__all__ = ()


TEXT: list[Step] = block(
    0, {"type": "text", "text": ""}, delta(0, "text_delta", text="Hel"), delta(0, "text_delta", text="lo")
)
PING: Step = {"type": "ping"}
TOOL = ToolSpec("add", "Add numbers.", {"type": "object", "properties": {}})


async def run(
    *script: Step, rates: Rates | None = None, asked: ModelRequest | None = None
) -> tuple[AssistantMessage, list[ModelEvent], ModelApi]:
    """Return the answer to a script, all events before it, and the server."""
    async with serve(script) as (api, client):
        model = AnthropicModel("claude-test", client=client, rates=rates)
        request = asked or ModelRequest(context_of(UserMessage.text("hi")), max_tokens=100)
        *told, last = [event async for event in model.stream(request)]
    assert isinstance(last, AssistantMessage)
    return last, told, api


@pytest.mark.full
async def test_text_is_streamed_and_the_whole_message_ends_it() -> None:
    message, told, _ = await run(start(), PING, *TEXT, *finish(output_tokens=15))
    assert message.content == (TextBlock(text="Hello"),)
    assert [event for event in told if isinstance(event, Piece)] == [Piece("text", "Hel"), Piece("text", "lo")]
    assert (message.stop_reason, message.raw_stop_reason, message.response_id) == ("stop", "end_turn", "msg_1")
    assert (message.provider, message.model) == ("anthropic", "claude-test")
    assert message.metadata == {"responseModel": "claude-test-20990101"}


@pytest.mark.full
async def test_the_request_is_the_context_in_the_form_of_the_api() -> None:
    request = ModelRequest(context_of(UserMessage.text("hi")), (TOOL,), max_tokens=77)
    _, _, api = await run(start(), *TEXT, *finish(output_tokens=1), asked=request)
    assert api.requests == [
        {
            "model": "claude-test",
            "max_tokens": 77,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "tools": [{"name": "add", "description": "Add numbers.", "input_schema": TOOL.schema}],
            "stream": True,
        }
    ]


async def test_reported_usage_replaces_earlier_reports() -> None:
    first = start(cache_read_input_tokens=100, cache_creation_input_tokens=20)
    ending = finish(
        output_tokens=40, input_tokens=26, output_tokens_details={"thinking_tokens": 9}, cache_read_input_tokens=None
    )
    message, told, _ = await run(first, *TEXT, *ending, rates=Rates(input=Decimal(1_000_000), output=Decimal(0)))
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


async def test_without_rates_the_cost_is_unknown() -> None:
    message, _, _ = await run(start(), *TEXT, *finish(output_tokens=4))
    assert message.usage is not None
    assert message.usage.cost is None


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
    message, told, _ = await run(start(), *thinking, *redacted, *text, *finish(output_tokens=9))
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


async def test_tool_calls_are_joined_from_their_fragments() -> None:
    script = [*tool_use(0, "tu_1", "", '{"a": 1', ', "b": [2]}'), *tool_use(1, "tu_2")]
    message, told, _ = await run(start(), *script, *finish("tool_use", output_tokens=9))
    assert message.stop_reason == "toolUse"
    assert message.content == (
        ToolCallBlock(id="tu_1", name="add", arguments={"a": 1, "b": [2]}),
        ToolCallBlock(id="tu_2", name="add", arguments={}),
    )
    pieces = [(event.text, event.block, event.tool_name) for event in told if isinstance(event, Piece)]
    assert "".join(text for text, index, _ in pieces if index == 0) == '{"a": 1, "b": [2]}'
    assert [name for _, _, name in pieces if name] == ["add", "add"]


async def test_arguments_that_are_no_json_are_kept_raw() -> None:
    message, _, _ = await run(start(), *tool_use(0, "tu_1", '{"a": '), *finish("max_tokens", output_tokens=9))
    assert message.content == (ToolCallBlock(id="tu_1", name="add", arguments={}, arguments_raw='{"a": '),)
    assert message.stop_reason == "length"


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
    message, _, _ = await run(start(), *TEXT, *finish(raw, output_tokens=3))
    assert (message.stop_reason, message.raw_stop_reason) == (ours, raw)


async def test_blocks_of_other_kinds_are_kept_whole() -> None:
    other = block(0, {"type": "server_tool_use", "id": "st_1", "name": "web_search", "input": {"query": "x"}})
    message, _, _ = await run(start(), *other, *finish(output_tokens=3))
    (kept,) = message.content
    assert isinstance(kept, UnknownBlock)
    assert kept.raw["name"] == "web_search"


async def test_an_error_in_mid_stream_keeps_text_and_usage() -> None:
    message, _, _ = await run(start(), *TEXT, error("overloaded_error", "Overloaded"))
    assert message.stop_reason == "error"
    assert message.content == (TextBlock(text="Hello"),)
    assert "Overloaded" in (message.error_message or "")
    assert message.usage is not None
    assert (message.usage.input, message.usage.output, message.usage.estimated) == (25, 2, True)


async def test_a_broken_stream_keeps_its_text_without_incomplete_calls() -> None:
    half = tool_use(1, "tu_1", '{"a": ')[:-1]
    message, _, _ = await run(start(), *TEXT, *half, Cut())
    assert message.stop_reason == "error"
    assert message.error_message
    assert message.content == (TextBlock(text="Hello"),)


async def test_a_stream_that_ends_too_early_is_an_error() -> None:
    message, _, _ = await run(start(), *TEXT)
    assert (message.stop_reason, message.error_message) == ("error", "the stream ended before the message did")


async def test_a_refused_request_is_a_failed_message() -> None:
    refusal = Status(401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}})
    message, told, _ = await run(refusal)
    assert told == []
    assert message.stop_reason == "error"
    assert (message.error_message or "").startswith("AuthenticationError: ")
    assert message.content == ()
    assert message.usage is None


async def test_a_cancelled_stream_releases_its_connection_and_keeps_the_text_so_far() -> None:
    pause = Pause()
    async with serve([start(), *TEXT, pause]) as (api, client):
        model = AnthropicModel("claude-test", client=client)
        draft = PartialResponse(model)

        async def listen() -> None:
            async for event in model.stream(ModelRequest(context_of(UserMessage.text("hi")))):
                draft.add(event)
                if event == Piece("text", "lo"):
                    heard.set()

        heard = anyio.Event()
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await pause.reached.wait()
                await heard.wait()
                tasks.cancel_scope.cancel()
            await api.gone.wait()
    message = draft.cut("aborted", "stopped")
    assert message.text_content() == "Hello"
    assert message.usage is not None
    assert message.usage.input == 25


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(MissingExtra, match=r"pip install 'lanebus\[anthropic\]'"):
        AnthropicModel("claude-test")


@pytest.mark.full
def test_importing_the_agent_does_not_import_the_sdk() -> None:
    code = "import sys, lanebus.agent, lanebus.handlers.agent.models.anthropic_model; print('anthropic' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "False"
