"""The codecs of the graph framework: their spelling, what is lost, and what no provider sees."""

import hashlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.messages import (
    AnnotationBlock,
    AnnotationRef,
    AssistantMessage,
    Block,
    ContextEntry,
    DataBlock,
    DeveloperMessage,
    DocumentBlock,
    ErrorBlock,
    ExtensionMessage,
    ImageBlock,
    LlmMessage,
    MediaRef,
    Publishable,
    RedactedThinkingBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    UnknownBlock,
    Usage,
    UserMessage,
    read_message,
)
from lanebus.bus.wire import Envelope
from lanebus.codecs import GRAPH_V1, GRAPH_V2, ORIGIN
from lanebus.handlers.formats import Codec, Unsayable
from lanebus.providers import ProviderRequest, to_anthropic, to_gemini, to_openai_chat, to_openai_responses
from tests.support.log.entries import context_of
from tests.support.messages.graph_json import graph_messages
from tests.support.messages.lane_logs import lane_logs
from tests.support.messages.malformed import deep
from tests.support.suite.scale import examples

both = pytest.mark.parametrize("codec", [GRAPH_V1, GRAPH_V2], ids=["002", "003"])


def exactly(value: JsonValue) -> str:
    """JSON to compare by: 1 is not 1.0, nor true."""
    return json.dumps(value, sort_keys=True)


@both
@examples(400)
@given(value=graph_messages)
def test_their_json_comes_back_as_it_was(codec: Codec, value: dict[str, JsonValue]) -> None:
    messages = codec.read(value)
    written = codec.write(messages, False)
    assert [exactly(one) for one in written.values] == [exactly(value)]
    assert written.losses == ()


@both
@examples(200)
@given(value=graph_messages)
def test_what_was_read_can_be_kept_in_the_log(codec: Codec, value: dict[str, JsonValue]) -> None:
    messages = codec.read(value)
    assert [read_message(message.to_json()) for message in messages] == [*messages]


def bare(message: Publishable) -> Publishable:
    """The message without what a codec remembers, and without the name of its batch, which is nobody's word."""
    assert isinstance(message, LlmMessage)
    metadata = {key: value for key, value in (message.metadata or {}).items() if key != ORIGIN}
    update: dict[str, object] = {"metadata": metadata or None}
    if isinstance(message, ToolResultMessage):
        update["batch_id"] = None
    return message.model_copy(update=update)


@both
@examples(300)
@given(value=graph_messages)
def test_without_its_origin_a_message_is_equal_or_its_losses_are_reported(
    codec: Codec, value: dict[str, JsonValue]
) -> None:
    messages = [bare(message) for message in codec.read(value)]
    written = codec.write(messages, True)
    back = [bare(message) for one in written.values for message in codec.read(one)]
    assert (back == messages) == (written.losses == ())


@pytest.mark.full
@both
@examples(300)
@given(log=lane_logs())
def test_any_log_is_written_or_each_loss_is_named_with_its_path(codec: Codec, log: list[Envelope]) -> None:
    messages = [entry.message for entry in log if isinstance(entry.message, LlmMessage | ContextEntry)]
    written = codec.write(messages, True)
    assert all(int(loss.partition(".")[0].partition(":")[0]) < len(messages) for loss in written.losses)
    if written.losses:
        with pytest.raises(Unsayable) as caught:
            codec.write(messages, False)
        assert caught.value.losses == written.losses
    for value in written.values:
        codec.read(value)


@pytest.mark.full
@both
@examples(200)
@given(values=st.lists(graph_messages, max_size=3), again=st.integers(1, 2))
def test_a_conversation_comes_back_message_by_message(
    codec: Codec, values: list[dict[str, JsonValue]], again: int
) -> None:
    said = values * again
    messages = [message for value in said for message in codec.read(value)]
    assert [exactly(value) for value in codec.write(messages, False).values] == [exactly(value) for value in said]


CANARY = "canary-19be"


