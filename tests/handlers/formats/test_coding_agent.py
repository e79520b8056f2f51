"""Messages of seed 000 are read as ours, and ours are written as that agent's, or the loss is reported."""

from collections.abc import Sequence
from decimal import Decimal
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
    BranchSummary,
    Compaction,
    Cost,
    DeveloperMessage,
    ExtensionMessage,
    ImageBlock,
    Lane,
    LeafMove,
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
    UnknownBlock,
    Usage,
    UserMessage,
    parse_json,
)
from lanebus.codecs import CODING_AGENT, ORIGIN, Unsayable, coding_agent_codec
from lanebus.handlers.formats.coding_agent import to_base64
from lanebus.providers import to_anthropic
from tests.support.log.entries import context_of
from tests.support.messages.faithfulness import logged, require_read_back, require_written_back
from tests.support.messages.sayings import BASE64, URLS, histories, json_objects, json_values, numbers, objects, texts
from tests.support.suite.scale import examples

Object = dict[str, JsonValue]

PNG = "iVBORw0KGgo="
JPEG = "/9j/4AAQSkZJRgAB"
OGG = "T2dnUwAC"
PLACE = "https://example.com/a.png"


def message(role: str, *contents: JsonValue, **rest: JsonValue) -> Object:
    return {"role": role, "contents": [*contents], **rest}


def result(call: str, **rest: JsonValue) -> Object:
    return {
        "type": "tool_result",
        "id": call,
        "content": call.upper(),
        "is_error": False,
        "metadata": {},
        "terminate": False,
        **rest,
    }


def read(value: JsonValue) -> Publishable:
    (found,) = CODING_AGENT.read(value)
    return found


def blocks_of(*contents: JsonValue) -> tuple[Block, ...]:
    found = read(message("user", *contents))
    assert isinstance(found, UserMessage)
    return found.content


def image(data: str, mime_type: str = "image/png", group_id: str | None = None) -> ImageBlock:
    return ImageBlock(media=MediaRef(kind="data", data=data, mime_type=mime_type), group_id=group_id)


@pytest.mark.parametrize(
    ("role", "kind"), [("system", SystemMessage), ("user", UserMessage), ("assistant", AssistantMessage)]
)
def test_each_spoken_role_is_a_class_of_ours(role: str, kind: type[LlmMessage]) -> None:
    found = read(message(role, {"type": "text", "content": "hi"}, id="m1", timestamp=1700000000.5))
    assert isinstance(found, kind)
    assert (found.content, found.id, found.timestamp) == ((TextBlock(text="hi"),), "m1", 1_700_000_000_500)


@pytest.mark.parametrize(
    ("content", "block"),
    [
        ({"type": "text", "content": "a"}, TextBlock(text="a")),
        ({"type": "text", "text": "a"}, TextBlock(text="a")),
        ({"type": "text"}, TextBlock(text="")),
        ({"type": "thinking", "content": "t", "signature": ""}, ThinkingBlock.model_validate({"text": "t"})),
        (
            {"type": "thinking", "content": "t", "signature": "s"},
            ThinkingBlock.model_validate({"text": "t", "signature": "s"}),
        ),
        (
            {"type": "tool_call", "id": "c", "name": "f", "kind": "read", "args": {"a": 1}, "metadata": {"m": 1}},
            ToolCallBlock(id="c", name="f", tool_kind="read", arguments={"a": 1}, metadata={"m": 1}),
        ),
        (
            result("c", is_error=True, terminate=True, terminate_message="bye", metadata={"m": 1}),
            ToolResultBlock(
                tool_call_id="c",
                content=(TextBlock(text="C"),),
                is_error=True,
                terminate=True,
                terminate_message="bye",
                metadata={"m": 1},
            ),
        ),
        ({"type": "audio", "audio": [OGG]}, AudioBlock(media=MediaRef(kind="data", data=OGG, mime_type="audio/ogg"))),
        ({"type": "audio", "audio": [PNG]}, AudioBlock(media=MediaRef(kind="data", data=PNG, mime_type="audio/mpeg"))),
        ({"type": "image", "images": [PLACE]}, ImageBlock(media=MediaRef.from_url(PLACE))),
        ({"type": "image", "images": [f"data:x/y;base64,{JPEG}"]}, image(JPEG, "image/jpeg")),
        ({"type": "image", "images": [OGG]}, image(OGG)),
        ({"type": "image", "images": []}, UnknownBlock(raw={"type": "image", "images": []})),
        ({"type": "new", "x": [1]}, UnknownBlock(raw={"type": "new", "x": [1]})),
    ],
)
def test_each_type_of_content_is_a_block_of_ours(content: JsonValue, block: Block) -> None:
    assert blocks_of(content) == (block,)


