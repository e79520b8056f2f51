"""Requests to Chat Completions and answers of it, where they are unlike those of other providers."""

import re
from base64 import b64encode
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.agent import Piece, ToolSpec
from lanebus.bus import messages as our
from lanebus.providers import OpenAIChatAnswer, ProviderRequest, from_openai_chat
from tests.support.log.entries import asks, calls, context_of, results, says
from tests.support.providers.forms import FORMS
from tests.support.providers.replay import folded, spoken, through_sdk, untimed
from tests.support.providers.samples import SAMPLES, Chat

Wire = dict[str, JsonValue]
FORM, SAMPLE = FORMS["openai_chat"], SAMPLES["openai_chat"]
PNG = our.MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = our.MediaRef.from_bytes(b"%PDF-1.7 x", filename="a.pdf")
MP3 = our.MediaRef.from_bytes(b"ID3\x03")
STORED = our.MediaRef(kind="sha256", sha256="0" * 64)


def messages_of(request: ProviderRequest) -> list[Wire]:
    return cast("list[Wire]", request.body["messages"])


def wire(*messages: our.Publishable) -> list[Wire]:
    return messages_of(FORM.request(*messages))


def said(content: JsonValue, role: str = "user") -> Wire:
    return {"role": role, "content": content}


def text(words: str) -> Wire:
    return {"type": "text", "text": words}


def image(url: str = f"data:image/png;base64,{PNG.data}", **fields: JsonValue) -> Wire:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def audio(data: str | None, form: str) -> Wire:
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def pdf(filename: str) -> Wire:
    return {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF.data}", "filename": filename}}


def result(call: str, content: JsonValue) -> Wire:
    return {"role": "tool", "tool_call_id": call, "content": content}


def answered(*content: our.Block, **fields: JsonValue) -> JsonValue:
    """The content of the wire result of a call that was answered so."""
    given = our.ToolResultMessage.model_validate({"tool_call_id": "x", "content": content, **fields})
    return wire(asks("a"), calls("x"), given)[2]["content"]


# --- requests -----------------------------------------------------------------------------------------------------


