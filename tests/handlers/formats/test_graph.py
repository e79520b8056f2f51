"""Both codecs of the graph framework lose nothing without reporting it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.messages import ContextEntry, LlmMessage, Publishable, ToolResultMessage, read_message
from lanebus.bus.wire import Envelope
from lanebus.codecs import GRAPH_V1, GRAPH_V2, ORIGIN
from lanebus.handlers.formats import Codec, Unsayable
from tests.support.messages.graph_json import graph_messages
from tests.support.messages.lane_logs import lane_logs
from tests.support.suite.scale import examples

__all__ = ()

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
