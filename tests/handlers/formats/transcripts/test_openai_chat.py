"""A conversation of OpenAI's Chat Completions is imported completely: one JSON document, in any layout."""

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from lanebus.bus import Bus
from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError, MessageError
from lanebus.handlers.context import build_context
from lanebus.handlers.formats import UnknownFormat, import_transcript, source
from lanebus.handlers.formats.openai_chat import SeveralConversations, read_openai_message
from lanebus.handlers.formats.source import DocumentTooLarge
from lanebus.handlers.formats.transcript import TranscriptBounds
from tests.support.transcripts.transcript_files import TALK, Object, file_of, imported, messages_of

PNG = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_bare", [True, False])
async def test_a_document_goes_in_however_it_is_laid_out(tmp_path: Path, indent: int | None, is_bare: bool) -> None:
    document: JsonValue = TALK if is_bare else {"messages": TALK}
    async with imported(tmp_path, json.dumps(document, indent=indent).encode()) as made:
        assert (made.report.format, made.report.added, made.report.bad) == ("openai-chat", len(TALK), ())
        context = await build_context(made.session)
    assert [type(message) for message in made.log] == [
        *(our.SystemMessage, our.DeveloperMessage, our.UserMessage, our.AssistantMessage),
        *(our.ToolResultMessage, our.ToolResultMessage, our.ToolResultMessage, our.AssistantMessage),
    ]
    assert [message.text_content() for message in context.messages if isinstance(message, our.ToolResultMessage)] == [
        *("noon", "bad arguments", "noon")
    ]
    answer, last = (message for message in made.log if isinstance(message, our.AssistantMessage))
    assert [(call.arguments, call.arguments_raw) for call in answer.tool_calls()] == [
        ({"zone": "UTC"}, None),
        ({}, '{"zone":'),
        ({"input": "date"}, None),
    ]
    assert (answer.stop_reason, last.stop_reason, last.metadata) == ("toolUse", "stop", {"weight": 1})


async def test_other_fields_of_the_document_come_first(tmp_path: Path) -> None:
    document: Object = {"messages": TALK, "model": "gpt", "tools": []}
    async with imported(tmp_path, document) as made:
        header = made.log[0]
    assert isinstance(header, our.ExtensionMessage)
    assert header.kind == "import.header"
    assert header.data == {"format": "openai-chat", "header": {"model": "gpt", "tools": []}}


