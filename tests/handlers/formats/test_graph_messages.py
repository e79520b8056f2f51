"""Constructors, message lists and live streams of the graph framework."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError, InvalidContent, MessageError
from lanebus.codecs import GRAPH_V1, GRAPH_V2
from lanebus.handlers.formats import Codec
from lanebus.handlers.formats.graph import (
    add_messages,
    attach_media,
    image_message,
    multimodal_message,
    text_message,
    tool_message,
    without_tools,
)
from lanebus.handlers.formats.graph.reader import read_chunk, read_deltas

MEDIA = our.MediaRef(kind="url", url="https://example.com/a")


_ROLES: tuple[Literal["system", "developer", "user", "assistant"], ...] = ("system", "developer", "user", "assistant")


def test_a_text_message_has_any_role_but_that_of_a_result_and_an_id() -> None:
    for role in _ROLES:
        message = text_message("hello", role)
        assert (message.model_dump()["role"], message.content) == (role, (our.TextBlock(text="hello"),))
        assert message.timestamp is not None
    assert text_message("hello", id="mine").id == "mine"
    assert None not in {text_message("hello").id, text_message("hello").id}
    assert text_message("hello").id != text_message("hello").id
    with pytest.raises(InvalidContent, match="Unsupported role: tool"):
        text_message("hello", "tool")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_blocks_keep_their_order_and_attached_media_come_last_in_a_new_message() -> None:
    image = our.ImageBlock(media=MEDIA)
    mixed = multimodal_message(["before", image, our.TextBlock(text="behind")], "assistant")
    assert mixed.content == (our.TextBlock(text="before"), image, our.TextBlock(text="behind"))
    message = our.UserMessage.text("look")
    kinds = (our.ImageBlock, our.AudioBlock, our.VideoBlock, our.DocumentBlock)
    for as_type, kind in zip(("image", "audio", "video", "document"), kinds, strict=True):
        more = attach_media(message, MEDIA, as_type)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert more.content == (*message.content, kind(media=MEDIA))
    assert message.content == (our.TextBlock(text="look"),)
    with pytest.raises(InvalidContent, match="Unsupported media type: hologram") as caught:
        attach_media(message, MEDIA, "hologram")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert isinstance(caught.value, MessageError)
    assert isinstance(caught.value, ValueError)


def test_an_image_comes_from_a_url_or_from_base64_and_from_nowhere_else() -> None:
    by_url = image_message("https://example.com/a.png", text="look", mime_type="image/png")
    media = our.MediaRef(kind="url", url="https://example.com/a.png", mime_type="image/png")
    assert by_url.content == (our.TextBlock(text="look"), our.ImageBlock(media=media))
    inline = our.ImageBlock(media=our.MediaRef(kind="data", data="AAAA"))
    assert image_message(image_base64="AAAA", role="assistant").content == (inline,)
    both, neither, bad = ("https://a.b", "AAAA"), (None, None), [(None, "!"), (None, "")]
    for url, base64 in (both, neither, ("/etc/passwd", None), ("file:///etc/passwd", None), *bad):
        with pytest.raises(InvalidContent):
            image_message(url, base64)


def test_each_result_of_a_batch_is_a_message_and_one_alone_is_no_batch() -> None:
    blocks = [our.ToolResultBlock(tool_call_id=call, structured={"of": call}, metadata={"own": call}) for call in "ab"]
    first, second = tool_message(blocks, id="t", metadata={"k": 1})
    assert (first.id, first.tool_call_id, first.structured, first.metadata) == (
        "t",
        "a",
        {"of": "a"},
        {"own": "a", "k": 1},
    )
    assert (second.id, second.tool_call_id, second.metadata) == ("t#2", "b", {"own": "b"})
    assert first.batch_id == second.batch_id == "t"
    (message,) = tool_message([our.ToolResultBlock(tool_call_id="a")])
    assert message.id
    assert message.batch_id is None
    assert message.metadata is None
    with pytest.raises(InvalidContent):
        tool_message([])


_messages = st.lists(st.builds(our.UserMessage, id=st.sampled_from([None, "a", "b", "c"])), max_size=6)


def user(id: str | None) -> our.UserMessage:
    return our.UserMessage(id=id)


CALLING = our.AssistantMessage(content=(our.ToolCallBlock(id="c", name="n"),))
RESULT = our.ToolResultMessage(tool_call_id="c")
ANSWER = our.AssistantMessage.text("done")
QUESTION = our.UserMessage.text("do it")


def test_a_message_is_added_once_by_its_id_and_live_deltas_never() -> None:
    left, right = user("a"), [user("b"), user("a"), user("b")]
    assert add_messages([left], right) == (left, user("b"))
    assert add_messages([user(None)], [user(None), user(None)]) == (user(None),) * 3
    assert add_messages([], [our.Delta(kind="text", message_id="a", delta="x"), user("a")]) == (user("a"),)


@given(left=_messages, right=_messages)
def test_adding_the_same_batch_twice_adds_what_has_an_id_once(
    left: list[our.LlmMessage], right: list[our.LlmMessage]
) -> None:
    once = add_messages(left, right)
    assert once[: len(left)] == tuple(left)
    assert add_messages(once, [message for message in right if message.id]) == once


def test_finished_calls_are_left_out_and_those_without_a_final_answer_stay() -> None:
    assert without_tools([QUESTION, CALLING, RESULT, CALLING, RESULT, ANSWER]) == (QUESTION, ANSWER)
    messages = (QUESTION, CALLING, RESULT)
    assert without_tools(messages) == messages
    interrupted = (QUESTION, CALLING, RESULT, QUESTION, ANSWER)
    assert without_tools(interrupted) == interrupted


def chunk(*content: JsonValue, **more: JsonValue) -> dict[str, JsonValue]:
    return {"message_id": "m", "role": "assistant", "content": [*content], "delta": True, **more}


def test_each_piece_names_the_message_and_the_block_that_it_extends() -> None:
    deltas = read_deltas(
        chunk(
            {"type": "text", "text": "Hel"},
            {"type": "reasoning", "summary": "hm"},
            {"type": "reasoning", "thinking": "so"},
            {"type": "tool_call", "id": "c", "name": "read", "args": {"path": "a"}},
            {"type": "tool_call", "id": "d", "name": "list"},
            {"type": "image", "media": {"url": "https://example.com/a"}},
        )
    )
    assert deltas == (
        our.Delta(kind="text", message_id="m", delta="Hel", block=1),
        our.Delta(kind="thinking", message_id="m", delta="hm", block=0),
        our.Delta(kind="thinking", message_id="m", delta="so", block=0),
        our.Delta(kind="toolCall", message_id="m", delta='{"path": "a"}', block=2, tool_name="read"),
        our.Delta(kind="toolCall", message_id="m", delta="", block=3, tool_name="list"),
    )


def test_a_number_is_an_id_too_text_is_content_and_reasoning_beside_it_is_thinking_once() -> None:
    beside = read_deltas(chunk({"type": "text", "text": "a"}, reasoning="hm"))
    assert [delta.kind for delta in beside] == ["thinking", "text"]
    twice = read_deltas(chunk({"type": "reasoning", "summary": "hm"}, reasoning="hm"))
    assert [delta.delta for delta in twice] == ["hm"]
    (delta,) = read_deltas({"message_id": 7, "role": "assistant", "content": "x", "delta": True})
    assert (delta.message_id, delta.delta) == ("7", "x")
    assert read_deltas({"message_id": 7, "role": "assistant", "content": None, "delta": True}) == ()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("x", ""),
        (chunk(delta=False), "delta"),
        ({"role": "assistant", "content": [], "delta": True}, "message_id"),
        (chunk({"type": "text", "text": 1}), "content.0.text"),
        (chunk() | {"content": 1}, "content"),
        (chunk(metadata={"a": float("nan")}), "metadata.a"),
    ],
)
def test_a_malformed_delta_is_refused(value: JsonValue, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_deltas(value)
    assert caught.value.path == path


@pytest.mark.parametrize("codec", [GRAPH_V1, GRAPH_V2], ids=["002", "003"])
def test_no_codec_makes_a_message_of_a_delta(codec: Codec) -> None:
    with pytest.raises(DecodeError, match="read_deltas"):
        codec.read(chunk({"type": "text", "text": "a"}))


SAID: dict[str, JsonValue] = {"message_id": "m", "role": "assistant", "content": [{"type": "text", "text": "secret"}]}


def test_a_whole_message_of_a_stream_is_a_message_and_a_piece_is_a_preview() -> None:
    assert read_chunk({"event": "message", "message": SAID, "thread_id": "t"}, GRAPH_V2) == GRAPH_V2.read(SAID)
    (delta,) = read_chunk({"event": "message", "message": {**SAID, "delta": True}}, GRAPH_V2)
    assert delta == our.Delta(kind="text", message_id="m", delta="secret", block=1)


@pytest.mark.parametrize(
    "chunk",
    [
        {"event": "state", "state": {"context": [SAID]}, "thread_id": "t", "run_id": "r", "timestamp": 1.5},
        {
            "event": "node_execution",
            "event_type": "end",
            "node_name": "MAIN",
            "content": "secret",
            "data": {"a": "secret"},
        },
        {"event": "error", "data": {"reason": "secret"}, "metadata": {"a": "secret"}},
    ],
)
def test_an_event_names_what_happened_without_any_content(chunk: dict[str, JsonValue]) -> None:
    (event,) = read_chunk(chunk, GRAPH_V2)
    assert isinstance(event, our.ExtensionMessage)
    assert event.kind == f"graph.{chunk['event']}"
    assert "secret" not in event.to_json()
    assert isinstance(event.data, dict)
    assert event.data.items() <= chunk.items()
    assert event.data.keys() & {"thread_id", "node_name", "event"} == chunk.keys() & {"thread_id", "node_name", "event"}


@pytest.mark.parametrize(
    ("chunk", "path"),
    [
        ([], ""),
        ({}, "event"),
        ({"event": 1}, "event"),
        ({"event": "message"}, "message"),
        ({"event": "message", "message": {**SAID, "role": "x"}}, "message.role"),
        ({"event": "message", "message": {**SAID, "delta": True, "content": 1}}, "message.content"),
        ({"event": "state", "timestamp": float("inf")}, "timestamp"),
    ],
)
def test_a_malformed_chunk_is_refused(chunk: JsonValue, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_chunk(chunk, GRAPH_V2)
    assert caught.value.path == path
