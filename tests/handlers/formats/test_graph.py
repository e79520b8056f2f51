"""The codecs of the graph framework, where they are unlike others: two spellings, batches, moments, what is sent."""

import json
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.bus.messages import AssistantMessage, Block, LlmMessage, Publishable, TextBlock, ToolResultMessage
from lanebus.codecs import GRAPH_V1, GRAPH_V2, ORIGIN
from lanebus.handlers.formats import Codec, Unsayable
from lanebus.providers import ProviderRequest, to_anthropic, to_gemini, to_openai_chat, to_openai_responses
from tests.support.formats.graph import MEDIA, block
from tests.support.formats.kit import Object, lists_in
from tests.support.log.entries import context_of

both = pytest.mark.parametrize("codec", [GRAPH_V1, GRAPH_V2], ids=["002", "003"])


def write(codec: Codec, *messages: Publishable) -> list[Object]:
    """What a codec writes without a loss."""
    values = codec.write(messages, False).values
    return [value for value in values if isinstance(value, dict)]


def written(codec: Codec, block: Block) -> Object:
    """The block as the codec writes it; without the keys that say nothing."""
    reason: our.StopReason = "toolUse" if isinstance(block, our.ToolCallBlock) else "stop"
    (value,) = write(codec, AssistantMessage(content=(block,), stop_reason=reason))
    (found,) = _content(value)
    assert isinstance(found, dict)
    return {key: item for key, item in found.items() if item is not None}


def _content(value: Object) -> list[JsonValue]:
    content = value["content"]
    assert isinstance(content, list)
    return content


def lost(codec: Codec, *messages: Publishable) -> tuple[str, ...]:
    """What a codec refuses to leave out."""
    with pytest.raises(Unsayable) as caught:
        codec.write(messages, False)
    return caught.value.losses


CANARY = "canary-19be"
BESIDE: Object = {
    **dict.fromkeys(("message_id", "reasoning", CANARY), CANARY),
    **{"metadata": {"secret": CANARY, "origin": CANARY}, "raw": {"secret": CANARY}, "parsed_content": {"x": CANARY}},
    "timestamp": 1234567890.125,
}
HISTORY: list[Object] = [
    {"role": "system", "content": "Be brief.", **BESIDE},
    {"role": "user", "content": [block("text", text="hello", note=CANARY)], **BESIDE},
    {
        "role": "assistant",
        "content": [
            block("text", text="hi", annotations=[{"title": CANARY}]),
            block("tool_call", id="c", name="read", args={}, note=CANARY),
        ],
        "usages": dict.fromkeys(("completion_tokens", "prompt_tokens", "total_tokens"), 424242),
        **BESIDE,
    },
    {"role": "tool", "content": [block("tool_result", call_id="c", output="ok", note=CANARY)], **BESIDE},
]


@both
@pytest.mark.parametrize("form", [to_anthropic, to_gemini, to_openai_chat, to_openai_responses])
def test_fields_beside_the_content_are_never_sent(codec: Codec, form: Callable[..., ProviderRequest]) -> None:
    messages = codec.read_all(HISTORY)
    assert sum(CANARY in message.to_json() for message in messages) == len(HISTORY)
    body = json.dumps(form(context_of(*messages), model="m").body)
    assert "hello" in body
    assert '"ok"' in body
    for private in (CANARY, "424242", "1234567890", "origin"):
        assert private not in body


_OK = our.ToolResultBlock(tool_call_id="c", content=(TextBlock(text="ok"),))
_FAILED = our.ToolResultBlock(tool_call_id="c", structured=[1], status="failed", is_error=True)
_THEIR_FAILED = block("tool_result", call_id="c", output=[1], is_error=True, status="failed")
_NOTE = block("annotation", refs=[], spans=[[0, 1]])
_DATA = our.DataBlock(mime_type="x/y", media=our.MediaRef(kind="data", data="AAAA", mime_type="x/y"))
_THEIR_DATA = block("data", mime_type="x/y", data_base64="AAAA")
_ERROR = block("error", message="no", data={"a": 1})