async def test_several_conversations_are_refused_whole(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        session = bus.session("s")
        with pytest.raises(SeveralConversations, match="3 conversations, a session takes one"):
            await import_transcript(session, file_of({"messages": TALK}, TALK, {"messages": TALK}))
        assert (await session.head()).position == 0
        # One a line is a file of one conversation, if there is only one line.
        assert (await import_transcript(session, file_of({"messages": TALK}, b"", b"  "))).added == len(TALK)


async def test_a_line_behind_a_document_that_is_no_json_is_named(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        with pytest.raises(DecodeError, match="line 2: not JSON"):
            await import_transcript(bus.session("s"), file_of({"messages": TALK}, b"{"))


async def test_a_document_over_the_limit_is_refused_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "DOCUMENT_LIMIT_BYTES", 500)
    async with Bus.open(data_dir=tmp_path) as bus:
        for indent in (None, 2):
            with pytest.raises(DocumentTooLarge, match="more than 500 bytes"):
                await import_transcript(bus.session("s"), file_of(json.dumps(TALK, indent=indent).encode()))
        assert (await bus.session("s").head()).position == 0


async def test_a_document_of_too_many_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    bounds = TranscriptBounds(json=our.JsonBounds(parsed_bytes=10_000))
    values: list[JsonValue] = [list[JsonValue]() for _ in range(5_000)]
    dense: dict[str, JsonValue] = {"messages": TALK, "x": values}
    async with Bus.open(data_dir=tmp_path) as bus:
        for text, place in (
            (json.dumps(dense, separators=(",", ":")), "line 1: too many values"),
            (json.dumps(dense, separators=(",\n", ":")), "the file: too many values"),
            (
                json.dumps({"messages": TALK}) + "\n" + json.dumps(dense, separators=(",", ":")),
                "line 2: too many values",
            ),
        ):
            with pytest.raises(DecodeError, match=f"{place}: .*[0-9]+ lists.* Split it"):
                await import_transcript(bus.session("s"), file_of(text.encode()), bounds=bounds)
        assert (await bus.session("s").head()).position == 0


async def test_bad_messages_are_named_by_their_number(tmp_path: Path) -> None:
    async with imported(
        tmp_path,
        [
            {"role": "user", "content": "a"},
            {"role": "user", "content": 7},
            {"role": "tool", "content": "x"},
            {"role": "assistant", "tool_calls": [{"id": "x"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]},
            {"role": "user", "content": "b"},
        ],
    ) as made:
        pass
    assert made.report.unit == "message"
    assert [(bad.number, bad.reason.split(":")[0]) for bad in made.report.bad] == [
        (2, "content"),
        (3, "tool_call_id"),
        (4, "tool_calls.0"),
        (5, "content.0.media.url"),
    ]
    assert [message.text_content() for message in made.log if isinstance(message, our.UserMessage)] == ["a", "b"]


@pytest.mark.parametrize(
    "document", [{"messages": []}, [], {"messages": "x"}, [1], [{"role": "narrator"}], {"role": "user", "content": "x"}]
)
async def test_a_document_that_is_no_conversation_is_an_unknown_format(tmp_path: Path, document: JsonValue) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        for indent in (None, 1):
            with pytest.raises(UnknownFormat):
                await import_transcript(bus.session("s"), file_of(json.dumps(document, indent=indent).encode()))


def test_parts_are_our_blocks_and_a_refusal_and_thinking_are_told_apart() -> None:
    message = read_openai_message(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                {"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "b.pdf"}},
                {"type": "hologram", "hologram": 1},
                {"type": "text", "text": "x", "cache": True},
            ],
        }
    )
    kinds = [
        our.TextBlock,
        our.ImageBlock,
        our.ImageBlock,
        our.AudioBlock,
        our.DocumentBlock,
        our.DocumentBlock,
        our.UnknownBlock,
        our.TextBlock,
    ]
    assert [type(block) for block in message.content] == kinds
    media = [
        block.media
        for block in message.content
        if isinstance(block, our.ImageBlock | our.AudioBlock | our.DocumentBlock)
    ]
    assert [(each.kind, each.mime_type, each.filename) for each in media] == [
        ("data", "image/png", None),
        ("url", None, None),
        ("data", "audio/wav", None),
        ("file_id", None, "a.pdf"),
        ("data", "application/pdf", "b.pdf"),
    ]
    assert message.metadata == {"blocks": {"7": {"cache": True}}}
    message = read_openai_message(
        {"role": "assistant", "reasoning_content": "hm", "content": None, "refusal": "I cannot"}
    )
    assert isinstance(message, our.AssistantMessage)
    assert [type(block) for block in message.content] == [our.ThinkingBlock, our.TextBlock]
    assert (message.stop_reason, message.raw_stop_reason, message.text_content()) == (
        "guardRail",
        "refusal",
        "I cannot",
    )


async def test_calls_from_before_there_were_ids_find_their_results(tmp_path: Path) -> None:
    calls: list[JsonValue] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"x":1}'}},
        {"role": "function", "name": "f", "content": "2"},
    ]
    async with Bus.open(data_dir=tmp_path) as bus:
        await import_transcript(bus.session("s"), file_of(calls))
        context = await build_context(bus.session("s"))
        assert len(await messages_of(bus.session("s"))) == 5
    assert [message.text_content() for message in context.messages] == ["a", "", "1", "", "2"]


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"role": 7}, "role"),
        ({"role": "x"}, "unknown role 'x'"),
        ({"role": "user", "content": {}}, "content"),
        ({"role": "user", "content": ["x"]}, "content.0"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [7]}, "tool_calls.0"),
        ({"role": "assistant", "function_call": 7}, "function_call"),
        ({"role": "function", "content": "x"}, "name"),
        ({"role": "user", "content": "x", "name": 7}, "name"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "%"}}]}, "content.0.media.data"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "javascript:x"}}]},
            "content.0.media.url",
        ),
    ],
)
def test_a_fault_is_named_by_its_path(message: Object, path: str) -> None:
    with pytest.raises(MessageError) as caught:
        read_openai_message(message)
    assert str(caught.value).split(":")[0] == path
