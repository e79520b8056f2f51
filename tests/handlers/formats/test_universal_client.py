"""Messages of seed 004 are read as ours, and ours are written as that system's, or the loss is reported."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError, UnknownRole
from lanebus.bus.messages import (
    AssistantMessage,
    AudioBlock,
    Block,
    DeveloperMessage,
    DocumentBlock,
    ExtensionMessage,
    ImageBlock,
    LlmMessage,
    MediaRef,
    Publishable,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    TurnId,
    UnknownBlock,
    Usage,
    UserMessage,
    VideoBlock,
    parse_json,
    read_message,
)
from lanebus.bus.wire import encode
from lanebus.codecs import CODING_AGENT, ORIGIN, UNIVERSAL_CLIENT, Codec, Unsayable, universal_client_codec
from lanebus.providers import to_anthropic
from tests.support.log.entries import context_of
from tests.support.messages.faithfulness import logged, require_read_back, require_written_back
from tests.support.messages.sayings import BASE64, URLS, histories, json_objects, json_values, numbers, objects, texts
from tests.support.suite.scale import examples

Object = dict[str, JsonValue]

PLACE = MediaRef.from_url("https://x/y")
PNG = "iVBORw0KGgo="


def part(kind: str, **data: JsonValue) -> Object:
    return {"kind": kind, kind: data}


def message(role: str, *parts: JsonValue, **rest: JsonValue) -> Object:
    return {"role": role, "content": [*parts], **rest}


def read(value: JsonValue) -> LlmMessage:
    (found,) = UNIVERSAL_CLIENT.read(value)
    assert isinstance(found, LlmMessage)
    return found


def block_of(found: JsonValue, role: str = "user") -> Block:
    (block,) = read(message(role, found)).content
    return block


def image(**fields: str) -> ImageBlock:
    return ImageBlock(media=MediaRef.model_validate(fields))


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        ("system", SystemMessage),
        ("developer", DeveloperMessage),
        ("user", UserMessage),
        ("assistant", AssistantMessage),
        ("USER", UserMessage),
    ],
)
def test_each_role_is_a_class_of_ours(role: str, kind: type[LlmMessage]) -> None:
    found = read(message(role, {"kind": "text", "text": "hi"}, name="ann"))
    assert isinstance(found, kind)
    assert (found.content, found.name) == ((TextBlock(text="hi"),), "ann")


@pytest.mark.parametrize(
    ("found", "block"),
    [
        ({"kind": "TEXT", "text": "a"}, TextBlock(text="a")),
        (part("image", url="https://x/y"), image(kind="url", url="https://x/y")),
        (part("image", data=PNG), image(kind="data", data=PNG, mime_type="image/png")),
        (part("image", data="/9j/4AAQ"), image(kind="data", data="/9j/4AAQ", mime_type="image/jpeg")),
        (part("image", data="AAAA"), image(kind="data", data="AAAA", mime_type="image/png")),
        (part("image", data_base64=PNG, media_type="x/y"), image(kind="data", data=PNG, mime_type="x/y")),
        (part("image", url="data:image/gif;base64,AAAA"), image(kind="data", data="AAAA", mime_type="image/gif")),
        (
            part("image", url="https://x/y", detail="low"),
            ImageBlock(media=MediaRef.from_url("https://x/y"), detail="low"),
        ),
        (part("audio", data="AAAA"), AudioBlock(media=MediaRef(kind="data", data="AAAA"))),
        (
            part("document", data="AAAA", media_type="application/pdf", file_name="a.pdf"),
            DocumentBlock(
                media=MediaRef(kind="data", data="AAAA", mime_type="application/pdf", filename="a.pdf"),
            ),
        ),
        (part("tool_call", id="c", name="f", arguments={"a": 1}), ToolCallBlock(id="c", name="f", arguments={"a": 1})),
        (
            part("tool_call", id="c", name="f", arguments='{"a":1}', type="function"),
            ToolCallBlock(id="c", name="f", arguments={"a": 1}, call_type="function"),
        ),
        (part("tool_call", id="c", name="f", arguments="{a"), ToolCallBlock(id="c", name="f", arguments_raw="{a")),
        (part("thinking", text="t"), ThinkingBlock.model_validate({"text": "t"})),
        (
            part("thinking", text="t", signature="s"),
            ThinkingBlock.model_validate({"text": "t", "signature": "s"}),
        ),
        (part("thinking", text="t", redacted=True), RedactedThinkingBlock(data="t")),
        ({"kind": "redacted_thinking", "data": "x"}, RedactedThinkingBlock(data="x")),
        ({"kind": "redacted_thinking", "redacted_data": "x"}, RedactedThinkingBlock(data="x")),
        ({"kind": "redacted_thinking", "thinking": {"data": "x"}}, RedactedThinkingBlock(data="x")),
        (
            {"kind": "redacted_thinking", "thinking": {"text": "", "signature": "x", "redacted": True}},
            RedactedThinkingBlock(data="x"),
        ),
        (
            part("tool_result", tool_call_id="c", content="1"),
            ToolResultBlock(tool_call_id="c", content=(TextBlock(text="1"),)),
        ),
        ({"kind": "new", "more": [1]}, UnknownBlock(raw={"kind": "new", "more": [1]})),
    ],
)
def test_each_kind_of_part_is_a_block_of_ours(found: JsonValue, block: Block) -> None:
    assert block_of(found) == block


@pytest.mark.parametrize(
    ("content", "blocks", "structured"),
    [
        ("72F", (TextBlock(text="72F"),), None),
        ("", (), None),
        (None, (), None),
        ({"t": 72}, (), {"t": 72}),
        ([1, 2], (), [1, 2]),
        ([{"t": 72}], (), [{"t": 72}]),
        ([{"kind": "text", "text": "a"}], (TextBlock(text="a"),), None),
    ],
)
def test_a_result_is_text_or_parts_or_json(
    content: JsonValue, blocks: tuple[Block, ...], structured: JsonValue
) -> None:
    found = read(message("tool", part("tool_result", tool_call_id="c", content=content, is_error=True)))
    assert isinstance(found, ToolResultMessage)
    assert (found.content, found.structured, found.is_error) == (blocks, structured, True)


def test_the_image_of_a_result_comes_after_its_text() -> None:
    shown_as: Object = {"image_data": PNG, "image_media_type": "image/png"}
    result = part("tool_result", tool_call_id="c", content="see", is_error=False, **shown_as)
    value = message("tool", result, tool_call_id="c")
    shown = image(kind="data", data=PNG, mime_type="image/png")
    assert read(value).content == (TextBlock(text="see"), shown)
    assert UNIVERSAL_CLIENT.write(UNIVERSAL_CLIENT.read(value), False).values == (value,)
    assert ORIGIN not in (read(value).metadata or {})


def test_a_tool_message_is_named_by_itself_where_its_part_names_no_call() -> None:
    found = read(message("tool", part("tool_result", content="1"), tool_call_id="c", name="f"))
    assert isinstance(found, ToolResultMessage)
    assert (found.tool_call_id, found.tool_name) == ("c", "f")
    found = read({"role": "tool", "content": "72F", "tool_call_id": "c"})
    assert isinstance(found, ToolResultMessage)
    assert (found.tool_call_id, found.text_content()) == ("c", "72F")


def test_results_of_one_message_are_one_again_and_those_that_came_one_by_one_are_not() -> None:
    value = message("tool", *(part("tool_result", tool_call_id=call, content=call) for call in ("a", "b")))
    found = UNIVERSAL_CLIENT.read(value)
    assert [each.tool_call_id for each in found if isinstance(each, ToolResultMessage)] == ["a", "b"]
    assert UNIVERSAL_CLIENT.write(found, False).values == (value,)
    values = tuple(
        message("tool", part("tool_result", tool_call_id=call, content=call), tool_call_id=call) for call in ("a", "b")
    )
    assert UNIVERSAL_CLIENT.write(UNIVERSAL_CLIENT.read_all(values), False).values == values


@pytest.mark.parametrize(
    ("told", "reason", "raw"),
    [
        ({}, "stop", None),
        ({"finish_reason": {"reason": "length"}}, "length", None),
        ({"finish_reason": {"reason": "stop", "raw": "end_turn"}}, "stop", "end_turn"),
        ({"finish_reason": "content_filter"}, "guardRail", None),
        ({"finish_reason": {"reason": "other", "raw": "aborted"}}, "aborted", None),
        ({"finish_reason": {"reason": "other", "raw": "x"}}, "stop", "x"),
    ],
)
def test_a_finish_reason_is_one_of_our_words_and_the_raw_one(told: Object, reason: str, raw: str | None) -> None:
    found = read(message("assistant", **told))
    assert isinstance(found, AssistantMessage)
    assert (found.stop_reason, found.raw_stop_reason) == (reason, raw)
    require_read_back(UNIVERSAL_CLIENT, message("assistant", **told))


def test_an_answer_with_calls_ended_for_them() -> None:
    found = read(message("assistant", part("tool_call", id="c", name="f", arguments={})))
    assert isinstance(found, AssistantMessage)
    assert found.stop_reason == "toolUse"


USAGE: Object = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105, "cache_read_tokens": 80}


@pytest.mark.parametrize(("provider", "own_input"), [(None, 100), ("anthropic", 100), ("openai", 20), ("gemini", 20)])
def test_input_never_has_the_cached_tokens_in_it(provider: str | None, own_input: int) -> None:
    (found,) = universal_client_codec(provider=provider).read(message("assistant", usage=USAGE))
    assert isinstance(found, AssistantMessage)
    assert found.usage == Usage(input=own_input, output=5, total_tokens=105, cache_read=80)
    require_read_back(universal_client_codec(provider=provider), message("assistant", usage=USAGE))
    require_read_back(
        universal_client_codec(provider=provider), message("assistant", usage={**USAGE, "cache_read_tokens": 500})
    )


def test_signed_thinking_goes_back_to_the_author_passed_to_the_codec() -> None:
    history = [
        message("user", {"kind": "text", "text": "q"}),
        message("assistant", part("thinking", text="t", signature="s"), {"kind": "text", "text": "a"}),
        message("user", {"kind": "text", "text": "why"}),
    ]
    told = universal_client_codec(provider="anthropic", model="m").read_all(history)
    for known, kinds in ((told, ["thinking", "text"]), (UNIVERSAL_CLIENT.read_all(history), ["text"])):
        turns = to_anthropic(context_of(*known), model="m").body["messages"]
        assert isinstance(turns, list)
        assert isinstance(turns[1], dict)
        assert isinstance(turns[1]["content"], list)
        assert [block["type"] for block in turns[1]["content"] if isinstance(block, dict)] == kinds
    assert universal_client_codec(provider="anthropic", model="m").write(told, False).values == tuple(history)


@pytest.mark.parametrize("prefix", ["", "file:"])
def test_a_local_file_is_read_only_with_a_files_function(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "a").write_bytes(b"\x89PNG\r\n\x1a\n")
    value = message("user", part("image", url=f"{prefix}{tmp_path / 'a'}"))
    with pytest.raises(DecodeError):
        UNIVERSAL_CLIENT.read(value)
    (found,) = universal_client_codec(files=MediaRef.from_file).read(value)
    assert isinstance(found, UserMessage)
    assert found.content == (image(kind="data", data=PNG, mime_type="image/png"),)


@pytest.mark.parametrize(
    ("ours", "loss"),
    [
        (UserMessage(timestamp=1), "0.timestamp"),
        (UserMessage(id="i"), "0.id"),
        (UserMessage(metadata={"a": 1}), "0.metadata"),
        (UserMessage(raw=1), "0.raw"),
        (UserMessage(turn_id=TurnId(loop_id="l", turn_index=0)), "0.turnId"),
        (UserMessage(content=(ImageBlock(media=PLACE, alt_text="a"),)), "0.content.0.altText"),
        (UserMessage(content=(VideoBlock(media=PLACE),)), "0.content.0 (video)"),
        (UserMessage(content=(image(kind="file_id", file_id="f"),)), "0.content.0 (image)"),
        (UserMessage(content=(image(kind="data", data=PNG),)), "0.content.0.media"),
        (AssistantMessage(response_id="r"), "0.responseId"),
        (UserMessage(content=(ToolCallBlock(id="", name="", remote=True),)), "0.content.0.remote"),
        (ToolResultMessage(tool_call_id="c", status="failed"), "0.status"),
        (ExtensionMessage.of("x"), "0 (extension x)"),
    ],
)
def test_what_it_cannot_represent_is_refused_with_its_path(ours: Publishable, loss: str) -> None:
    with pytest.raises(Unsayable) as caught:
        UNIVERSAL_CLIENT.write([ours], False)
    assert [found for found in caught.value.losses if found.startswith(loss)]
    written = UNIVERSAL_CLIENT.write([ours, UserMessage(content=(TextBlock(text="a"),))], True)
    assert written.values[-1] == message("user", {"kind": "text", "text": "a"})


def test_losses_count_blocks_before_any_is_left_out() -> None:
    ours = UserMessage(content=(VideoBlock(media=PLACE), ImageBlock(media=PLACE, alt_text="a")))
    assert UNIVERSAL_CLIENT.write([ours], True).losses == ("0.content.0 (video)", "0.content.1.altText")


CALL = ToolCallBlock(id="c", name="f", arguments={"a": 1})
SHOWN = image(kind="data", data=PNG, mime_type="image/png")
SIGNED = ThinkingBlock.model_validate({"text": "t", "signature": "s"})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SystemMessage(content=(TextBlock(text="a"),)), message("system", {"kind": "text", "text": "a"})),
        (DeveloperMessage(name="ann"), message("developer", name="ann")),
        (
            UserMessage(content=(ImageBlock(media=PLACE, detail="low"), SHOWN)),
            message(
                "user",
                part("image", url="https://x/y", detail="low"),
                part("image", data=PNG, media_type="image/png"),
            ),
        ),
        (UserMessage(content=(AudioBlock(media=PLACE),)), message("user", part("audio", url="https://x/y"))),
        (
            UserMessage(
                content=(DocumentBlock(media=MediaRef(kind="data", data="AAAA", mime_type="a/b", filename="c")),)
            ),
            message("user", part("document", data="AAAA", media_type="a/b", file_name="c")),
        ),
        (
            AssistantMessage(content=(SIGNED, RedactedThinkingBlock(data="x"), CALL), stop_reason="toolUse"),
            message(
                "assistant",
                part("thinking", text="t", signature="s"),
                {"kind": "redacted_thinking", "thinking": {"text": "x", "redacted": True}},
                part("tool_call", id="c", name="f", arguments={"a": 1}),
            ),
        ),
        (
            AssistantMessage(
                provider="openai",
                model="m",
                stop_reason="length",
                raw_stop_reason="incomplete",
                usage=Usage(input=20, output=5, total_tokens=105, cache_read=80, reasoning=1, raw={"x": 1}),
            ),
            message(
                "assistant",
                provider="openai",
                model="m",
                finish_reason={"reason": "length", "raw": "incomplete"},
                usage={**USAGE, "reasoning_tokens": 1, "raw": {"x": 1}},
            ),
        ),
        (
            AssistantMessage(stop_reason="paused"),
            message("assistant", finish_reason={"reason": "other", "raw": "paused"}),
        ),
        (
            AssistantMessage(content=(CALL,)),
            message(
                "assistant",
                part("tool_call", id="c", name="f", arguments={"a": 1}),
                finish_reason={"reason": "stop"},
            ),
        ),
        (
            ToolResultMessage(tool_call_id="c", tool_name="f", is_error=True, structured={"a": 1}),
            message(
                "tool",
                part("tool_result", tool_call_id="c", content={"a": 1}, is_error=True),
                tool_call_id="c",
                name="f",
            ),
        ),
        (
            ToolResultMessage(tool_call_id="c", content=(TextBlock(text="see"), SHOWN)),
            message(
                "tool",
                part(
                    "tool_result",
                    tool_call_id="c",
                    content="see",
                    is_error=False,
                    image_data=PNG,
                    image_media_type="image/png",
                ),
                tool_call_id="c",
            ),
        ),
        (
            ToolResultMessage(tool_call_id="c", content=(TextBlock(text="a"), TextBlock(text="b"))),
            message(
                "tool",
                part(
                    "tool_result",
                    tool_call_id="c",
                    content=[{"kind": "text", "text": "a"}, {"kind": "text", "text": "b"}],
                    is_error=False,
                ),
                tool_call_id="c",
            ),
        ),
    ],
)
def test_ours_are_written_in_their_words_and_read_again_as_they_were(ours: Publishable, theirs: Object) -> None:
    assert UNIVERSAL_CLIENT.write([ours], False).values == (theirs,)
    assert UNIVERSAL_CLIENT.read(theirs) == (ours,)


def test_a_changed_message_is_written_as_it_is_now_and_a_foreign_origin_is_a_loss() -> None:
    (found,) = UNIVERSAL_CLIENT.read({"role": "USER", "content": "before"})
    assert isinstance(found, UserMessage)
    changed = found.model_copy(update={"content": (TextBlock(text="after"),)})
    assert UNIVERSAL_CLIENT.write([changed], False).values == (message("user", {"kind": "text", "text": "after"}),)
    (found,) = UNIVERSAL_CLIENT.read({"role": "user", "content": "a"})
    assert isinstance(found, UserMessage)
    foreign = found.model_copy(update={"metadata": {ORIGIN: {"codec": "003", "edits": []}}})
    assert UNIVERSAL_CLIENT.write([foreign], True).losses == ("0.metadata",)


@pytest.mark.full
@examples(300)
@given(histories())
def test_every_loss_of_our_messages_is_reported(said: Sequence[Publishable]) -> None:
    require_written_back(UNIVERSAL_CLIENT, said)


_extra = {"extra": json_values, "name": st.none() | texts}
_media_data = st.one_of(
    objects({"url": st.sampled_from(URLS)}, {"media_type": st.none() | texts, "data": st.none()}),
    objects({"data": st.sampled_from(BASE64)}, {"media_type": texts, "file_name": texts, "more": json_values}),
    objects({"data_base64": st.sampled_from(BASE64)}, {"media_type": st.none(), "file_name": texts}),
)
_calls = objects(
    {"id": texts, "name": texts},
    {"arguments": json_objects | texts | st.just("null"), "type": texts, "more": json_values},
)
_result_contents = (
    texts
    | json_objects
    | st.lists(json_values, max_size=2).filter(
        lambda items: not any(isinstance(item, dict) and "kind" in item for item in items)
    )
)
_results = objects(
    {"tool_call_id": st.sampled_from(["a", "b"])},
    {
        "content": _result_contents | st.just([{"kind": "text", "text": "x"}, {"kind": "new"}]),
        "is_error": st.none() | st.booleans(),
        "image_data": st.sampled_from(BASE64),
        "more": json_values,
    },
)


def _parts(kind: str, data: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[object]:
    return objects({"kind": st.sampled_from([kind, kind.upper()]), kind: data}, {"more": json_values})


_their_parts = st.one_of(
    objects({"kind": st.just("text"), "text": texts}, {"more": json_values}),
    _parts("image", _media_data),
    _parts("audio", _media_data),
    _parts("document", _media_data),
    _parts("tool_call", _calls),
    _parts("tool_result", _results),
    _parts("thinking", objects({"text": texts}, {"signature": st.none() | texts, "redacted": st.just(False)})),
    objects({"kind": st.just("redacted_thinking"), "data": st.just("blob")}, {"more": json_values}),
    objects({"kind": st.just("new")}, {"text": json_values, "more": json_values}),
)
_finishes = objects(
    {"reason": st.sampled_from(["stop", "length", "tool_calls", "content_filter", "error", "other"])},
    {"raw": st.none() | st.sampled_from(["stop", "aborted", "x"])},
)
_usages = objects(
    {"input_tokens": numbers, "output_tokens": numbers, "total_tokens": numbers},
    {"reasoning_tokens": st.none() | numbers, "cache_read_tokens": numbers, "raw": json_values, "more": json_values},
)
_answered = {"finish_reason": _finishes, "usage": _usages, "provider": st.just("openai"), "model": texts}
_content = st.lists(_their_parts, max_size=3)
_theirs = st.one_of(
    objects({"role": st.sampled_from(["system", "developer", "user", "USER"]), "content": _content | texts}, _extra),
    objects({"role": st.just("assistant"), "content": _content | texts | st.none()}, {**_extra, **_answered}),
    objects({"role": st.just("tool"), "content": st.lists(_parts("tool_result", _results), min_size=1)}, _extra),
    objects({"role": st.just("tool"), "tool_call_id": texts, "content": texts}, _extra),
)


@pytest.mark.full
@examples(300)
@given(_theirs)
def test_what_was_read_is_written_as_it_was(value: JsonValue) -> None:
    require_read_back(UNIVERSAL_CLIENT, value)
    require_read_back(universal_client_codec(provider="openai", model="m"), value)


def user(content: str) -> str:
    return f'{{"role":"user","content":[{content}]}}'


def tool(content: str, rest: str = "") -> str:
    return f'{{"role":"tool","content":[{content}]{rest}}}'


def result(fields: str) -> str:
    return f'{{"kind":"tool_result","tool_result":{{{fields}}}}}'


DEEP = "[" * 200 + "]" * 200

MALFORMED = [
    ("1", ""),
    ("[]", ""),
    ("null", ""),
    ("{}", "role"),
    ('{"role":1,"content":[]}', "role"),
    ('{"role":"user"}', "content"),
    ('{"role":"user","content":1}', "content"),
    ('{"role":"user","content":{"kind":"text"}}', "content"),
    ('{"role":"user","content":"a","name":1}', "name"),
    (user("1"), "content.0"),
    (user('"a"'), "content.0"),
    (user("{}"), "content.0.kind"),
    (user('{"kind":1}'), "content.0.kind"),
    (user('{"kind":"text","text":"a"},{"kind":"text"}'), "content.1.text"),
    (user('{"kind":"text","text":1}'), "content.0.text"),
    (user('{"kind":"image"}'), "content.0.image"),
    (user('{"kind":"image","image":null}'), "content.0.image"),
    (user('{"kind":"image","image":{}}'), "content.0.image"),
    (user('{"kind":"image","image":{"url":"https://x/y","data":"AAAA"}}'), "content.0.image"),
    (user('{"kind":"image","image":{"data":""}}'), "content.0.image.data"),
    (user('{"kind":"image","image":{"data":"A"}}'), "content.0.image.data"),
    (user('{"kind":"image","image":{"data":"not base64"}}'), "content.0.image.data"),
    (user('{"kind":"image","image":{"data":"\\u00c4\\u00c4\\u00c4\\u00c4"}}'), "content.0.image.data"),
    (tool(result('"tool_call_id":"a","image_data":"\\u00c4"')), "content.0.tool_result.image_data"),
    (user('{"kind":"image","image":{"data_base64":"!"}}'), "content.0.image.data_base64"),
    (user('{"kind":"image","image":{"data":[137,80]}}'), "content.0.image.data"),
    (user('{"kind":"image","image":{"data":"AAAA","data_base64":"BBBB"}}'), "content.0.image.data_base64"),
    (user('{"kind":"image","image":{"url":1}}'), "content.0.image.url"),
    (user('{"kind":"image","image":{"url":""}}'), "content.0.image.url"),
    (user('{"kind":"image","image":{"url":"/etc/passwd"}}'), "content.0.image.url"),
    (user('{"kind":"image","image":{"url":"./a.png"}}'), "content.0.image.url"),
    (user('{"kind":"image","image":{"url":"~/a.png"}}'), "content.0.image.url"),
    (user('{"kind":"image","image":{"url":"C:\\\\a.png"}}'), "content.0.image.url"),
    (user('{"kind":"document","document":{"url":"FILE:///etc/passwd"}}'), "content.0.document.url"),
    (user('{"kind":"audio","audio":{"url":"javascript:alert(1)"}}'), "content.0.audio.url"),
    (user('{"kind":"image","image":{"url":"data:text/html,<b>"}}'), "content.0.image.url"),
    (user('{"kind":"image","image":{"url":"data:image/png;base64,!"}}'), "content.0.image.data"),
    (user('{"kind":"image","image":{"url":"https://x/y","detail":"max"}}'), "content.0.image.detail"),
    (user('{"kind":"image","image":{"url":"https://x/y","media_type":1}}'), "content.0.image.media_type"),
    (user('{"kind":"tool_call","tool_call":{"name":"f"}}'), "content.0.tool_call.id"),
    (user('{"kind":"tool_call","tool_call":{"id":1,"name":"f"}}'), "content.0.tool_call.id"),
    (user('{"kind":"tool_call","tool_call":{"id":"c"}}'), "content.0.tool_call.name"),
    (user('{"kind":"tool_call","tool_call":{"id":"c","name":"f","arguments":[1]}}'), "content.0.tool_call.arguments"),
    (user('{"kind":"thinking","thinking":"t"}'), "content.0.thinking"),
    (user('{"kind":"thinking","thinking":{"signature":"s"}}'), "content.0.thinking.text"),
    (user('{"kind":"thinking","thinking":{"text":"t","redacted":1}}'), "content.0.thinking.redacted"),
    (user('{"kind":"redacted_thinking"}'), "content.0.data"),
    (user('{"kind":"redacted_thinking","thinking":{}}'), "content.0.thinking.data"),
    (tool(""), "tool_call_id"),
    (tool(result('"content":"1"')), "content.0.tool_result.tool_call_id"),
    (tool(result('"tool_call_id":"a"'), ',"tool_call_id":"b"'), "content.0.tool_result.tool_call_id"),
    (tool(result('"tool_call_id":"a","content":1')), "content.0.tool_result.content"),
    (tool(result('"tool_call_id":"a","is_error":"no"')), "content.0.tool_result.is_error"),
    (tool(result('"tool_call_id":"a","image_data":"!"')), "content.0.tool_result.image_data"),
    (tool(result('"tool_call_id":"a","content":[{"kind":"text"}]')), "content.0.tool_result.content.0.text"),
    (tool(result('"tool_call_id":"a"') + ',{"kind":"text","text":"a"}'), "content.1.kind"),
    ('{"role":"assistant","content":[],"finish_reason":{}}', "finish_reason.reason"),
    ('{"role":"assistant","content":[],"finish_reason":{"reason":"x"}}', "finish_reason.reason"),
    ('{"role":"assistant","content":[],"usage":{"input_tokens":-1}}', "usage.input_tokens"),
    ('{"role":"assistant","content":[],"usage":{"input_tokens":1.5}}', "usage.input_tokens"),
    ('{"role":"assistant","content":[],"usage":{"total_tokens":9223372036854775808}}', "usage.total_tokens"),
    ('{"role":"assistant","content":[],"usage":[]}', "usage"),
    ('{"role":"user","content":[],"x":NaN}', "x"),
    ('{"role":"user","content":[],"x":1e999}', "x"),
    ('{"role":"user","role":"user","content":[]}', "role"),
    ('{"role":"user","content":"\\ud800"}', "content"),
    (user(f'{{"kind":"new","x":{DEEP}}}'), "content"),
    (user(f'{{"kind":"new","x":{"[" * 57 + "]" * 57}}}'), "content"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path"), MALFORMED)
def test_a_malformed_message_is_refused_with_the_path_to_its_fault(text: str, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        UNIVERSAL_CLIENT.read(parse_json(text))
    assert caught.value.path == path


@pytest.mark.parametrize(
    "text",
    [
        f'{{"role":"user","content":[],"x":{"[" * 58}{"]" * 58}}}',
        user(f'{{"kind":"new","x":{"[" * 56}{"]" * 56}}}'),
        user(f'{{"kind":"text","text":"a","x":{"[" * 56}{"]" * 56}}}'),
    ],
)
def test_what_is_read_can_be_published_however_deep_it_is(text: str) -> None:
    value = parse_json(text)
    require_read_back(UNIVERSAL_CLIENT, value)
    assert [read_message(encode(message)) for message in UNIVERSAL_CLIENT.read(value)] == [
        *UNIVERSAL_CLIENT.read(value)
    ]


@pytest.mark.parametrize("role", ["", "custom", "extension", "context", "User"])
def test_a_role_of_none_of_its_messages_is_refused(role: str) -> None:
    with pytest.raises(UnknownRole):
        UNIVERSAL_CLIENT.read(message(role))


@pytest.mark.parametrize(
    "value", [float("nan"), {"role": "user", "content": "\ud800"}, {"role": "user", "x": 10**5000}]
)
def test_a_value_that_was_never_json_is_refused_too(value: JsonValue) -> None:
    with pytest.raises(DecodeError):
        UNIVERSAL_CLIENT.read(value)


def test_an_error_in_a_history_names_the_index_of_its_message() -> None:
    with pytest.raises(DecodeError) as caught:
        UNIVERSAL_CLIENT.read_all([message("user"), {"role": "user", "content": [{}]}])
    assert caught.value.path == "1.content.0.kind"


_odd_parts = objects({"kind": st.sampled_from(["text", "image", "tool_result"])}, {"text": texts, "image": json_values})
_odd = objects(
    {"role": st.sampled_from(["user", "tool", "assistant"])},
    {
        "content": json_values | st.lists(_odd_parts, max_size=2),
        **dict.fromkeys(("tool_call_id", "usage", "finish_reason", "name"), json_values),
    },
)


@examples(300)
@given(json_values | _odd)
def test_no_json_at_all_raises_anything_but_a_typed_error(value: JsonValue) -> None:
    try:
        found = UNIVERSAL_CLIENT.read(value)
    except MessageError:
        return
    assert logged(found) == tuple(found)
    require_read_back(UNIVERSAL_CLIENT, value)


@pytest.mark.parametrize("codec", [CODING_AGENT, UNIVERSAL_CLIENT], ids=["000", "004"])
@pytest.mark.parametrize("role", ["nobody", "assistant", 7])
def test_a_forged_origin_makes_no_other_message_of_it(codec: Codec, role: JsonValue) -> None:
    plain = UserMessage(content=(TextBlock(text="a"),))
    edits: JsonValue = [{"at": ["role"], "value": role}]
    forged = plain.model_copy(update={"metadata": {ORIGIN: {"codec": codec.name, "edits": edits}}})
    assert codec.write([forged], False) == codec.write([plain], False)


@pytest.mark.parametrize("structured", [0, False, 1.5, "", "x"])
def test_a_result_that_is_a_number_becomes_text_which_is_a_loss(structured: JsonValue) -> None:
    said: list[Publishable] = [
        ToolResultMessage(tool_call_id="a", structured=structured, batch_id="b"),
        ToolResultMessage(tool_call_id="c", content=(TextBlock(text="kept"),), batch_id="b"),
    ]
    written = UNIVERSAL_CLIENT.write(said, True)
    first, second = [
        message for message in UNIVERSAL_CLIENT.read_all(written.values) if isinstance(message, ToolResultMessage)
    ]
    assert (first.text_content(), second.text_content()) == (json.dumps(structured), "kept")
    assert written.losses == ("0.content", "0.structured")
