"""Messages of pydantic-ai in the LLM lane, and messages of the LLM lane for pydantic-ai."""

from decimal import Decimal

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    RetryFeedbackPart,
    RetryInfo,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from lanebus import (
    AssistantMessage,
    ImageBlock,
    MediaRef,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.handlers.integrations.pydantic_ai.messages import assistant_message, llm_messages, model_messages, raw_of
from lanebus.messages import AudioBlock, LlmMessage, ThinkingBlock, TurnId

PNG = b"\x89PNG\r\n\x1a\n" + b"a" * 20
LAST, NEXT = TurnId(loop_id="s.main.1", turn_index=0), TurnId(loop_id="s.main.1", turn_index=1)


def shown(message: ModelMessage, *, before: str | None = None, **bounds: int) -> list[LlmMessage]:
    return [*llm_messages(message, before=before, answered=LAST, asked=NEXT, bounds=BackendBounds(**bounds))]


def test_the_parts_of_a_request_are_messages_of_their_roles_and_turns() -> None:
    request = ModelRequest(
        parts=[
            SystemPromptPart("be kind"),
            ToolReturnPart("find", {"n": 1}, "call-1"),
            ToolReturnPart("find", "no", "call-2", outcome="denied"),
            UserPromptPart("hello"),
            RetryFeedbackPart("shorter", retry=RetryInfo(cause="model_retry")),
            SpeechPart(speaker="user", transcript="spoken"),
        ],
        instructions="be brief",
    )
    found = shown(request)
    assert [(type(each), each.turn_id) for each in found] == [
        *((SystemMessage, None), (SystemMessage, None)),
        *((ToolResultMessage, LAST), (ToolResultMessage, LAST)),
        *((UserMessage, NEXT), (UserMessage, NEXT), (UserMessage, NEXT)),
    ]
    assert [each.text_content() for each in found[:4]] == ["be brief", "be kind", '{"n":1}', "no"]
    assert [each.is_error for each in found if isinstance(each, ToolResultMessage)] == [False, True]
    assert "shorter" in found[5].text_content()
    assert len(shown(request, before="be brief")) == 6


def test_the_contents_of_a_prompt_are_blocks() -> None:
    (found,) = shown(
        ModelRequest(
            parts=[
                UserPromptPart(
                    [
                        "look",
                        TextContent("here"),
                        BinaryContent(PNG, media_type="image/png"),
                        BinaryContent(b"RIFF", media_type="audio/wav"),
                        ImageUrl("https://example.org/a.png"),
                        UploadedFile("file-1", provider_name="openai", media_type="image/png"),
                        CachePoint(),
                        BinaryContent(b"", media_type="image/png"),
                    ]
                )
            ]
        )
    )
    assert [type(block) for block in found.content] == [
        *(TextBlock, TextBlock, ImageBlock, AudioBlock, ImageBlock, ImageBlock, TextBlock)
    ]


def test_the_parts_of_a_response_are_blocks_of_one_message() -> None:
    usage = RequestUsage(
        input_tokens=10, cache_read_tokens=4, cache_write_tokens=1, output_tokens=3, output_reasoning_tokens=2
    )
    usage.cost = Decimal("0.5")
    response = ModelResponse(
        parts=[
            ThinkingPart("hm", signature="s"),
            TextPart("yes"),
            NativeToolCallPart("web_search", {}, "call-0"),
            FilePart(BinaryContent(PNG, media_type="image/png")),
            ToolCallPart("find", '{"n": 1}', "call-1"),
            ToolCallPart("find", "not JSON", "call-2"),
        ],
        usage=usage,
        model_name="m",
        provider_name="p",
        provider_response_id="r",
    )
    found = assistant_message(response, NEXT)
    assert found.content[:2] == (ThinkingBlock(text="hm", signature="s"), TextBlock(text="yes"))
    assert isinstance(found.content[2], ImageBlock)
    assert found.content[3] == ToolCallBlock(id="call-1", name="find", arguments={"n": 1})
    assert found.content[4] == ToolCallBlock(id="call-2", name="find", arguments={}, arguments_raw="not JSON")
    assert (found.stop_reason, found.model, found.provider, found.response_id) == ("toolUse", "m", "p", "r")
    assert found.usage is not None
    assert (found.usage.input, found.usage.cache_read, found.usage.cache_write) == (5, 4, 1)
    assert (found.usage.output, found.usage.reasoning, found.usage.total_tokens) == (3, 2, 13)
    assert found.usage.cost is not None
    assert found.usage.cost.total == Decimal("0.5")


@pytest.mark.parametrize(
    ("response", "stop_reason"),
    [
        (ModelResponse(parts=[TextPart("x")], finish_reason="length"), "length"),
        (ModelResponse(parts=[TextPart("x")], finish_reason="content_filter"), "guardRail"),
        (ModelResponse(parts=[TextPart("x")], state="interrupted"), "aborted"),
        (ModelResponse(parts=[TextPart("x")], finish_reason="stop"), "stop"),
    ],
)
def test_the_stop_reason_of_a_response_is_kept(response: ModelResponse, stop_reason: str) -> None:
    assert assistant_message(response).stop_reason == stop_reason


def test_long_texts_are_cut_in_the_lane_and_what_is_unknown_or_too_large_is_none() -> None:
    assert assistant_message(ModelResponse(parts=[], usage=RequestUsage(unmeasured_requests=1))).usage is None
    (found,) = shown(ModelRequest(parts=[UserPromptPart("x" * 30)]), shown_characters=10)
    assert found.text_content() == f"{'x' * 10}\n[… 20 more characters are stored]"
    assert raw_of(ModelResponse(parts=[TextPart("x" * 100)]), 100) is None


def test_a_context_is_a_history_of_requests_and_responses() -> None:
    picture = MediaRef(kind="sha256", sha256="0" * 64, mime_type="image/png")
    exact = ModelResponse(parts=[TextPart("exactly")], provider_details={"x": 1})
    found = model_messages(
        [
            SystemMessage.text("be kind"),
            UserMessage.of("look", ImageBlock(media=picture)),
            AssistantMessage(content=(ThinkingBlock(text="hm"), ToolCallBlock(id="1", name="t", arguments={"n": 1}))),
            ToolResultMessage(tool_call_id="1", tool_name="t", content=(TextBlock(text="{}"),), structured={"a": 1}),
            UserMessage.text("go on"),
            AssistantMessage(content=(), raw=raw_of(exact, 10_000)),
            UserMessage.text("and"),
        ],
        {"0" * 64: MediaRef.from_bytes(PNG)},
    )
    assert [[type(part) for part in message.parts] for message in found] == [
        [SystemPromptPart, UserPromptPart],
        [ThinkingPart, ToolCallPart],
        [ToolReturnPart, UserPromptPart],
        [TextPart],
        [UserPromptPart],
    ]
    prompt, result = found[0].parts[1], found[2].parts[0]
    assert isinstance(prompt, UserPromptPart)
    assert prompt.content == ["look", BinaryContent(PNG, media_type="image/png")]
    assert isinstance(result, ToolReturnPart)
    assert result.content == {"a": 1}
    assert found[3] == exact


def test_another_provider_s_object_is_no_history() -> None:
    (found,) = model_messages([AssistantMessage(content=(TextBlock(text="x"),), raw={"kind": "chat", "id": 3})], {})
    assert [type(part) for part in found.parts] == [TextPart]