@pytest.mark.parametrize(
    ("one", "first", "second"),
    [
        (our.ThinkingBlock(text="hm"), block("reasoning", summary="hm"), block("reasoning", thinking="hm")),
        (
            _OK,
            block("tool_result", call_id="c", output="ok", is_error=False),
            block("tool_result", tool_call_id="c", content="ok", is_error=False),
        ),
        (_FAILED, _THEIR_FAILED, _THEIR_FAILED),
        (
            our.ErrorBlock(message="no", code="E"),
            block("error", message="no", code="E"),
            block("error", error="no", code="E"),
        ),
        (our.ErrorBlock(message="no", data={"a": 1}), _ERROR, _ERROR),
        (our.AnnotationBlock(kind="note", spans=((0, 1),)), {**_NOTE, "kind": "note"}, {**_NOTE, "kind": "note"}),
        (_DATA, _THEIR_DATA, _THEIR_DATA),
        (our.DataBlock(mime_type="x/y"), block("data", mime_type="x/y"), block("data", mime_type="x/y")),
    ],
)
def test_a_block_is_spelled_as_documented_unless_only_the_other_spelling_can_represent_it(
    one: Block, first: Object, second: Object
) -> None:
    assert (written(GRAPH_V1, one), written(GRAPH_V2, one)) == (first, second)


def test_the_years_differ_in_remote_calls_texts_of_documents_single_citations_and_moments() -> None:
    citation = our.AnnotationBlock(refs=(our.AnnotationRef(url="https://example.com"),))
    assert written(GRAPH_V2, citation).keys() == {"type", "annotation"}
    assert written(GRAPH_V1, citation).keys() == {"type", "kind", "refs"}
    call = our.ToolCallBlock(id="c", name="n", remote=True)
    assert written(GRAPH_V2, call) == block("remote_tool_call", id="c", name="n", args={}, tool_type="remote")
    calling = AssistantMessage(content=(call,), stop_reason="toolUse")
    assert lost(GRAPH_V1, calling) == ("0.content.0.remote",)
    # No provider made it, so it is not among the provider's calls.
    assert write(GRAPH_V2, calling)[0]["tools_calls"] is None
    document = our.DocumentBlock(media=MEDIA, text="all of it")
    assert written(GRAPH_V2, document)["text"] == "all of it"
    assert lost(GRAPH_V1, our.UserMessage(content=(document,))) == ("0.content.0.text",)
    stamped = our.UserMessage(timestamp=1_735_787_045_123)
    assert write(GRAPH_V1, stamped)[0]["timestamp"] == "2025-01-02T03:04:05.123000Z"
    assert write(GRAPH_V2, stamped)[0]["timestamp"] == 1_735_787_045.123
    assert lost(GRAPH_V1, our.UserMessage(timestamp=10**15)) == ("0.timestamp",)


@both
def test_calls_are_repeated_in_the_providers_form_and_read_from_it_alone(codec: Codec) -> None:
    call = our.ToolCallBlock(id="c", name="n", arguments={"ä": 1})
    (said,) = write(codec, AssistantMessage(content=(call,), stop_reason="toolUse"))
    assert said["tools_calls"] == [{"id": "c", "type": "function", "function": {"name": "n", "arguments": '{"ä": 1}'}}]
    calls: JsonValue = [
        {"id": "c", "function": {"name": "read", "arguments": '{"path": "a"}'}},
        {"id": "d", "name": "list", "args": {}},
        {"id": "e", "function": {"name": "read", "arguments": "{broken"}},
        {"neither": "shape"},
    ]
    value: Object = {"role": "assistant", "content": [], "tools_calls": calls}
    (message,) = codec.read(value)
    assert isinstance(message, AssistantMessage)
    assert [*message.tool_calls()] == [
        our.ToolCallBlock(id="c", name="read", arguments={"path": "a"}),
        our.ToolCallBlock(id="d", name="list"),
        our.ToolCallBlock(id="e", name="read", arguments_raw="{broken"),
    ]
    assert message.stop_reason == "toolUse"
    assert write(codec, message) == [value]