BESIDE: dict[str, JsonValue] = {
    "message_id": CANARY,
    "metadata": {"secret": CANARY, "origin": CANARY},
    "raw": {"secret": CANARY},
    "reasoning": CANARY,
    "parsed_content": {"secret": CANARY},
    "timestamp": 1234567890.125,
    CANARY: CANARY,
}


USAGES: JsonValue = {"completion_tokens": 424242, "prompt_tokens": 424242, "total_tokens": 424242}


HISTORY: list[dict[str, JsonValue]] = [
    {"role": "system", "content": "Be brief.", **BESIDE},
    {"role": "user", "content": [{"type": "text", "text": "hello", "note": CANARY}], **BESIDE},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "hi", "annotations": [{"title": CANARY}]},
            {"type": "tool_call", "id": "c", "name": "read", "args": {}, "note": CANARY},
        ],
        "usages": USAGES,
        **BESIDE,
    },
    {
        "role": "tool",
        "content": [{"type": "tool_result", "call_id": "c", "output": "ok", "note": CANARY}],
        **BESIDE,
    },
]


@pytest.mark.parametrize("codec", [GRAPH_V1, GRAPH_V2], ids=["002", "003"])
@pytest.mark.parametrize("form", [to_anthropic, to_gemini, to_openai_chat, to_openai_responses])
def test_fields_beside_the_content_are_never_sent(codec: Codec, form: Callable[..., ProviderRequest]) -> None:
    messages = [message for value in HISTORY for message in codec.read(value)]
    assert sum(CANARY in message.to_json() for message in messages) == len(HISTORY)
    body = json.dumps(form(context_of(*messages), model="m").body)
    assert "hello" in body
    assert '"ok"' in body
    for private in (CANARY, "424242", "1234567890", "origin"):
        assert private not in body


MEDIA = MediaRef(kind="url", url="https://example.com/a")


DIGEST_OF_USER, DIGEST_OF_FALSE = (hashlib.sha256(text).hexdigest()[:12] for text in (b'"user"', b"false"))


REF = AnnotationRef(url="https://example.com")


Object = dict[str, JsonValue]


def write(codec: Codec, *messages: Publishable) -> list[Object]:
    """What a codec writes without a loss."""
    values = codec.write(messages, False).values
    assert all(isinstance(value, dict) for value in values)
    return [value for value in values if isinstance(value, dict)]


def written(codec: Codec, block: Block) -> Object:
    """The block as the codec writes it; without the keys that say nothing."""
    (value,) = write(codec, AssistantMessage(content=(block,), stop_reason=_stop(block)))
    content = value["content"]
    assert isinstance(content, list)
    (found,) = content
    assert isinstance(found, dict)
    return {key: item for key, item in found.items() if item is not None}


def _stop(block: Block) -> StopReason:
    return "toolUse" if isinstance(block, ToolCallBlock) else "stop"


def lost(codec: Codec, *messages: Publishable) -> tuple[str, ...]:
    """What a codec refuses to leave out."""
    with pytest.raises(Unsayable) as caught:
        codec.write(messages, False)
    assert codec.write(messages, True).losses == caught.value.losses
    return caught.value.losses


