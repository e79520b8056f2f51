"""The graph framework's live stream: messages, previews, and events without content."""

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Delta, ExtensionMessage
from lanebus.codecs import GRAPH_V2
from lanebus.handlers.formats.graph.stream import read_chunk

__all__ = ()

SAID: dict[str, JsonValue] = {"message_id": "m", "role": "assistant", "content": [{"type": "text", "text": "secret"}]}


def test_a_whole_message_is_a_message() -> None:
    assert read_chunk({"event": "message", "message": SAID, "thread_id": "t"}, GRAPH_V2) == GRAPH_V2.read(SAID)


def test_a_piece_of_a_message_is_a_preview() -> None:
    (delta,) = read_chunk({"event": "message", "message": {**SAID, "delta": True}}, GRAPH_V2)
    assert delta == Delta(kind="text", message_id="m", delta="secret", block=1)


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
    assert isinstance(event, ExtensionMessage)
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
