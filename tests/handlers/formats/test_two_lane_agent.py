"""Seed 001's messages: what the codec accepts, refuses and cannot represent."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    ExtensionMessage,
    ImageBlock,
    MediaRef,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.errors import DecodeError, UnknownRole
from lanebus.bus.messages import AnnotationRef, AudioBlock, RedactedThinkingBlock, ThinkingBlock, UnknownBlock
from lanebus.codecs import TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL, Codec, Unsayable
from lanebus.handlers.formats.two_lane_agent.codec import ANSWER_TOOL
from lanebus.messages import Compaction, DeveloperMessage, Publishable, TurnId, extract_json
from tests.support.messages.made import inline, made, messages, tags, turns, u64, values, words
from tests.support.suite.scale import examples

Json = dict[str, JsonValue]


TURN: Json = {"loopId": "s.main.1", "turnIndex": 0}


def user(*blocks: JsonValue, **fields: JsonValue) -> Json:
    content: list[JsonValue] = [*blocks]
    return {"role": "user", "content": content, "timestamp": 1, **fields}


def answer(**fields: JsonValue) -> Json:
    usage: Json = {"input": 1, "output": 2}
    said: Json = {"stopReason": "stop", "model": "m", "provider": "p", "usage": usage}
    return {"role": "assistant", "content": [], "timestamp": 1, **said, **fields}


def result(**fields: JsonValue) -> Json:
    said: Json = {"toolCallId": "c", "toolName": "n", "isError": False}
    return {"role": "toolResult", "content": [], "timestamp": 1, **said, **fields}


def without(value: Json, key: str) -> Json:
    return {name: item for name, item in value.items() if name != key}


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


def read(value: JsonValue) -> Publishable:
    (message,) = TWO_LANE_AGENT.read(value)
    return message


# --- what is refused ----------------------------------------------------------------------------------------------


MALFORMED: tuple[tuple[JsonValue, str], ...] = (
    ([], ""),
    ("user", ""),
    (None, ""),
    ({}, "role"),
    ({"role": 7}, "role"),
    ({"role": "user", "kind": "k", "data": 1}, "content"),
    (without(user(), "timestamp"), "timestamp"),
    (user(timestamp="1"), "timestamp"),
    (user(timestamp=1.0), "timestamp"),
    (user(timestamp=True), "timestamp"),
    (user(timestamp=None), "timestamp"),
    (user(timestamp=-1), "timestamp"),
    (user(timestamp=2**64), "timestamp"),
    (without(user(), "content"), "content"),
    (user(content="hi"), "content"),
    (user(content={}), "content"),
    (user("hi"), "content.0"),
    (user({}), "content.0.type"),
    (user({"type": "text", "content": "x"}), "content.0.text"),
    (user({"type": "text", "text": 7}), "content.0.text"),
    (user({"type": "video", "data": "QQ=="}), "content.0.type"),
    (user({"type": "redacted_thinking", "data": "x"}), "content.0.type"),
    (user({"type": "image", "data": "QQ==", "mime_type": "image/png"}), "content.0.mimeType"),
    (user({"type": "image", "url": "file:///etc/passwd", "mimeType": "image/png"}), "content.0.data"),
    (user({"type": "image", "media": {"kind": "url", "url": "javascript:alert(1)"}}), "content.0.data"),
    (user({"type": "image", "data": ["QQ=="], "mimeType": "image/png"}), "content.0.data"),
    (user({"type": "thinking", "text": "x"}), "content.0.thinking"),
    (user({"type": "thinking", "thinking": "x", "signature": 7}), "content.0.signature"),
    (user({"type": "toolCall", "id": "c", "name": "n"}), "content.0.arguments"),
    (user({"type": "toolCall", "id": "c", "name": "n", "args": {}}), "content.0.arguments"),
    (user({"type": "toolCall", "id": 1, "name": "n", "arguments": {}}), "content.0.id"),
    (without(answer(), "model"), "model"),
    (without(answer(), "usage"), "usage"),
    (answer(provider=None), "provider"),
    (answer(stopReason="tired"), "stopReason"),
    (answer(stopReason="tool_use"), "stopReason"),
    (answer(usage=[]), "usage"),
    (answer(usage={"input": 1}), "usage.output"),
    (answer(usage={"input": -1, "output": 0}), "usage.input"),
    (answer(usage={"input": 1, "output": 0, "cache_read": 2**64}), "usage.cache_read"),
    (answer(usage={"input": 1, "output": 0, "reasoning": None}), "usage.reasoning"),
    (answer(error_message=7), "error_message"),
    (without(result(), "toolName"), "toolName"),
    (result(isError="no"), "isError"),
    ({"role": "extension", "kind": "k"}, "data"),
    ({"role": "extension", "kind": 7, "data": 1}, "kind"),
    ({"role": "extension", "content": [], "timestamp": 1}, "kind"),
    ({"role": "extension", "kind": "k", "data": float("nan")}, "data"),
    ({"role": "extension", "kind": "k", "data": ["\ud800"]}, "data.0"),
    ({"role": "extension", "kind": "k", "data": nested(200)}, "data"),
    (user({"type": "toolCall", "id": "c", "name": "n", "arguments": nested(200)}), "content"),
    (user({"type": "text", "text": "\udfff"}), "content.0.text"),
)


@pytest.mark.parametrize(("value", "path"), MALFORMED)
def test_what_001_refuses_is_refused_with_the_path_to_its_fault(value: JsonValue, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        TWO_LANE_AGENT.read(value)
    assert caught.value.path == path


@pytest.mark.parametrize("role", ["system", "developer", "tool", "tool_result", "context", "User", ""])
def test_a_role_that_001_does_not_have_is_refused(role: str) -> None:
    with pytest.raises(UnknownRole):
        TWO_LANE_AGENT.read({**user(), "role": role})


# --- what is accepted ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (user(zzz=1, content=[{"type": "text", "text": "x", "zzz": 1}]), user({"type": "text", "text": "x"})),
        (user(turnId=None, nodeId=None, tags=[]), user()),
        (user(turnId={**TURN, "zzz": 1}), user(turnId=TURN)),
        (user({"type": "thinking", "thinking": "x", "signature": None}), user({"type": "thinking", "thinking": "x"})),
        ({"role": "extension", "kind": "k", "data": 1, "turnId": TURN}, {"role": "extension", "kind": "k", "data": 1}),
    ],
)
def test_fields_that_001_does_not_know_are_ignored(value: JsonValue, kept: JsonValue) -> None:
    assert TWO_LANE_AGENT.write([read(value)], False).values == (kept,)


@pytest.mark.parametrize(
    "value",
    [
        user(turnId=TURN, nodeId=2**64 - 1, parentId=0, timestamp=2**64 - 1),
        user({"type": "image", "data": "QQ==", "mimeType": "image/png"}),
        user({"type": "toolCall", "id": "", "name": "", "arguments": None}),
        user(tags=[{"kind": "outcome", "text": "t", "created_at_turn": 3, "abandoned_node_ids": [1]}]),
        user(provenanceHint={"kind": "identity-block", "name": "agent", "order": 1}),
        result(isError=True, content=[{"type": "text", "text": "no"}]),
        {"role": "extension", "kind": "k", "data": None},
    ],
)
def test_messages_of_001_are_written_back_with_the_same_value(value: JsonValue) -> None:
    assert TWO_LANE_AGENT.write([read(value)], False).values == (value,)


@pytest.mark.parametrize(
    ("key", "value", "kept_as"),
    [
        ("turnId", {"loopId": 7, "turnIndex": 0}, "invalidTurnId"),
        ("turnId", {"loopId": "s.main.1", "turnIndex": 2**32}, "invalidTurnId"),
        ("turnId", "s.main.1#0", "invalidTurnId"),
        ("nodeId", "n5", "invalidNodeId"),
        ("tags", [{"kind": "idea"}], "invalidTags"),
        ("provenanceHint", 7, "invalidProvenanceHint"),
    ],
)
def test_malformed_fields_that_001_drops_are_kept_where_no_provider_sees_them(
    key: str, value: JsonValue, kept_as: str
) -> None:
    message = read(user(**{key: value}))
    assert isinstance(message, UserMessage)
    assert (message.turn_id, message.node_id, message.tags) == (None, None, None)
    assert message.metadata == {kept_as: value}
    assert TWO_LANE_AGENT.write([message], False).values == (user(**{key: value}),)


def test_image_data_that_is_not_base64_stays_readable_and_is_not_sent() -> None:
    image: Json = {"type": "image", "data": "***", "mimeType": "image/png"}
    message = read(user(image))
    assert isinstance(message, UserMessage)
    assert message.content == (UnknownBlock(raw=image),)
    assert TWO_LANE_AGENT.write([message], False).values == (user(image),)


def test_the_upstream_s_spelling_is_read_and_written() -> None:
    camel = answer(
        errorMessage="boom",
        usage={"input": 1, "output": 2, "reasoning": 0, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10},
    )
    (message,) = TWO_LANE_AGENT_CAMEL.read(camel)
    assert isinstance(message, AssistantMessage)
    assert (message.error_message, message.usage and message.usage.cache_read) == ("boom", 3)
    assert TWO_LANE_AGENT_CAMEL.write([message], False).values == (camel,)
    assert TWO_LANE_AGENT_CAMEL.read(TWO_LANE_AGENT.write([message], False).values[0]) == (message,)
    for twice in (answer(errorMessage="a", error_message="a"), answer(usage={"cacheRead": 1, "cache_read": 1})):
        with pytest.raises(DecodeError, match="set twice"):
            TWO_LANE_AGENT_CAMEL.read(twice)


# --- what is lost -------------------------------------------------------------------------------------------------


INLINE = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n")


FALSE = INLINE.model_copy(update={"size_bytes": 7, "sha256": "0" * 64})


@pytest.mark.parametrize(
    ("message", "losses"),
    [
        (SystemMessage.text("x"), ["0: a system message"]),
        (DeveloperMessage.text("x"), ["0: a developer message"]),
        (Compaction(summary="x"), ["0: a context entry"]),
        (UserMessage(name="ann", id="m1", timestamp=1, metadata={"a": 1}), ["0.id", "0.name", "0.metadata.a"]),
        (UserMessage(), ["0.timestamp: is missing"]),
        (UserMessage(timestamp=-1), ["0.timestamp: its value"]),
        (UserMessage.of("x", AudioBlock(media=INLINE)), ["0.content.1: a block audio"]),
        (UserMessage.of(ImageBlock(media=MediaRef.from_url("https://x/y"))), ["0.content.0: a block image"]),
        (UserMessage.of(ImageBlock(media=INLINE, alt_text="a")), ["0.content.0.altText"]),
        (UserMessage.of(RedactedThinkingBlock(data="x")), ["0.content.0: a block redacted_thinking"]),
        (UserMessage.of(UnknownBlock(raw={"type": "hologram"})), ["0.content.0: a block unknown"]),
        (UserMessage.of(ThinkingBlock(text="x", details=("y",))), ["0.content.0.details"]),
        (UserMessage.of(TextBlock(text="x", annotations=(AnnotationRef(),))), ["0.content.0.annotations"]),
        (UserMessage.of(ToolCallBlock(id="c", name="n", tool_kind="k")), ["0.content.0.toolKind"]),
        (
            AssistantMessage(timestamp=1),
            ["0.model: is unknown", "0.provider: is unknown", "0.usage: is unknown"],
        ),
        (AssistantMessage(timestamp=1, model="m", provider="p", usage=Usage(image_tokens=1)), ["0.usage.image_tokens"]),
        (ToolResultMessage(timestamp=1, tool_call_id="c"), ["0.toolName: is unknown"]),
        (
            ToolResultMessage(timestamp=1, tool_call_id="c", tool_name="n", structured=[1], batch_id="b"),
            ["0.structured", "0.batchId"],
        ),
        (ToolResultMessage(timestamp=1, tool_call_id="c", tool_name="n", structured={}), ["0.structured"]),
        (UserMessage(timestamp=1, raw={}), ["0.raw"]),
        (
            AssistantMessage(timestamp=1, model="m", provider="p", usage=Usage(input=-1, output=2**64)),
            ["0.usage.input: its value", "0.usage.output: its value"],
        ),
        (UserMessage(timestamp=1, metadata={"invalidTurnId": TURN}), ["0.metadata.invalidTurnId"]),
        (UserMessage(timestamp=1, metadata={"invalidNodeId": None}), ["0.metadata.invalidNodeId"]),
        (
            UserMessage(timestamp=1, content=(ImageBlock(media=FALSE),)),
            ["0.content.0.media.sizeBytes", "0.content.0.media.sha256"],
        ),
        (
            UserMessage(timestamp=1, turn_id=TurnId(loop_id="l", turn_index=2**32)),
            ["0.turnId: its value, which 001 ignores"],
        ),
    ],
)
def test_what_001_cannot_represent_is_a_loss_with_its_path(message: Publishable, losses: list[str]) -> None:
    with pytest.raises(Unsayable) as caught:
        TWO_LANE_AGENT.write([message], False)
    assert sorted(caught.value.losses) == sorted(losses)
    written = TWO_LANE_AGENT.write([message], True)
    assert written.losses == caught.value.losses
    for value in written.values:
        TWO_LANE_AGENT.read(json.loads(json.dumps(value)))


def test_a_result_gets_its_tool_s_name_from_the_call() -> None:
    call = AssistantMessage(
        content=(ToolCallBlock(id="c", name="grep"),), timestamp=1, model="m", provider="p", usage=Usage()
    )
    said: list[Publishable] = [call, ToolResultMessage(tool_call_id="c", timestamp=2)]
    written = TWO_LANE_AGENT.write(said, False)
    assert written.values[1] == result(toolName="grep", timestamp=2)


def test_a_loss_in_one_message_does_not_affect_the_next() -> None:
    said: list[Publishable] = [SystemMessage.text("be brief"), ExtensionMessage.of("k", 1)]
    written = TWO_LANE_AGENT.write(said, True)
    assert written.values == ({"role": "extension", "kind": "k", "data": 1},)
    assert written.losses == ("0: a system message",)


def test_the_answer_is_the_first_answering_call_or_else_the_whole_text() -> None:
    calls = [ToolCallBlock(id=name, name=name, arguments={"by": name}) for name in ("other", ANSWER_TOOL)]
    assert extract_json(AssistantMessage.of('{"by":"text"}', *calls)) == {"by": ANSWER_TOOL}
    blocks = TextBlock(text='{"a":'), ToolCallBlock(id="c", name="other"), TextBlock(text="[1]}")
    assert extract_json(AssistantMessage.of(*blocks)) == {"a": [1]}


@pytest.mark.parametrize(("text", "path"), [("", "content"), ("so: {}", "content"), ('{"a":NaN}', "content.a")])
def test_text_that_is_not_json_is_an_error(text: str, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        extract_json(AssistantMessage.of(text))
    assert caught.value.path == path


contents = st.lists(
    st.one_of(
        made(TextBlock, text=words),
        made(ImageBlock, media=inline),
        made(ThinkingBlock, text=words, signature=st.none() | words),
        made(ToolCallBlock, id=words, name=words, arguments=values),
    ),
    max_size=4,
).map(tuple)


common: dict[str, st.SearchStrategy[object]] = {
    "content": contents,
    "timestamp": u64,
    "turn_id": st.none() | turns,
    "metadata": st.sampled_from([None, {"invalidNodeId": "n1"}]),
    "parent_id": st.none() | u64,
    "tags": st.none() | st.lists(tags, min_size=1, max_size=2).map(tuple),
    "provenance_hint": st.sampled_from([None, {"kind": "memory-tier", "tier": "episodic", "record_id": "7"}]),
}


counts = ("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens")


theirs: st.SearchStrategy[Publishable] = st.one_of(
    made(UserMessage, **common),
    made(
        AssistantMessage,
        **common,
        stop_reason=st.sampled_from(["stop", "toolUse", "handoff", "contextCompacted"]),
        model=words,
        provider=words,
        usage=made(Usage, **dict.fromkeys(counts, u64)),
        error_message=st.none() | words,
    ),
    made(ToolResultMessage, **common, tool_call_id=words, tool_name=words, is_error=st.booleans()),
    made(ExtensionMessage, kind=words, data=values),
)


@examples(200)
@given(theirs, st.sampled_from([TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL]))
def test_what_001_can_represent_is_read_back_unchanged(message: Publishable, codec: Codec) -> None:
    (value,) = codec.write([message], False).values
    parsed = json.loads(json.dumps(value))
    assert codec.read(parsed) == (message,)
    assert codec.write(codec.read(parsed), False).values == (value,)


@pytest.mark.full
@examples(200)
@given(st.lists(messages, max_size=3))
def test_what_is_written_is_read_back_and_losses_are_reported(said: list[Publishable]) -> None:
    written = TWO_LANE_AGENT.write(said, True)
    again = [message for value in written.values for message in TWO_LANE_AGENT.read(json.loads(json.dumps(value)))]
    if written.losses:
        with pytest.raises(Unsayable) as caught:
            TWO_LANE_AGENT.write(said, False)
        assert caught.value.losses == written.losses
        assert {int(re.split(r"[.:]", loss)[0]) for loss in written.losses} <= set(range(len(said)))
    else:
        assert len(again) == len(said)
        assert TWO_LANE_AGENT.write(again, False).values == written.values