@pytest.mark.parametrize(
    ("block", "first", "second"),
    [
        (
            ThinkingBlock(text="hm"),
            {"type": "reasoning", "summary": "hm"},
            {"type": "reasoning", "thinking": "hm"},
        ),
        (
            ThinkingBlock(text="hm", details=("a",)),
            {"type": "reasoning", "summary": "hm", "details": ["a"]},
            {"type": "reasoning", "summary": "hm", "details": ["a"]},
        ),
        (
            ToolResultBlock(tool_call_id="c", content=(TextBlock(text="ok"),)),
            {"type": "tool_result", "call_id": "c", "output": "ok", "is_error": False},
            {"type": "tool_result", "tool_call_id": "c", "content": "ok", "is_error": False},
        ),
        (
            ToolResultBlock(tool_call_id="c", structured=[1], status="failed", is_error=True),
            {"type": "tool_result", "call_id": "c", "output": [1], "is_error": True, "status": "failed"},
            {"type": "tool_result", "call_id": "c", "output": [1], "is_error": True, "status": "failed"},
        ),
        (
            ErrorBlock(message="no", code="E"),
            {"type": "error", "message": "no", "code": "E"},
            {"type": "error", "error": "no", "code": "E"},
        ),
        (
            ErrorBlock(message="no", data={"a": 1}),
            {"type": "error", "message": "no", "data": {"a": 1}},
            {"type": "error", "message": "no", "data": {"a": 1}},
        ),
        (
            AnnotationBlock(kind="note", spans=((0, 1),)),
            {"type": "annotation", "kind": "note", "refs": [], "spans": [[0, 1]]},
            {"type": "annotation", "kind": "note", "refs": [], "spans": [[0, 1]]},
        ),
        (
            DataBlock(mime_type="x/y", media=MediaRef(kind="data", data="AAAA", mime_type="x/y")),
            {"type": "data", "mime_type": "x/y", "data_base64": "AAAA"},
            {"type": "data", "mime_type": "x/y", "data_base64": "AAAA"},
        ),
    ],
)
def test_a_block_is_spelled_as_documented_unless_only_the_other_spelling_can_represent_it(
    block: Block, first: Object, second: Object
) -> None:
    assert written(GRAPH_V1, block) == first
    assert written(GRAPH_V2, block) == second


def test_only_the_later_year_has_remote_calls_texts_of_documents_and_single_citations() -> None:
    block = AnnotationBlock(refs=(REF,))
    assert written(GRAPH_V2, block).keys() == {"type", "annotation"}
    assert written(GRAPH_V1, block).keys() == {"type", "kind", "refs"}
    call = ToolCallBlock(id="c", name="n", remote=True)
    assert written(GRAPH_V2, call) == {
        "type": "remote_tool_call",
        "id": "c",
        "name": "n",
        "args": {},
        "tool_type": "remote",
    }
    calling = AssistantMessage(content=(call,), stop_reason="toolUse")
    assert lost(GRAPH_V1, calling) == ("0.content.0.remote",)
    # No provider made it, so it is not among the provider's calls.
    assert write(GRAPH_V2, calling)[0]["tools_calls"] is None
    document = DocumentBlock(media=MEDIA, text="all of it")
    assert written(GRAPH_V2, document)["text"] == "all of it"
    assert lost(GRAPH_V1, UserMessage(content=(document,))) == ("0.content.0.text",)


@both
def test_calls_are_repeated_in_the_providers_form_and_read_from_it_alone(codec: Codec) -> None:
    call = ToolCallBlock(id="c", name="n", arguments={"ä": 1})
    (written,) = write(codec, AssistantMessage(content=(call,), stop_reason="toolUse"))
    assert written["tools_calls"] == [
        {"id": "c", "type": "function", "function": {"name": "n", "arguments": '{"ä": 1}'}}
    ]
    value: Object = {
        "role": "assistant",
        "content": [],
        "tools_calls": [
            {"id": "c", "function": {"name": "read", "arguments": '{"path": "a"}'}},
            {"id": "d", "name": "list", "args": {}},
            {"id": "e", "function": {"name": "read", "arguments": "{broken"}},
            {"neither": "shape"},
        ],
    }
    (message,) = codec.read(value)
    assert isinstance(message, AssistantMessage)
    assert [*message.tool_calls()] == [
        ToolCallBlock(id="c", name="read", arguments={"path": "a"}),
        ToolCallBlock(id="d", name="list"),
        ToolCallBlock(id="e", name="read", arguments_raw="{broken"),
    ]
    assert message.stop_reason == "toolUse"
    assert write(codec, message) == [value]