def test_a_body_holds_model_and_messages_and_what_was_asked_for() -> None:
    plain: Wire = {"model": FORM.model, "messages": [said("be kind", "system"), said("hi")]}
    messages = (our.SystemMessage.text("be kind"), asks("hi"))
    assert FORM.request(*messages) == ProviderRequest(plain)
    tool = ToolSpec("fs.read", "Reads.", {"type": "object"})
    request = FORM.request(*messages, max_tokens=7, tools=[tool], stream=True, store=False)
    function: Wire = {"name": "fs_read", "description": "Reads.", "parameters": {"type": "object"}}
    body: Wire = {
        **plain,
        "max_completion_tokens": 7,
        "tools": [{"type": "function", "function": function}],
        "store": False,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert request.body == body
    assert request.tool_names == {"fs_read": "fs.read"}


def test_instructions_stand_first_in_order_and_in_their_roles_or_all_as_the_systems_on_demand() -> None:
    instructions = (our.DeveloperMessage.text("1"), asks("b"), our.SystemMessage.of("2", "3"), our.SystemMessage.of(""))
    system = said([text("2"), text("3")], "system")
    assert wire(asks("a"), *instructions) == [said("1", "developer"), system, said("a"), said("b")]
    request = FORM.request(asks("a"), *instructions, merge_developer=True)
    assert [message["role"] for message in messages_of(request)] == ["system", "system", "user", "user"]


_CALL = our.ToolCallBlock(id="x", name="read", arguments={"ü": 1})
_MESSAGES: dict[str, tuple[list[our.Publishable], list[Wire]]] = {
    "one text is a string and several are parts": (
        [asks("a"), our.UserMessage.of("b", "", "c")],
        [said("a"), said([text("b"), text("c")])],
    ),
    "an empty user message is empty text": ([our.UserMessage.of(), our.UserMessage.of("")], [said(""), said("")]),
    "one that lost everything is left out": (
        [asks("a"), our.UserMessage.of(our.DataBlock(mime_type="x/y"))],
        [said("a")],
    ),
    "white space is kept": ([asks(" "), says("b \n")], [said(" "), said("b \n", "assistant")]),
    "an answer of calls alone has no content": (
        [asks("a"), calls("x"), results("x", "1")],
        [said("a"), {"role": "assistant", "tool_calls": [Chat.call("x", "tool", "{}")]}, result("x", "1")],
    ),
    "an answer holds its texts and its calls": (
        [asks("a"), says("b", _CALL, "c"), results("x", "1")],
        [
            said("a"),
            {
                **said([text("b"), text("c")], "assistant"),
                "tool_calls": [{"id": "x", "type": "function", "function": {"name": "read", "arguments": '{"ü": 1}'}}],
            },
            result("x", "1"),
        ],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), _MESSAGES.values(), ids=_MESSAGES)
def test_messages_are_sent_as_messages(messages: list[our.Publishable], expected: list[Wire]) -> None:
    assert wire(*messages) == expected


def test_a_result_holds_its_texts_or_else_its_json_and_a_failed_one_starts_with_a_prefix() -> None:
    one, two = our.TextBlock(text="1"), our.TextBlock(text="2")
    assert answered(one) == "1"
    assert answered(one, two) == [text("1"), text("2")]
    assert answered(our.ToolResultBlock(tool_call_id="x", content=(one,))) == "1"
    assert answered(structured={"ü": [1]}) == '{"ü": [1]}'
    assert answered(one, structured={"a": 1}) == "1"
    assert answered() == ""
    assert answered(one, is_error=True) == "[TOOL ERROR] 1"
    assert answered(one, one, status="failed") == [text("[TOOL ERROR] 1"), text("1")]
    assert answered(is_error=True) == "[TOOL ERROR] (no output)"
    assert answered(our.ImageBlock(media=PNG), is_error=True) == "[TOOL ERROR] (see the next message)"
    failed = our.ToolResultMessage(tool_call_id="x", content=(one,), is_error=True)
    for prefix, sent in (("Failed: ", "Failed: 1"), ("", "1")):
        request = FORM.request(asks("a"), calls("x"), failed, error_prefix=prefix)
        assert messages_of(request)[2]["content"] == sent
    assert failed.content == (one,)


def test_media_of_results_follow_all_results_in_a_users_message_also_at_the_end() -> None:
    first = our.ToolResultMessage(tool_call_id="x", content=(our.ImageBlock(media=PNG), our.AudioBlock(media=MP3)))
    second = our.ToolResultMessage(tool_call_id="y", content=(our.TextBlock(text="2"), our.DocumentBlock(media=PDF)))
    shown = [
        *(text("Media in the result of call x:"), image(), audio(MP3.data, "mp3")),
        *(text("Media in the result of call y:"), pdf("a.pdf")),
    ]
    sent = [result("x", "(see the next message)"), result("y", "2"), said(cast("JsonValue", shown))]
    request = FORM.request(asks("a"), calls("x", "y"), first, second, asks("b"))
    assert messages_of(request)[2:] == [*sent, said("b")]
    assert not request.warnings
    assert wire(asks("a"), calls("x", "y"), first, second)[2:] == sent


def test_audio_is_sent_as_its_transcript_with_a_warning_where_it_cannot_be_sent() -> None:
    request = FORM.request(asks("a"), says(our.AudioBlock(media=MP3, transcript="hello")))
    assert messages_of(request)[1] == said("hello", "assistant")
    assert request.warnings == ("messages.1: audio sent as its transcript: assistants cannot send it",)
    stored = FORM.request(our.UserMessage.of(our.AudioBlock(media=STORED, transcript="hello")))
    assert messages_of(stored) == [said([text("hello")])]
    assert stored.warnings == ("messages.0: audio sent as its transcript: audio is taken inline alone",)


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (our.ImageBlock(media=PNG), image()),
        (our.ImageBlock(media=our.MediaRef(kind="data", data=PNG.data, mime_type="image/jpeg")), image()),
        (our.ImageBlock(media=our.MediaRef(kind="data", data="Pz8/")), image("data:image/png;base64,Pz8/")),
        (
            our.ImageBlock(media=our.MediaRef.from_url("https://example.com/a.png"), detail="high"),
            image("https://example.com/a.png", detail="high"),
        ),
        (our.AudioBlock(media=MP3), audio(MP3.data, "mp3")),
        (our.AudioBlock(media=our.MediaRef(kind="data", data="Pz8/")), audio("Pz8/", "wav")),
        (our.DocumentBlock(media=our.MediaRef.from_bytes(b"%PDF-1.7 x")), pdf("document.pdf")),
        (
            our.DocumentBlock(media=our.MediaRef(kind="file_id", file_id="file-1")),
            {"type": "file", "file": {"file_id": "file-1"}},
        ),
        (our.DocumentBlock(media=our.MediaRef.from_bytes(b"whole", mime_type="text/markdown")), text("whole")),
        (our.DocumentBlock(media=our.MediaRef.from_url("https://example.com/a.pdf"), excerpt="whole"), text("whole")),
        (our.DocumentBlock(media=STORED, text="whole", excerpt="part"), text("whole")),
    ],
)
def test_media_have_the_part_that_fits(block: our.Block, part: Wire) -> None:
    request = FORM.request(our.UserMessage.of(block))
    assert messages_of(request) == [said([part])]
    assert not request.warnings