def test_images_of_one_block_are_one_block_again_and_those_side_by_side_stay_apart() -> None:
    value = message("user", {"type": "image", "images": [PNG, PLACE, JPEG]})
    assert len(blocks_of(*_contents(value))) == 3
    assert CODING_AGENT.write(CODING_AGENT.read(value), False).values == (value,)
    assert ORIGIN not in _metadata(CODING_AGENT.read(value)[0])
    groups: list[list[JsonValue]] = [[PNG, JPEG], [PNG], [PNG]]
    shown: list[Object] = [{"type": "image", "images": images} for images in groups]
    value = message("user", *shown)
    assert [block.group_id for block in blocks_of(*_contents(value)) if isinstance(block, ImageBlock)] == [*"0012"]
    assert CODING_AGENT.write(CODING_AGENT.read(value), False).values == (value,)
    seen = UserMessage.with_images("look", [b"\x89PNG\r\n\x1a\n1", PLACE]).model_copy(update={"timestamp": None})
    (written,) = CODING_AGENT.write([seen], False).values
    pictures: Object = {"type": "image", "images": ["iVBORw0KGgox", PLACE]}
    assert written == message("user", {"type": "text", "content": "look"}, pictures)


def test_to_base64_gives_pairs_in_order() -> None:
    found = blocks_of({"type": "image", "images": [PNG, PLACE]}, {"type": "audio", "audio": [OGG]})
    assert to_base64(found) == [(PNG, "image/png"), (PLACE, ""), (OGG, "audio/ogg")]
    assert to_base64([TextBlock(text="a"), ImageBlock(media=MediaRef(kind="file_id", file_id="f"))]) == []


def test_a_local_file_is_read_only_with_a_files_function(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"OggS\0\2")
    value = message("user", {"type": "audio", "audio": [f"file:{tmp_path / 'a'}"]})
    with pytest.raises(DecodeError):
        CODING_AGENT.read(value)
    (found,) = coding_agent_codec(files=MediaRef.from_file).read(value)
    assert isinstance(found, UserMessage)
    assert found.content == (AudioBlock(media=MediaRef(kind="data", data=OGG, mime_type="audio/ogg")),)


def test_several_results_are_a_batch_and_one_message_again_unless_others_stand_between() -> None:
    value = message("tool", result("a"), result("b", is_error=True), id="t1", timestamp=2.5)
    found = [each for each in CODING_AGENT.read(value) if isinstance(each, ToolResultMessage)]
    assert [(each.tool_call_id, each.is_error, each.batch_id) for each in found] == [
        ("a", False, "t1"),
        ("b", True, "t1"),
    ]
    assert CODING_AGENT.write(found, False).values == (value,)
    values = (message("tool", result("a"), result("b")), message("tool", result("c"), result("d")))
    assert CODING_AGENT.write(CODING_AGENT.read_all(values), False).values == values
    one, two = CODING_AGENT.read(message("tool", result("a"), result("b")))
    assert CODING_AGENT.write([one, UserMessage(), two], True).losses == ("2.batchId",)


def test_a_result_in_a_users_message_stays_there_and_goes_to_the_model() -> None:
    value = message("user", result("c", metadata={"secret": 1}), {"type": "text", "content": "go on"})
    (found,) = CODING_AGENT.read(value)
    assert CODING_AGENT.write([found], False).values == (value,)
    call = AssistantMessage(content=(ToolCallBlock(id="c", name="f"),), stop_reason="toolUse")
    body = to_anthropic(context_of(call, found), model="m").body
    assert "secret" not in str(body)
    assert "tool_result" in str(body)