@both
def test_results_of_one_batch_are_one_message_again_and_those_of_another_another(codec: Codec) -> None:
    value: Object = {
        "message_id": "t",
        "role": "tool",
        "timestamp": 1.5,
        "content": [
            {"type": "text", "text": "before"},
            {"type": "tool_result", "call_id": "a", "output": {"n": 1}, "is_error": False, "status": "completed"},
            {"type": "text", "text": "between"},
            {"type": "tool_result", "tool_call_id": "b", "content": "two", "is_error": True},
        ],
    }
    messages = codec.read(value)
    first, second = (message for message in messages if isinstance(message, ToolResultMessage))
    assert (first.id, second.id) == ("t", "t#2")
    assert first.batch_id == second.batch_id == "t"
    assert (first.tool_call_id, first.structured, first.status) == ("a", {"n": 1}, "completed")
    # A model that reads content would not see JSON beside it.
    assert first.text_content() == 'before{"n": 1}between'
    assert (second.tool_call_id, second.is_error, second.text_content()) == ("b", True, "two")
    assert (first.timestamp, second.timestamp) == (1500, 1500)
    assert write(codec, *messages) == [value]
    assert write(codec, *messages, *messages) == [value, value]
    results = [ToolResultMessage(tool_call_id=call, batch_id=batch) for call, batch in zip("abcd", "1122", strict=True)]
    assert [len(_content(value)) for value in write(codec, *results)] == [2, 2]
    alone = [ToolResultMessage(tool_call_id=call) for call in "ab"]
    assert [len(_content(value)) for value in write(codec, *alone)] == [1, 1]


def _content(value: Object) -> list[JsonValue]:
    content = value["content"]
    assert isinstance(content, list)
    return content


@both
def test_a_tool_message_without_a_result_is_kept_and_answers_no_call(codec: Codec) -> None:
    value: Object = {"role": "tool", "content": [{"type": "text", "text": "?"}]}
    (message,) = codec.read(value)
    assert isinstance(message, ToolResultMessage)
    assert (message.tool_call_id, message.text_content()) == ("", "?")
    assert write(codec, message) == [value]


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


def test_our_timestamps_are_text_in_the_first_year_and_seconds_in_the_second() -> None:
    message = UserMessage(timestamp=1_735_787_045_123)
    assert write(GRAPH_V1, message)[0]["timestamp"] == "2025-01-02T03:04:05.123000Z"
    assert write(GRAPH_V2, message)[0]["timestamp"] == 1_735_787_045.123
    assert lost(GRAPH_V1, UserMessage(timestamp=10**15)) == ("0.timestamp",)


@both
def test_an_id_that_was_a_number_is_written_as_a_number(codec: Codec) -> None:
    value: Object = {"message_id": 2**63, "role": "user", "content": []}
    (message,) = codec.read(value)
    assert isinstance(message, LlmMessage)
    assert message.id == str(2**63)
    assert write(codec, message) == [value]
    (renamed,) = write(codec, message.model_copy(update={"id": "mine"}))
    assert renamed["message_id"] == "mine"


@both
def test_cached_tokens_are_taken_out_of_the_prompt_and_put_back_also_where_they_exceed_it(codec: Codec) -> None:
    usages: Object = {"completion_tokens": 5, "prompt_tokens": 100, "total_tokens": 105}
    usages |= {"cache_read_input_tokens": 70, "cache_creation_input_tokens": 10, "reasoning_tokens": 2}
    value: Object = {"role": "assistant", "content": [], "usages": usages}
    (message,) = codec.read(value)
    assert isinstance(message, AssistantMessage)
    assert message.usage == Usage(
        input=20,
        output=5,
        reasoning=2,
        cache_read=70,
        cache_write=10,
        total_tokens=105,
        image_tokens=0,
        audio_tokens=0,
    )
    assert write(codec, message) == [value]
    usages = {"completion_tokens": 5, "prompt_tokens": 3, "total_tokens": 8, "cache_read_input_tokens": 70}
    value = {"role": "assistant", "content": [], "usages": usages}
    (message,) = codec.read(value)
    assert isinstance(message, AssistantMessage)
    assert message.usage is not None
    assert message.usage.input == 3
    assert write(codec, message) == [value]