# --- answers ------------------------------------------------------------------------------------------------------


async def streamed(*chunks: Wire, names: dict[str, str] | None = None) -> tuple[OpenAIChatAnswer, dict[int, str]]:
    """An answer of these chunks, as the SDK yields them, and the text of its pieces by block."""
    answer = OpenAIChatAnswer(None, None, names or {})
    return answer, spoken(folded(answer, await through_sdk("openai_chat", chunks)))


async def test_the_pieces_of_a_stream_name_their_blocks_and_it_is_complete_once_it_has_a_stop_reason() -> None:
    from openai.types.chat import ChatCompletion

    ChatCompletion.model_validate(SAMPLE.whole)
    answer = OpenAIChatAnswer(None, None, SAMPLE.names)
    told = folded(answer, SAMPLE.stream[:8])
    assert not answer.is_complete
    told += folded(answer, SAMPLE.stream[8:9])
    assert (answer.is_complete, answer.message().usage) == (True, None)
    told += folded(answer, SAMPLE.stream[9:])
    assert spoken(told) == {0: "Let me see.", 1: '{"path": "a"}', 2: '{"a": 1'}
    assert [piece.tool_name for piece in told if isinstance(piece, Piece) and piece.tool_name] == ["fs.read", "add"]
    assert isinstance(told[-1], our.Usage)


async def test_a_refusal_is_text() -> None:
    message = from_openai_chat(Chat.response({"content": None, "refusal": "I will not."}))
    pieces = [Chat.chunk({"refusal": "I will "}), Chat.chunk({"refusal": "not."}), Chat.chunk({}, "stop")]
    answer, _ = await streamed(*pieces)
    assert untimed(answer.message()) == untimed(message)


@pytest.mark.parametrize("names", [("reasoning_content",), ("reasoning",), ("reasoning_content", "reasoning")])
async def test_thinking_of_other_servers_is_thinking_once(names: tuple[str, ...]) -> None:
    message = from_openai_chat(Chat.response({**dict.fromkeys(names, "hm"), "content": "a"}))
    assert message.content == (our.ThinkingBlock(text="hm"), our.TextBlock(text="a"))
    parts = [Chat.chunk(dict.fromkeys(names, part)) for part in ("h", "m")]
    answer, _ = await streamed(*parts, Chat.chunk({"content": "a"}), Chat.chunk(finish="stop"))
    assert untimed(answer.message()) == untimed(message)


def test_sources_of_a_text_are_annotations_and_a_call_of_a_tool_that_is_no_function_is_kept_whole() -> None:
    citation: Wire = {"url": "https://example.com", "title": "E", "start_index": 0, "end_index": 1}
    cited: JsonValue = [{"type": "url_citation", "url_citation": citation}]
    (block,) = from_openai_chat(Chat.response({"content": "a", "annotations": cited})).content
    assert block == our.TextBlock(text="a", annotations=(our.AnnotationRef(url="https://example.com", title="E"),))
    custom: Wire = {"id": "c", "type": "custom", "custom": {"name": "grep", "input": "x"}}
    message = from_openai_chat(Chat.response({"content": None, "tool_calls": [custom]}))
    assert (message.content, message.stop_reason) == ((our.UnknownBlock(raw=custom),), "stop")


async def test_calls_of_one_index_and_different_ids_are_kept_apart() -> None:
    whole = [Chat.chunk({"tool_calls": [{"index": 0, **Chat.call(name, name, '{"x": 1}')}]}) for name in "ab"]
    end = Chat.chunk(finish="tool_calls")
    answer, told = await streamed(*whole, Chat.begins(0, "c", "c"), Chat.grows(0, "{}"), end)
    assert answer.message().content == (
        our.ToolCallBlock(id="a", name="a", arguments={"x": 1}),
        our.ToolCallBlock(id="b", name="b", arguments={"x": 1}),
        our.ToolCallBlock(id="c", name="c", arguments={}),
    )
    assert told == {0: '{"x": 1}', 1: '{"x": 1}', 2: "{}"}


