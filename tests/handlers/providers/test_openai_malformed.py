"""A spoilt answer of OpenAI's APIs makes a message or raises a typed error."""

import copy
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.providers import Json
from lanebus.providers import Answer, OpenAIChatAnswer, OpenAIResponsesAnswer, from_openai_chat, from_openai_responses
from tests.handlers.providers import test_openai_chat_answer as chat
from tests.handlers.providers import test_openai_responses_answer as responses
from tests.support.suite.scale import examples

Place = tuple[str | int, ...]

_junk: st.SearchStrategy[JsonValue] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        float("nan"),
        10**30,
        "",
        "x",
        "\ud800",
        [],
        [1],
        [None],
        {},
        {"type": "x"},
        {"index": 0},
        [{"type": {}}],
    ]
)


def _places(value: JsonValue, place: Place = ()) -> Iterator[Place]:
    yield place
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _places(item, (*place, name))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, (*place, index))


@st.composite
def spoilt(draw: st.DrawFn, value: JsonValue) -> JsonValue:
    """The value with junk in one or two of its places, or without them."""
    result = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 2))):
        *way, last = draw(st.sampled_from([place for place in _places(result) if place]))
        holder = result
        for step in way:
            holder = cast("dict[str | int, JsonValue]", holder)[step]
        if isinstance(holder, dict) and draw(st.booleans()):
            del holder[str(last)]
        else:
            cast("dict[str | int, JsonValue]", holder)[last] = copy.deepcopy(draw(_junk))
        if not isinstance(result, dict | list) or not result:
            break
    return result


@examples(400)
@given(spoilt(chat.WHOLE))
def test_a_spoilt_chat_response_is_a_message_or_refused(value: JsonValue) -> None:
    with suppress(DecodeError):
        from_openai_chat(cast("Json", value)).to_json()


@examples(400)
@given(spoilt(responses.WHOLE))
def test_a_spoilt_response_is_a_message_or_refused(value: JsonValue) -> None:
    with suppress(DecodeError):
        from_openai_responses(cast("Json", value)).to_json()


@examples(400)
@given(spoilt(cast("JsonValue", chat.STREAM)), st.randoms(use_true_random=False))
def test_a_spoilt_chat_stream_is_a_message_or_refused(events: JsonValue, order: random.Random) -> None:
    _require_answer(OpenAIChatAnswer(), events, order)


@examples(400)
@given(spoilt(cast("JsonValue", responses.STREAM)), st.randoms(use_true_random=False))
def test_a_spoilt_stream_is_a_message_or_refused(events: JsonValue, order: random.Random) -> None:
    _require_answer(OpenAIResponsesAnswer(), events, order)


def _require_answer(answer: Answer, events: JsonValue, order: random.Random) -> None:
    told = [event for event in cast("list[JsonValue]", events) if isinstance(event, dict)]
    if order.random() < 0.3:
        order.shuffle(told)
    with suppress(DecodeError):
        for event in told:
            answer.take(event)
    answer.message().to_json()
    answer.message("cut").to_json()