@both
def test_what_was_changed_since_it_was_read_is_written_as_it_is_now(codec: Codec) -> None:
    value: Object = {
        "message_id": 7,
        "role": "user",
        "content": [{"type": "text", "text": "old", "note": 1}],
        "timestamp": 5.00051,
        "reasoning": "kept",
    }
    (message,) = codec.read(value)
    assert isinstance(message, LlmMessage)
    changed = message.model_copy(update={"content": (TextBlock(text="new"),), "timestamp": 6000})
    (back,) = write(codec, changed)
    assert back["content"] == [{"type": "text", "text": "new", "note": 1}]
    assert back["reasoning"] == "kept"
    (again,) = codec.read(back)
    assert isinstance(again, LlmMessage)
    assert (again.text_content(), again.timestamp) == ("new", 6000)


@both
def test_the_origin_of_the_other_codec_is_not_written_but_its_spelling_is_no_loss(codec: Codec) -> None:
    other = GRAPH_V2 if codec is GRAPH_V1 else GRAPH_V1
    value: Object = {"message_id": 7, "role": "user", "content": [], "reasoning": "private", "metadata": {"a": 1}}
    (message,) = other.read(value)
    with pytest.raises(Unsayable, match="metadata"):
        codec.write([message], False)
    written = codec.write([message], True)
    assert written.losses == ("0.metadata.origin",)
    (back,) = written.values
    assert isinstance(back, dict)
    assert back["message_id"] == "7"
    assert back["reasoning"] is None
    assert back["metadata"] == {"a": 1}
    other = GRAPH_V2 if codec is GRAPH_V1 else GRAPH_V1
    call: Object = {"type": "tool_call", "id": "c", "name": "n", "arguments": {"a": 1}}
    (message,) = other.read({"role": "assistant", "content": [call]})
    assert isinstance(message, LlmMessage)
    assert ORIGIN in (message.metadata or {})
    assert write(codec, message)


FORGED: list[Object] = [
    {"residue": [[["role"], DIGEST_OF_USER, "system"]]},
    {"residue": [[["role"], DIGEST_OF_USER, "nobody"]]},
    {"residue": [[["delta"], DIGEST_OF_FALSE, True]]},
    {"residue": [[["content"], None, "x"], [["more"], None, "x"], [["role"], DIGEST_OF_USER, "tool"]]},
]


@both
@pytest.mark.parametrize("memory", FORGED)
def test_a_forged_origin_does_not_change_the_message(codec: Codec, memory: Object) -> None:
    message = UserMessage(content=(TextBlock(text="hi"),), metadata={ORIGIN: {"codec": codec.name, **memory}})
    (back,) = write(codec, message)
    assert back == write(codec, UserMessage(content=message.content))[0]


@both
@pytest.mark.parametrize("memory", [{"beside": [[1, 0]]}, {"beside": [[0, 2]]}, {"bare": True}])
def test_a_forged_origin_does_not_turn_content_into_a_result(codec: Codec, memory: Object) -> None:
    inner = (ToolResultBlock(tool_call_id="a"), ToolResultBlock(tool_call_id="b"))
    plain = ToolResultMessage(tool_call_id="" if "bare" in memory else "c", content=inner)
    forged = plain.model_copy(update={"metadata": {ORIGIN: {"codec": codec.name, **memory}}})
    assert codec.write([forged], True) == codec.write([plain], True)


@both
@pytest.mark.parametrize(
    "message",
    [
        AssistantMessage(usage=Usage(input=2**63)),
        UserMessage(content=(DocumentBlock(media=MEDIA, pages=(2**63,)),)),
        UserMessage(metadata={"a": deep(58)}),
    ],
    ids=["tokens", "pages", "depth"],
)
def test_values_out_of_their_range_are_refused_as_unsayable(codec: Codec, message: LlmMessage) -> None:
    with pytest.raises(Unsayable, match="0: they have no such"):
        codec.write([message], False)
    other = UserMessage.text("a")
    assert codec.write([message, other], True).values == codec.write([other], False).values