@both
def test_results_of_one_batch_are_one_message_again_and_those_of_another_another(codec: Codec) -> None:
    first_result = block("tool_result", call_id="a", output={"n": 1}, is_error=False, status="completed")
    second_result = block("tool_result", tool_call_id="b", content="two", is_error=True)
    content: JsonValue = [block("text", text="before"), first_result, block("text", text="between"), second_result]
    value: Object = {"message_id": "t", "role": "tool", "timestamp": 1.5, "content": content}
    messages = codec.read(value)
    first, second = (message for message in messages if isinstance(message, ToolResultMessage))
    assert (first.id, second.id, first.batch_id, second.batch_id) == ("t", "t#2", "t", "t")
    assert (first.tool_call_id, first.structured, first.status) == ("a", {"n": 1}, "completed")
    # A model that reads content would not see JSON beside it.
    assert first.text_content() == 'before{"n": 1}between'
    assert (second.tool_call_id, second.is_error, second.text_content()) == ("b", True, "two")
    assert (first.timestamp, second.timestamp) == (1500, 1500)
    assert write(codec, *messages, *messages) == [value, value]
    results = [ToolResultMessage(tool_call_id=call, batch_id=batch) for call, batch in zip("abcd", "1122", strict=True)]
    assert [len(_content(value)) for value in write(codec, *results)] == [2, 2]
    alone = [ToolResultMessage(tool_call_id=call) for call in "ab"]
    assert [len(_content(value)) for value in write(codec, *alone)] == [1, 1]
    lossy = [ToolResultMessage(tool_call_id=call, batch_id="b", structured=lists_in(70)) for call in "ac"]
    assert {loss[0] for loss in codec.write(lossy, True).losses} == {"0", "1"}


@both
@pytest.mark.parametrize("more", [{}, {"message_id": ""}, {"message_id": "t"}, {"message_id": "batch:2:a"}])
def test_two_messages_of_the_same_results_stay_two(codec: Codec, more: Object) -> None:
    results: JsonValue = [block("tool_result", call_id=call, output="x") for call in "aba"]
    value: Object = {"role": "tool", "content": results, **more}
    messages = [message for _ in range(3) for message in codec.read(value)]
    assert len(messages) == 9
    assert write(codec, *messages) == [value] * 3


@both
@pytest.mark.parametrize(
    ("moment", "milliseconds"),
    [
        (1_700_000_000, 1_700_000_000_000),
        (1_700_000_000.1234567, 1_700_000_000_123),
        (1_700_000_000_123, 1_700_000_000_123),
        (99_999_999_999, 99_999_999_999_000),
        (100_000_000_001, 100_000_000_001),
        (-1.5, -1500),
        ("2025-01-02T03:04:05Z", 1_735_787_045_000),
        ("2025-01-02T03:04:05.123456", 1_735_787_045_123),
        ("2025-01-02T05:04:05+02:00", 1_735_787_045_000),
        (None, None),
    ],
)
def test_a_moment_in_any_form_of_either_year_is_read_and_written_back(
    codec: Codec, moment: JsonValue, milliseconds: int | None
) -> None:
    value: Object = {"role": "user", "content": [], "timestamp": moment}
    (message,) = codec.read(value)
    assert isinstance(message, LlmMessage)
    assert message.timestamp == milliseconds
    (back,) = write(codec, message)
    assert back == value
    assert type(back["timestamp"]) is type(moment)


@both
def test_a_number_as_an_id_and_a_tool_message_without_a_result_come_back(codec: Codec) -> None:
    value: Object = {"message_id": 2**63, "role": "user", "content": []}
    (message,) = codec.read(value)
    assert isinstance(message, LlmMessage)
    assert message.id == str(2**63)
    assert write(codec, message) == [value]
    (renamed,) = write(codec, message.model_copy(update={"id": "mine"}))
    assert renamed["message_id"] == "mine"
    value = {"role": "tool", "content": [block("text", text="?")]}
    (message,) = codec.read(value)
    assert isinstance(message, ToolResultMessage)
    assert (message.tool_call_id, message.text_content()) == ("", "?")
    assert write(codec, message) == [value]


@both
def test_cached_tokens_are_taken_out_of_the_prompt_and_put_back_also_where_they_exceed_it(codec: Codec) -> None:
    usages: Object = {"completion_tokens": 5, "prompt_tokens": 100, "total_tokens": 105, "reasoning_tokens": 2}
    usages |= {"cache_read_input_tokens": 70, "cache_creation_input_tokens": 10}
    counts = {"input": 20, "output": 5, "reasoning": 2, "cache_read": 70, "cache_write": 10, "total_tokens": 105}
    counts |= {"image_tokens": 0, "audio_tokens": 0}
    for prompt, fresh in ((100, 20), (3, 3)):
        value: Object = {"role": "assistant", "content": [], "usages": {**usages, "prompt_tokens": prompt}}
        (message,) = codec.read(value)
        assert isinstance(message, AssistantMessage)
        assert message.usage == our.Usage.model_validate({**counts, "input": fresh})
        assert write(codec, message) == [value]