def test_pieces_of_a_call_that_name_its_id_again_or_one_of_their_own_are_one_call() -> None:
    for piece_id in ("a", "made-up"):
        answer = OpenAIChatAnswer()
        piece = Chat.chunk({"tool_calls": [{"index": 0, "id": piece_id, "function": {"arguments": "{}"}}]})
        folded(answer, [Chat.begins(0, "a", "f"), piece, Chat.chunk(finish="tool_calls")])
        assert answer.message().content == (our.ToolCallBlock(id="a", name="f"),)


SOUND = b"RIFF\x24\x00\x00\x00WAVEfmt "


async def test_audio_of_a_model_is_an_audio_block_with_its_transcript_or_text_without_its_sound() -> None:
    heard: Wire = {"id": "audio_1", "expires_at": 1, "data": b64encode(SOUND).decode(), "transcript": "hello"}
    message = from_openai_chat(Chat.response({"content": None, "audio": heard}))
    assert message.content == (our.AudioBlock(media=our.MediaRef.from_bytes(SOUND), transcript="hello"),)
    # Of a stream each piece is base64 by itself.
    pieces: list[Wire] = [
        {"id": "audio_1", "transcript": "hel"},
        {"data": b64encode(SOUND[:5]).decode()},
        {"data": b64encode(SOUND[5:]).decode()},
        {"transcript": "lo"},
        {"expires_at": 1},
    ]
    answer, told = await streamed(*(Chat.chunk({"audio": piece}) for piece in pieces), Chat.chunk({}, "stop"))
    assert untimed(answer.message()) == untimed(message)
    assert told == {0: "hello"}
    cut = OpenAIChatAnswer()
    folded(cut, [Chat.chunk({"audio": pieces[0]})])
    assert cut.message("cut").content == (our.TextBlock(text="hel"),)


async def test_a_call_in_the_old_form_is_a_call_with_an_id_of_ours_and_one_in_both_forms_is_one_call() -> None:
    old: Wire = {"content": None, "function_call": {"name": "fs_read", "arguments": '{"a": 1}'}}
    message = from_openai_chat(Chat.response(old, "function_call"), names=SAMPLE.names)
    pieces: list[Wire] = [{"name": "fs_read", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ": 1}"}]
    chunks = [*(Chat.chunk({"function_call": piece}) for piece in pieces), Chat.chunk(finish="function_call")]
    answer, told = await streamed(*chunks, names=SAMPLE.names)
    for found in (message, answer.message()):
        (called,) = found.tool_calls()
        assert (called.name, called.arguments, found.stop_reason) == ("fs.read", {"a": 1}, "toolUse")
        assert re.fullmatch("call_[0-9a-f]{32}", called.id)
    assert told == {0: '{"a": 1}'}
    both: Wire = {"tool_calls": [Chat.call("c", "f", "{}")], "function_call": {"name": "f", "arguments": "{}"}}
    assert from_openai_chat(Chat.response(both)).content == (our.ToolCallBlock(id="c", name="f"),)


def test_an_error_in_the_stream_makes_a_failed_message() -> None:
    answer = OpenAIChatAnswer()
    folded(answer, [*SAMPLE.stream[:5], {"error": {"message": "overloaded"}}])
    found = answer.message()
    assert (found.stop_reason, found.error_message) == ("error", "overloaded")
    assert (answer.is_complete, found.text_content(), [*found.tool_calls()]) == (True, "Let me see.", [])


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}])
def test_inconsistent_usage_is_never_negative(usage: Wire) -> None:
    found = from_openai_chat(Chat.response({"content": "a"}, usage=usage)).usage
    assert found is not None
    assert (found.input, found.output) == (0, 0)


def test_what_was_read_can_be_sent_again() -> None:
    read = from_openai_chat(SAMPLE.whole, model="gpt-5.2", names=SAMPLE.names)
    assert read.usage is not None
    assert read.usage.cache_hit_rate() == 0.6
    request = FORM.to(context_of(asks("a"), read))
    sent = cast("list[Wire]", messages_of(request)[1]["tool_calls"])
    assert sent == cast("list[dict[str, Wire]]", SAMPLE.whole["choices"])[0]["message"]["tool_calls"]
    assert request.tool_names == SAMPLE.names