DAMAGED: list[Object] = [
    {"residue": "x"},
    {"residue": [["x"], [[], None, 1], [["content", 5], None, 1], [["content", "a"], None, 1], 1, [[1, 2], "x"]]},
    {"words": [], "beside": {}, "calls": -1},
    {"words": {"content.0": "blocks"}, "beside": [[9, 9], [1], "x"], "calls": True, "sparse": "yes"},
]


@both
@pytest.mark.parametrize("said", DAMAGED)
def test_a_damaged_origin_is_ignored(codec: Codec, said: dict[str, JsonValue]) -> None:
    message = UserMessage(content=(TextBlock(text="a"),))
    origin: JsonValue = {"codec": codec.name, **said}
    remembering = message.model_copy(update={"metadata": {ORIGIN: origin}})
    assert write(codec, remembering) == write(codec, message)


@both
@pytest.mark.parametrize(
    ("message", "path"),
    [
        (AssistantMessage(model="m", provider="p"), "0.model"),
        (AssistantMessage(stop_reason="length"), "0.stopReason"),
        (AssistantMessage(usage=Usage(raw={"a": 1}, image_tokens=0, audio_tokens=0)), "0.usage.raw"),
        (DeveloperMessage.text("x"), "0.role"),
        (UserMessage(name="n"), "0.name"),
        (UserMessage(raw=[1]), "0.raw"),
        (UserMessage(content=(ImageBlock(media=MEDIA, detail="low"),)), "0.content.0.detail"),
        (UserMessage(content=(ImageBlock(media=MediaRef(kind="sha256", sha256="0" * 64)),)), "0.content.0: image"),
        (AssistantMessage(content=(RedactedThinkingBlock(data="x"),)), "0.content.0: redacted_thinking"),
        (UserMessage(content=(UnknownBlock(raw={"type": "new"}),)), "0.content.0: unknown"),
        (UserMessage(content=(ToolCallBlock(id="c", name="n", arguments=[1]),)), "0.content.0.arguments"),
        (ToolResultMessage(tool_call_id="c", tool_name="n"), "0.toolName"),
        (ToolResultMessage(tool_call_id="c", terminate=True), "0.terminate"),
        (ToolResultMessage(tool_call_id="c", batch_id="alone"), "0.batchId"),
        (ToolResultMessage(tool_call_id="c", structured=1, content=(TextBlock(text="1"),)), "0.structured"),
        (
            ToolResultMessage(tool_call_id="c", content=(TextBlock(text="1"), RedactedThinkingBlock(data="x"))),
            "0: in a result, redacted_thinking",
        ),
        (ExtensionMessage.of("progress"), "0: they have no ExtensionMessage"),
    ],
)
def test_what_they_cannot_represent_is_refused_with_its_path(codec: Codec, message: Publishable, path: str) -> None:
    losses = lost(codec, message)
    assert any(loss.startswith(path) for loss in losses), losses


@both
def test_the_name_of_a_tool_is_no_loss_if_its_call_names_it(codec: Codec) -> None:
    call = AssistantMessage(content=(ToolCallBlock(id="c", name="n"),), stop_reason="toolUse")
    assert len(write(codec, call, ToolResultMessage(tool_call_id="c", tool_name="n"))) == 2
    assert lost(codec, call, ToolResultMessage(tool_call_id="c", tool_name="other")) == ("1.toolName",)


@both
def test_with_losses_allowed_the_rest_is_written(codec: Codec) -> None:
    image = ImageBlock(media=MEDIA, detail="low")
    message = AssistantMessage(content=(RedactedThinkingBlock(data="x"), image), model="m")
    found = codec.write([ExtensionMessage.of("x"), message, UserMessage.text("b")], True)
    assert [len(_content(value)) for value in found.values if isinstance(value, dict)] == [1, 1]
    assert [loss.partition(":")[0] for loss in found.losses] == ["0", "1.content.0", "1.content.1.detail", "1.model"]


MARK = "mark-5d1e"