HALF = Cost(total=Decimal("0.5"), source="seed-000")
IMAGES = message("user", {"type": "image", "images": [PLACE, PNG]})
USAGE: Object = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_read_tokens": 2,
    "cache_write_tokens": 1,
    "cost": {"input": 0.1, "output": 0.2, "cache_read": 0.0, "cache_write": 0.0, "total": 0.30000000000000004},
}


def test_usage_is_counted_its_cost_is_exact_and_one_of_zero_unknown() -> None:
    value = message("assistant", usage=USAGE, stop_reason="stop", error="")
    found = read(value)
    assert isinstance(found, AssistantMessage)
    cost = Cost(input=Decimal("0.1"), output=Decimal("0.2"), total=Decimal("0.3"), source="seed-000")
    assert found.usage == Usage(input=10, output=5, cache_read=2, cache_write=1, total_tokens=18, cost=cost)
    require_read_back(CODING_AGENT, value)
    free = dict.fromkeys(("input", "output", "cache_read", "cache_write", "total"), 0.0)
    value = message("assistant", usage={**USAGE, "cost": {**free}}, stop_reason="stop", error="")
    found = read(value)
    assert isinstance(found, AssistantMessage)
    assert found.usage is not None
    assert found.usage.cost is None
    assert CODING_AGENT.write([found], False).values == (value,)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "toolUse"),
        ("content_filter", "guardRail"),
        ("abort", "aborted"),
        ("error", "error"),
        ("maxTurns", "maxTurns"),
        ("new", "stop"),
    ],
)
def test_a_stop_reason_is_one_of_our_words(word: str, reason: str) -> None:
    found = read(message("assistant", stop_reason=word, error="why"))
    assert isinstance(found, AssistantMessage)
    assert (found.stop_reason, found.error_message) == (reason, "why")
    assert found.raw_stop_reason == ("new" if word == "new" else None)
    require_read_back(CODING_AGENT, message("assistant", stop_reason=word))


def test_fractions_of_a_millisecond_are_kept_in_the_origin() -> None:
    found = read(message("user", timestamp=1700000000.1234567))
    assert isinstance(found, UserMessage)
    assert found.timestamp == 1_700_000_000_123
    require_read_back(CODING_AGENT, message("user", timestamp=1700000000.1234567))


def test_a_custom_message_is_of_the_extension_lane() -> None:
    value: Object = {
        "role": "custom",
        "custom_type": "note",
        "contents": [{"type": "text", "content": "hi"}],
        "display": False,
        "details": {"x": None},
        "id": "m1",
        "timestamp": 1.5,
    }
    found = read(value)
    assert isinstance(found, ExtensionMessage)
    assert (found.lane, found.kind) == (Lane.EXTENSION, "custom")
    assert found.data == {
        "customType": "note",
        "contents": [{"type": "text", "text": "hi"}],
        "display": False,
        "details": {"x": None},
        "id": "m1",
        "timestamp": 1500,
    }
    assert CODING_AGENT.write([found], False).values == (value,)
    require_read_back(CODING_AGENT, {**value, "contents": "hi", "more": 1})


def test_summaries_are_entries_that_the_context_is_built_with() -> None:
    compaction: Object = {"role": "compaction_summary", "summary": "S", "tokens_before": 7, "timestamp": 1.5}
    branch: Object = {"role": "branch_summary", "summary": "B", "from_id": "e1", "timestamp": 2.5}
    entries = CODING_AGENT.read_all([compaction, branch])
    assert entries[0] == Compaction(summary="S", tokens_before=7, timestamp=1500)
    assert isinstance(entries[1], BranchSummary)
    assert CODING_AGENT.write(logged(entries), False).values == (compaction, branch)
    said = [each.text_content() for each in context_of(*entries).messages]
    assert ["<summary>\nS" in said[0], "<summary>\nB" in said[1]] == [True, True]