@both
def test_the_origin_of_the_other_codec_is_not_written_but_its_spelling_is_no_loss(codec: Codec) -> None:
    other = GRAPH_V2 if codec is GRAPH_V1 else GRAPH_V1
    (message,) = other.read({"message_id": 7, "role": "user", "content": [], "reasoning": "x", "metadata": {"a": 1}})
    assert lost(codec, message) == ("0.metadata.origin",)
    (back,) = codec.write([message], True).values
    assert isinstance(back, dict)
    assert (back["message_id"], back["reasoning"], back["metadata"]) == ("7", None, {"a": 1})
    (message,) = other.read(
        {"role": "assistant", "content": [block("tool_call", id="c", name="n", arguments={"a": 1})]}
    )
    assert isinstance(message, LlmMessage)
    assert ORIGIN in (message.metadata or {})
    assert write(codec, message)


@both
@pytest.mark.parametrize("memory", [{"beside": [[1, 0]]}, {"beside": [[0, 2]]}, {"bare": True}])
def test_a_forged_origin_does_not_turn_content_into_a_result(codec: Codec, memory: Object) -> None:
    inner = (our.ToolResultBlock(tool_call_id="a"), our.ToolResultBlock(tool_call_id="b"))
    plain = ToolResultMessage(tool_call_id="" if "bare" in memory else "c", content=inner)
    forged = plain.model_copy(update={"metadata": {ORIGIN: {"codec": codec.name, **memory}}})
    assert codec.write([forged], True) == codec.write([plain], True)


MARK = "mark-5d1e"
_STORED: JsonValue = {"kind": "file_id", "file_id": MARK, "mime_type": "image/png"}
_JSON = block("tool_result", call_id="c", output={"a": MARK})
MARKED = [
    block("text", text=MARK),
    block("reasoning", summary=MARK),
    block("reasoning", thinking=MARK, signature="s", details=["a"]),
    block("tool_result", call_id="c", output=MARK, status="completed"),
    block("tool_result", tool_call_id="c", content=MARK, status="completed"),
    block("tool_result", call_id="c", output=[block("text", text=MARK)]),
    _JSON,
    block("tool_result", call_id="c", output=_STORED),
    block("tool_call", id="c", name="n", args={"a": MARK}),
    block("tool_call", id="c", name="n", arguments={"a": MARK}),
    block("remote_tool_call", id="c", name="n", args={"a": MARK}),
    block("document", media={"url": "https://a.b"}, text=MARK),
    block("data", mime_type="x/y", data_base64="bWFyay01ZDFl"),
    block("annotation", refs=[{"title": MARK}]),
    {**block("annotation", annotation={"title": MARK}), "kind": "note"},
    block("error", message=MARK),
    block("error", error=MARK, data={"a": 1}),
    block("new", said=MARK),
]
_BESIDE: list[Object] = [
    {
        "role": "assistant",
        "tools_calls": [{"id": "c", "type": "function", "function": {"name": MARK, "arguments": "{}"}}],
    },
    {"role": "assistant", "content": [MARKED[0]], "tools_calls": [{"id": "c", "name": "n"}]},
    {"role": "user", "content": MARK},
    {"role": "user", "reasoning": MARK},
]


@both
def test_the_origin_repeats_no_content_and_a_result_only_as_the_text_that_a_model_reads(codec: Codec) -> None:
    told: list[Object] = [{"role": role, "content": [one]} for role in ("user", "assistant", "tool") for one in MARKED]
    for value in (*told, *_BESIDE):
        kept = "".join(message.to_json() for message in codec.read({"content": [], **value}))
        assert kept.count(MARK) + kept.count("bWFyay01ZDFl") == 1, value
    (message,) = codec.read({"role": "tool", "content": [_JSON, block("text", text="beside")]})
    assert message.to_json().count(MARK) == 2