MARKED: dict[str, Object] = {
    "text": {"type": "text", "text": MARK},
    "reasoning, first": {"type": "reasoning", "summary": MARK},
    "reasoning, second": {"type": "reasoning", "thinking": MARK, "signature": "s", "details": ["a"]},
    "result, first": {"type": "tool_result", "call_id": "c", "output": MARK, "status": "completed"},
    "result, second": {"type": "tool_result", "tool_call_id": "c", "content": MARK, "status": "completed"},
    "result, blocks": {"type": "tool_result", "call_id": "c", "output": [{"type": "text", "text": MARK}]},
    "result, JSON": {"type": "tool_result", "call_id": "c", "output": {"a": MARK}},
    "result, media": {
        "type": "tool_result",
        "call_id": "c",
        "output": {"kind": "file_id", "file_id": MARK, "mime_type": "image/png"},
    },
    "call": {"type": "tool_call", "id": "c", "name": "n", "args": {"a": MARK}},
    "call, other name": {"type": "tool_call", "id": "c", "name": "n", "arguments": {"a": MARK}},
    "remote call": {"type": "remote_tool_call", "id": "c", "name": "n", "args": {"a": MARK}},
    "document": {"type": "document", "media": {"url": "https://a.b"}, "text": MARK},
    "data": {"type": "data", "mime_type": "x/y", "data_base64": "bWFyay01ZDFl"},
    "annotation, first": {"type": "annotation", "refs": [{"title": MARK}]},
    "annotation, second": {"type": "annotation", "annotation": {"title": MARK}, "kind": "note"},
    "error, first": {"type": "error", "message": MARK},
    "error, second": {"type": "error", "error": MARK, "data": {"a": 1}},
    "unknown": {"type": "new", "said": MARK},
}


@both
@pytest.mark.parametrize("block", MARKED.values(), ids=MARKED)
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_the_origin_does_not_repeat_the_content_of_a_block(codec: Codec, block: Object, role: str) -> None:
    messages = codec.read({"role": role, "content": [block]})
    kept = "".join(message.to_json() for message in messages)
    assert kept.count(MARK) + kept.count("bWFyay01ZDFl") == 1


@both
def test_the_origin_repeats_no_fields_beside_the_blocks_and_a_result_only_as_the_text_that_a_model_reads(
    codec: Codec,
) -> None:
    calls: JsonValue = [{"id": "c", "type": "function", "function": {"name": MARK, "arguments": "{}"}}]
    assert codec.read({"role": "assistant", "content": [], "tools_calls": calls})[0].to_json().count(MARK) == 1
    said: JsonValue = [{"type": "text", "text": MARK}]
    beside: JsonValue = [{"id": "c", "name": "n"}]
    assert codec.read({"role": "assistant", "content": said, "tools_calls": beside})[0].to_json().count(MARK) == 1
    assert codec.read({"role": "user", "content": MARK})[0].to_json().count(MARK) == 1
    assert codec.read({"role": "user", "content": [], "reasoning": MARK})[0].to_json().count(MARK) == 1
    content: list[JsonValue] = [MARKED["result, JSON"], {"type": "text", "text": "beside"}]
    (message,) = codec.read({"role": "tool", "content": content})
    assert message.to_json().count(MARK) == 2


@both
def test_every_result_of_a_batch_that_cannot_be_represented_is_a_loss(codec: Codec) -> None:
    said = [ToolResultMessage(tool_call_id=call, batch_id="b", structured=deep(70)) for call in "ac"]
    told = codec.write(said, True).losses
    assert {loss[0] for loss in told} == {"0", "1"}


@both
@pytest.mark.parametrize("more", [{}, {"message_id": ""}, {"message_id": "t"}, {"message_id": "batch:2:a"}])
def test_two_messages_of_the_same_results_stay_two(codec: Codec, more: Object) -> None:
    results: JsonValue = [{"type": "tool_result", "call_id": call, "output": "x"} for call in "aba"]
    value: Object = {"role": "tool", "content": results, **more}
    messages = [message for _ in range(3) for message in codec.read(value)]
    assert len(messages) == 9
    assert write(codec, *messages) == [value] * 3