def test_signed_thinking_goes_back_to_the_author_passed_to_the_codec() -> None:
    thinking: Object = {"type": "thinking", "content": "t", "signature": "s"}
    value = message("assistant", thinking, {"type": "text", "content": "a"})
    told = coding_agent_codec(provider="anthropic", model="m")
    (found,) = told.read(value)
    body = to_anthropic(context_of(UserMessage.text("q"), found, UserMessage.text("why")), model="m").body
    assert {"type": "thinking", "thinking": "t", "signature": "s"} in _blocks_of_turn(body, 1)
    require_read_back(told, value)


@pytest.mark.parametrize(
    ("ours", "loss"),
    [
        (UserMessage(name="ann"), "0.name"),
        (UserMessage(metadata={"a": 1}), "0.metadata"),
        (UserMessage(raw=1), "0.raw"),
        (UserMessage(timestamp=2**60), "0.timestamp"),
        (UserMessage(content=(ImageBlock(media=MediaRef.from_url(PLACE), alt_text="a"),)), "0.content.0.altText"),
        (UserMessage(content=(ImageBlock(media=MediaRef.from_url("s3://b/a")),)), "0.content.0 (image)"),
        (UserMessage(content=(AudioBlock(media=MediaRef.from_url(PLACE)),)), "0.content.0 (audio)"),
        (UserMessage(content=(image(PNG, "image/x"),)), "0.content.0"),
        (UserMessage(content=(RedactedThinkingBlock(data="x"),)), "0.content.0 (redacted_thinking)"),
        (UserMessage(content=(ToolCallBlock(id="c", name="f", arguments=[1]),)), "0.content.0.arguments"),
        (DeveloperMessage(), "0.role"),
        (AssistantMessage(provider="p"), "0.provider"),
        (AssistantMessage(stop_reason="maxTurns"), "0.stopReason"),
        (AssistantMessage(usage=Usage(reasoning=1)), "0.usage.reasoning"),
        (AssistantMessage(usage=Usage(total_tokens=7)), "0.usage.total_tokens"),
        (AssistantMessage(usage=Usage(cost=Cost(total=Decimal("1e-20")))), "0.usage.cost"),
        (AssistantMessage(usage=Usage(input=2**70)), "0 (assistant: usage.input_tokens"),
        (ToolResultMessage(tool_call_id="c", tool_name="f"), "0.toolName"),
        (ToolResultMessage(tool_call_id="c", structured={"a": 1}), "0.structured"),
        (ToolResultMessage(tool_call_id="c", content=(TextBlock(text="a"), TextBlock(text="b"))), "0.content"),
        (Compaction(summary="s", first_kept=1), "0.firstKept"),
        (LeafMove(to=1), "0 (context leafMove)"),
        (ExtensionMessage.of("notification", {"customType": "x", "contents": []}), "0 (extension notification)"),
        (ExtensionMessage.of("custom", {"customType": "x", "contents": [1]}), "0 (extension custom)"),
        (ExtensionMessage.of("custom", {"customType": "x", "contents": [], "y": 1}), "0.data.y"),
    ],
)  # fmt: skip
def test_what_it_cannot_represent_is_refused_with_its_path(ours: Publishable, loss: str) -> None:
    with pytest.raises(Unsayable) as caught:
        CODING_AGENT.write([ours], False)
    assert [found for found in caught.value.losses if found.startswith(loss)]
    written = CODING_AGENT.write([ours, SystemMessage(content=(TextBlock(text="a"),))], True)
    assert written.values[-1] == message("system", {"type": "text", "content": "a"})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            SystemMessage(content=(TextBlock(text="a"),), id="i", timestamp=1500),
            message("system", {"type": "text", "content": "a"}, id="i", timestamp=1.5),
        ),
        (UserMessage(content=(ImageBlock(media=MediaRef.from_url(PLACE)), image(PNG))), IMAGES),
        (
            AssistantMessage(
                content=(
                    ThinkingBlock.model_validate({"text": "t", "signature": "s"}),
                    ToolCallBlock(id="c", name="f", tool_kind="read", arguments={"a": 1}, metadata={"m": 1}),
                ),
                stop_reason="aborted",
                error_message="why",
                usage=Usage(input=10, output=5, cache_read=2, cache_write=1, total_tokens=18, cost=HALF),
            ),
            message(
                "assistant",
                {"type": "thinking", "content": "t", "signature": "s"},
                {"type": "tool_call", "id": "c", "name": "f", "kind": "read", "args": {"a": 1}, "metadata": {"m": 1}},
                usage={**USAGE, "cost": {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "total": 0.5}},
                stop_reason="abort",
                error="why",
            ),
        ),
        (
            ToolResultMessage(
                tool_call_id="c",
                content=(TextBlock(text="C"),),
                is_error=True,
                metadata={"m": 1},
                terminate=True,
                terminate_message="bye",
                timestamp=1000,
            ),
            message(
                "tool",
                result("c", is_error=True, metadata={"m": 1}, terminate=True, terminate_message="bye"),
                timestamp=1.0,
            ),
        ),
        (BranchSummary(summary="s", id="i"), {"role": "branch_summary", "summary": "s", "id": "i"}),
        (Compaction(summary="s", tokens_before=3), {"role": "compaction_summary", "summary": "s", "tokens_before": 3}),
    ],
)
def test_ours_are_written_in_their_words_and_read_again_as_they_were(ours: Publishable, theirs: Object) -> None:
    assert CODING_AGENT.write([ours], False).values == (theirs,)
    assert CODING_AGENT.read(theirs) == (ours,)


