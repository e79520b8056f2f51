"""Live deltas of the graph framework become previews, never messages."""

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Delta
from lanebus.codecs import GRAPH_V1, GRAPH_V2
from lanebus.handlers.formats import Codec
from lanebus.handlers.formats.graph.stream import read_deltas

__all__ = ()


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
        Delta(kind="text", message_id="m", delta="Hel", block=1),
        Delta(kind="thinking", message_id="m", delta="hm", block=0),
        Delta(kind="thinking", message_id="m", delta="so", block=0),
        Delta(kind="toolCall", message_id="m", delta='{"path": "a"}', block=2, tool_name="read"),
        Delta(kind="toolCall", message_id="m", delta="", block=3, tool_name="list"),
    )


def test_reasoning_beside_the_content_is_thinking_if_no_block_has_it() -> None:
    beside = read_deltas(chunk({"type": "text", "text": "a"}, reasoning="hm"))
    assert [delta.kind for delta in beside] == ["thinking", "text"]
    twice = read_deltas(chunk({"type": "reasoning", "summary": "hm"}, reasoning="hm"))
    assert [delta.delta for delta in twice] == ["hm"]


def test_a_number_is_an_id_too_and_text_is_content() -> None:
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