def test_a_results_name_is_no_loss_where_its_call_is_written_too() -> None:
    call = ToolCallBlock(id="c", name="f")
    answer = AssistantMessage(content=(call,), stop_reason="toolUse")
    assert CODING_AGENT.write([answer, ToolResultMessage(tool_call_id="c", tool_name="f")], False).losses == ()
    assert CODING_AGENT.write([answer, ToolResultMessage(tool_call_id="c", tool_name="g")], True).losses == (
        "1.toolName",
    )


@pytest.mark.full
@examples(300)
@given(histories())
def test_every_loss_of_our_messages_is_reported(said: Sequence[Publishable]) -> None:
    require_written_back(CODING_AGENT, said)


_images = st.lists(st.sampled_from([*URLS, *BASE64]), max_size=3)
_their_contents = st.one_of(
    objects({"type": st.just("text")}, {"content": texts, "more": json_values}),
    objects({"type": st.just("text"), "text": texts}, {}),
    objects({"type": st.just("image"), "images": _images}, {"more": json_values}),
    objects({"type": st.just("image")}, {}),
    objects({"type": st.just("audio"), "audio": st.lists(st.sampled_from(BASE64), max_size=2)}, {}),
    objects({"type": st.just("thinking")}, {"content": texts, "signature": st.none() | texts, "more": json_values}),
    objects(
        {"type": st.just("tool_call"), "id": texts, "name": texts},
        {"kind": st.none() | texts, "args": json_objects, "metadata": json_objects, "more": json_values},
    ),
    objects({"type": st.just("new")}, {"content": json_values}),
)
_forged: Object = {"origin": {"codec": "000", "edits": []}}
_their_results = objects(
    {"type": st.just("tool_result"), "id": texts},
    {
        "content": st.none() | texts,
        "is_error": st.booleans(),
        "metadata": json_objects | st.just(_forged),
        "terminate": st.none() | st.booleans(),
        "terminate_message": texts,
        "more": json_values,
    },
)
_costs = objects({}, dict.fromkeys(("input", "output", "total"), st.sampled_from([0, 0.0, 1e-7, 0.1 + 0.2, 12, 1e-15])))
_usages = objects(
    {},
    {
        **dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), numbers),
        "cost": _costs,
        "more": json_values,
    },
)
_stamp = {
    "id": texts,
    "timestamp": st.floats(-1e11, 1e11) | st.integers(0, 2 * 10**9),
    "more": json_values,
    "metadata": json_values,
}
_contents_strategy = st.lists(_their_contents | _their_results, max_size=4)
_answered = {
    "usage": _usages,
    "stop_reason": st.sampled_from(["stop", "tool_calls", "abort", "content_filter", "maxTurns", "new"]),
    "error": texts,
    "provider": texts,
    "model": texts,
}
_theirs = st.one_of(
    objects({"role": st.sampled_from(["system", "user"])}, {**_stamp, "contents": _contents_strategy}),
    objects({"role": st.just("user"), "contents": _contents_strategy}, _stamp),
    objects({"role": st.just("assistant"), "contents": _contents_strategy}, {**_stamp, **_answered}),
    objects({"role": st.just("tool"), "contents": st.lists(_their_results, min_size=1, max_size=3)}, _stamp),
    objects(
        {"role": st.just("custom"), "contents": st.lists(_their_contents, max_size=2) | texts},
        {**_stamp, "custom_type": texts, "details": json_values, "display": st.booleans(), "origin": json_values},
    ),
    objects({"role": st.just("branch_summary")}, {**_stamp, "summary": texts, "from_id": texts}),
    objects({"role": st.just("compaction_summary")}, {**_stamp, "summary": texts, "tokens_before": numbers}),
)


@pytest.mark.full
@examples(300)
@given(_theirs)
def test_what_was_read_is_written_as_it_was(value: JsonValue) -> None:
    require_read_back(CODING_AGENT, value)
    require_read_back(coding_agent_codec(provider="anthropic", model="m"), value)


def user(content: str) -> str:
    return f'{{"role":"user","contents":[{content}]}}'


def answer(fields: str) -> str:
    return f'{{"role":"assistant","contents":[],{fields}}}'


DEEP = "[" * 200 + "]" * 200

MALFORMED = [
    ("1", ""),
    ("[]", ""),
    ("null", ""),
    ('"user"', ""),
    ("{}", "role"),
    ('{"role":null}', "role"),
    ('{"role":["user"]}', "role"),
    ('{"role":"user","contents":"hi"}', "contents"),
    ('{"role":"user","contents":{}}', "contents"),
    ('{"role":"user","id":1}', "id"),
    ('{"role":"user","timestamp":"2026-01-01"}', "timestamp"),
    ('{"role":"user","timestamp":true}', "timestamp"),
    ('{"role":"user","timestamp":1e300}', "timestamp"),
    (user("1"), "contents.0"),
    (user('{"type":"text"},null'), "contents.1"),
    (user("{}"), "contents.0.type"),
    (user('{"type":1}'), "contents.0.type"),
    (user('{"type":"text","content":1}'), "contents.0.content"),
    (user('{"type":"text","content":"a","text":"b"}'), "contents.0.text"),
    (user('{"type":"image","images":"https://x/y"}'), "contents.0.images"),
    (user('{"type":"image","images":false}'), "contents.0.images"),
    (user('{"type":"audio","audio":{}}'), "contents.0.audio"),
    (user('{"type":"image","images":[1]}'), "contents.0.images.0"),
    (user('{"type":"image","images":[[137,80]]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["https://x/y",""]}'), "contents.0.images.1"),
    (user('{"type":"image","images":["not base64"]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["QQ"]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["file:/etc/passwd"]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["FILE:///etc/passwd"]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["/etc/passwd"]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["~/a.png"]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["javascript:alert(1)"]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["data:image/png;base64,!"]}'), "contents.0.images.0"),
    (user('{"type":"image","images":["http:"]}'), "contents.0.images.0"),
    (user('{"type":"audio","audio":["https://x/y"]}'), "contents.0.audio.0"),
    (user('{"type":"audio","audio":["file:a.mp3"]}'), "contents.0.audio.0"),
    (user('{"type":"audio","audio":[{"kind":"data"}]}'), "contents.0.audio.0"),
    (user('{"type":"thinking","content":["t"]}'), "contents.0.content"),
    (user('{"type":"thinking","content":"t","signature":1}'), "contents.0.signature"),
    (user('{"type":"tool_call","id":1}'), "contents.0.id"),
    (user('{"type":"tool_call","name":{}}'), "contents.0.name"),
    (user('{"type":"tool_call","args":"{}"}'), "contents.0.args"),
    (user('{"type":"tool_call","metadata":1}'), "contents.0.metadata"),
    (user('{"type":"tool_result","content":{"a":1}}'), "contents.0.content"),
    (user('{"type":"tool_result","is_error":1}'), "contents.0.is_error"),
    (user('{"type":"tool_result","terminate":"yes"}'), "contents.0.terminate"),
    ('{"role":"tool","contents":[]}', "contents"),
    ('{"role":"tool","contents":[{"type":"text","content":"a"}]}', "contents.0.type"),
    ('{"role":"tool","contents":[{"type":"tool_result","metadata":[]}]}', "contents.0.metadata"),
    (answer('"usage":1'), "usage"),
    (answer('"usage":{"input_tokens":-1}'), "usage.input_tokens"),
    (answer('"usage":{"input_tokens":1.5}'), "usage.input_tokens"),
    (answer('"usage":{"output_tokens":9223372036854775808}'), "usage.output_tokens"),
    (answer('"usage":{"cost":{"total":"1"}}'), "usage.cost.total"),
    (answer('"usage":{"cost":{"total":1e308}}'), "usage.cost.total"),
    (answer('"stop_reason":1'), "stop_reason"),
    (answer('"error":{}'), "error"),
    ('{"role":"custom","custom_type":1}', "custom_type"),
    ('{"role":"custom","contents":[{"type":"text","content":1}]}', "contents.0.content"),
    ('{"role":"custom","display":"no"}', "display"),
    ('{"role":"branch_summary","summary":1}', "summary"),
    ('{"role":"compaction_summary","tokens_before":"many"}', "tokens_before"),
    ('{"role":"user","more":NaN}', "more"),
    ('{"role":"user","more":-Infinity}', "more"),
    ('{"role":"user","id":"a","id":"b"}', "id"),
    ('{"role":"user","id":"\\udc00"}', "id"),
    (user(f'{{"type":"new","x":{DEEP}}}'), "contents"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path"), MALFORMED)
def test_a_malformed_message_is_refused_with_the_path_to_its_fault(text: str, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        CODING_AGENT.read(parse_json(text))
    assert caught.value.path == path


@pytest.mark.parametrize("role", ["", "developer", "toolResult", "extension", "context"])
def test_a_role_of_none_of_its_messages_is_refused(role: str) -> None:
    with pytest.raises(UnknownRole):
        CODING_AGENT.read(message(role))


_odd = objects(
    {"role": st.sampled_from(["user", "tool", "assistant", "custom", "compaction_summary"])},
    {
        "contents": json_values
        | st.lists(
            objects(
                {"type": st.sampled_from(["text", "image", "tool_result"])},
                {"images": json_values, "content": json_values},
            ),
            max_size=2,
        ),
        **dict.fromkeys(("id", "timestamp", "usage", "stop_reason", "summary", "custom_type"), json_values),
    },
)


@examples(300)
@given(json_values | _odd)
def test_no_json_at_all_raises_anything_but_a_typed_error(value: JsonValue) -> None:
    try:
        found = CODING_AGENT.read(value)
    except MessageError:
        return
    assert logged(found) == tuple(found)
    require_read_back(CODING_AGENT, value)


def _contents(value: Object) -> list[JsonValue]:
    contents = value["contents"]
    assert isinstance(contents, list)
    return contents


def _metadata(found: Publishable) -> Object:
    assert isinstance(found, LlmMessage)
    return found.metadata or {}


def _blocks_of_turn(body: Object, index: int) -> list[JsonValue]:
    turns = body["messages"]
    assert isinstance(turns, list)
    turn = turns[index]
    assert isinstance(turn, dict)
    assert isinstance(turn["content"], list)
    return turn["content"]
