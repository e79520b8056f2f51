"""What the answers of all providers promise alike: the same message whole and streamed, or a typed error."""

import copy
import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple, Protocol, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError, MessageError
from lanebus.providers import (
    Answer,
    AnthropicAnswer,
    GeminiAnswer,
    OpenAIChatAnswer,
    OpenAIResponsesAnswer,
    from_anthropic,
    from_gemini,
    from_openai_chat,
    from_openai_responses,
)
from tests.support.formats.kit import GONE, Faults, changed, places
from tests.support.formats.kit import spoilt as spoilt_in
from tests.support.providers.replay import folded, through_sdk, untimed
from tests.support.providers.samples import SAID, SAMPLES, Chat, Gemini, Responses, anthropic_block
from tests.support.suite.scale import examples

Json = dict[str, JsonValue]


class _From(Protocol):
    def __call__(
        self, response: Json, *, model: str | None = None, rates: our.Rates | None = None, names: dict[str, str] = ...
    ) -> our.AssistantMessage: ...


class Reader(NamedTuple):
    whole: _From
    answer: Callable[[str | None, our.Rates | None, dict[str, str]], Answer]


READERS = {
    "anthropic": Reader(from_anthropic, AnthropicAnswer),
    "gemini": Reader(from_gemini, GeminiAnswer),
    "openai_chat": Reader(from_openai_chat, OpenAIChatAnswer),
    "openai_responses": Reader(from_openai_responses, OpenAIResponsesAnswer),
}
RATES = our.Rates(input=Decimal(1), output=Decimal(10), cache_read=Decimal("0.1"), cache_write=Decimal(2))
every_reader = pytest.mark.parametrize("name", READERS)


def read(name: str, response: Json) -> our.AssistantMessage:
    return untimed(READERS[name].whole(response, model=SAMPLES[name].model, names=SAMPLES[name].names))


def fresh(name: str, rates: our.Rates | None = None) -> Answer:
    return READERS[name].answer(SAMPLES[name].model, rates, SAMPLES[name].names)


# --- whole and streamed -------------------------------------------------------------------------------------------

_PATH: Json = {"path": "a"}
_UNFINISHED = '{"a": 1'
_EXPECTED: dict[str, our.AssistantMessage] = {
    "anthropic": our.AssistantMessage(
        content=(
            our.ThinkingBlock(text="Let me see.", signature="c2ln"),
            our.RedactedThinkingBlock(data="xx"),
            our.UnknownBlock(raw=cast("list[Json]", SAMPLES["anthropic"].whole["content"])[2]),
            our.UnknownBlock(raw=cast("list[Json]", SAMPLES["anthropic"].whole["content"])[3]),
            our.TextBlock(text="It is so.", annotations=(our.AnnotationRef(url="https://example.com/a", title="A"),)),
            our.ToolCallBlock(id="toolu_1", name="read", arguments={"path": "a", "n": [1, 2.5, None]}),
        ),
        raw_stop_reason="tool_use",
        provider="anthropic",
        metadata={"responseModel": "claude-sonnet-5-5-20990101"},
        response_id="msg_1",
        usage=our.Usage(input=25, output=40, cache_read=100, cache_write=20, total_tokens=185),
    ),
    "gemini": our.AssistantMessage(
        content=(
            our.ThinkingBlock(text="Let me see."),
            our.TextBlock(text="It is"),
            our.TextBlock(text=" so.", signature=Gemini.signature),
            our.ToolCallBlock(id="g1", name="f", arguments={"path": "ü", "snake_case": None}),
            our.ImageBlock(media=Gemini.png),
        ),
        raw_stop_reason="STOP",
        provider="google",
        metadata={"responseModel": "gemini-3-pro-001"},
        response_id="r1",
        usage=our.Usage(input=67, output=25, reasoning=5, cache_read=40, total_tokens=132, image_tokens=30),
    ),
    "openai_chat": our.AssistantMessage(
        content=(
            our.TextBlock(text="Let me see."),
            our.ToolCallBlock(id="call_1", name="fs.read", arguments=_PATH),
            our.ToolCallBlock(id="call_2", name="add", arguments_raw=_UNFINISHED),
        ),
        raw_stop_reason="tool_calls",
        provider="openai",
        metadata={"responseModel": "gpt-5.2-2026-01-01"},
        response_id="chatcmpl-1",
        usage=our.Usage(
            input=30, output=30, reasoning=20, cache_read=60, cache_write=10, total_tokens=130, audio_tokens=3
        ),
    ),
    "openai_responses": our.AssistantMessage(
        content=(
            our.ThinkingBlock(
                text="First.\n\nThen.",
                details=("First.", "Then."),
                signature='{"id":"rs_1","encrypted_content":"gAAA"}',
            ),
            our.TextBlock(text="Let me see.", annotations=(our.AnnotationRef(url="https://example.com", title="E"),)),
            our.RedactedThinkingBlock(data='{"id":"rs_2","encrypted_content":"gBBB"}'),
            our.ToolCallBlock(id="call_1", name="fs.read", arguments=_PATH),
            our.ToolCallBlock(id="call_2", name="add", arguments_raw=_UNFINISHED),
        ),
        raw_stop_reason="completed",
        provider="openai",
        metadata={"responseModel": "gpt-5.2-2026-01-01"},
        response_id="resp_1",
        usage=our.Usage(input=30, output=30, reasoning=20, cache_read=60, cache_write=10, total_tokens=130),
    ),
}
_COSTS = {"anthropic": "0.000475", "gemini": "0.000321", "openai_chat": "0.000356", "openai_responses": "0.000356"}


@every_reader
def test_a_whole_response_is_a_message_and_its_usage_is_priced_at_the_callers_rates(name: str) -> None:
    sample, expected = SAMPLES[name], _EXPECTED[name]
    raw = sample.whole.get("usage", sample.whole.get("usageMetadata"))
    assert expected.usage is not None
    usage = expected.usage.model_copy(update={"raw": raw})
    more: dict[str, object] = {"model": sample.model, "stop_reason": "toolUse", "usage": usage}
    assert read(name, sample.whole) == expected.model_copy(update=more)
    priced = READERS[name].whole(sample.whole, rates=RATES)
    assert priced.usage is not None
    assert isinstance(priced.usage.cost, our.Cost)
    assert (priced.usage.cost.total, priced.usage.cost.source) == (Decimal(_COSTS[name]), "caller")
    model = str(cast("Json", expected.metadata)["responseModel"])
    assert (priced.model, priced.metadata) == (model, None)  # without a requested model


@every_reader
def test_a_stream_builds_the_same_message_as_the_whole_response_and_changes_no_event(name: str) -> None:
    answer, before = fresh(name, RATES), copy.deepcopy(SAMPLES[name].stream)
    told = folded(answer, SAMPLES[name].stream)
    assert SAMPLES[name].stream == before
    assert answer.is_complete
    message = answer.message()
    assert message.usage is not None
    assert message.usage.cost is not None
    unpriced = message.usage.model_copy(update={"cost": None})
    assert untimed(message).model_copy(update={"usage": unpriced}) == read(name, SAMPLES[name].whole)
    assert [event for event in told if isinstance(event, our.Usage)][-1] == message.usage


@pytest.mark.parametrize(
    ("name", "by_alias"), [*((name, True) for name in READERS), pytest.param("gemini", False, id="gemini-snake_case")]
)
async def test_a_stream_through_the_sdk_is_the_same_message(name: str, by_alias: bool) -> None:
    answer = fresh(name)
    folded(answer, await through_sdk(name, SAMPLES[name].stream, by_alias=by_alias))
    assert _plain(answer.message()) == _plain(read(name, SAMPLES[name].whole))


def _plain(message: our.AssistantMessage) -> object:
    """Its JSON, without what an SDK changes: the time, keys of the raw usage, the alphabet of Gemini's base64."""
    assert message.usage is not None
    usage = message.usage.model_copy(update={"raw": None})
    bare = message.model_copy(update={"timestamp": None, "usage": usage})
    plain: object = json.loads(bare.to_json().replace(Gemini.signature, "c2-_"))
    return plain


_CALLS_COMPLETE_AFTER = {"anthropic": [26], "gemini": [5], "openai_chat": [7, 9], "openai_responses": [29, 34]}


@every_reader
def test_a_stream_cut_anywhere_keeps_its_text_and_only_complete_calls(name: str) -> None:
    said, stream = "", SAMPLES[name].stream
    for end in range(len(stream)):
        answer = fresh(name)
        folded(answer, stream[:end])
        found = answer.message("cut")
        assert (found.stop_reason, found.error_message) == ("error", "cut")
        assert len([*found.tool_calls()]) == len([at for at in _CALLS_COMPLETE_AFTER[name] if at <= end]), end
        assert found.text_content().startswith(said)
        said = found.text_content()
    assert said == read(name, SAMPLES[name].whole).text_content()


_CHAT_CALL: Json = {"content": None, "tool_calls": [Chat.call("c", "add", "")]}


def _incomplete(reason: str) -> Json:
    return Responses.response(SAID, status="incomplete", incomplete_details={"reason": reason})


_GEMINI_STOPS: dict[str, our.StopReason] = {
    "STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "guardRail", "RECITATION": "guardRail", "OTHER": "stop",
    "PROHIBITED_CONTENT": "guardRail", "IMAGE_SAFETY": "guardRail", "MALFORMED_FUNCTION_CALL": "error", "NEW": "stop",
}  # fmt: skip
_CHAT_STOPS: dict[str, our.StopReason] = {
    "stop": "stop", "length": "length", "tool_calls": "toolUse", "function_call": "toolUse", "eos": "stop",
    "content_filter": "guardRail",
}  # fmt: skip
_REFUSAL = Responses.message("msg_1", {"type": "refusal", "refusal": "I will not."})
_STOPS: list[tuple[str, Json, our.StopReason, str | None]] = [
    *(("gemini", Gemini.response({"text": "a"}, finish=raw), ours, raw) for raw, ours in _GEMINI_STOPS.items()),
    ("gemini", Gemini.response(Gemini.call("f"), finish="STOP"), "toolUse", "STOP"),
    ("gemini", Gemini.response(Gemini.call("f"), finish="OTHER"), "toolUse", "OTHER"),
    ("gemini", Gemini.response(Gemini.call("f"), finish="MAX_TOKENS"), "length", "MAX_TOKENS"),
    *(("openai_chat", Chat.response({"content": "a"}, raw), ours, raw) for raw, ours in _CHAT_STOPS.items()),
    ("openai_chat", Chat.response(_CHAT_CALL, "stop"), "toolUse", "stop"),
    ("openai_chat", Chat.response({"content": None, "refusal": "I will not."}), "guardRail", "refusal"),
    ("openai_responses", Responses.response(SAID), "stop", "completed"),
    ("openai_responses", Responses.response(SAID, status="incomplete"), "length", "incomplete"),
    ("openai_responses", _incomplete("max_output_tokens"), "length", "max_output_tokens"),
    ("openai_responses", _incomplete("content_filter"), "guardRail", "content_filter"),
    ("openai_responses", Responses.response(SAID, status="cancelled"), "aborted", "cancelled"),
    ("openai_responses", Responses.response(_REFUSAL), "guardRail", "refusal"),
]


@pytest.mark.parametrize(("name", "response", "ours", "raw"), _STOPS)
def test_stop_reasons_are_ours_beside_the_providers_own_word(
    name: str, response: Json, ours: our.StopReason, raw: str
) -> None:
    message = read(name, response)
    assert (message.stop_reason, message.raw_stop_reason) == (ours, raw)
    assert message.error_message == (raw if ours == "error" else None)
    if raw == "refusal":
        assert message.text_content() == "I will not."
    if name == "openai_responses":
        answer = fresh(name)
        folded(answer, [Responses.ended(response)])
        assert (untimed(answer.message()), answer.is_complete) == (message, True)


# --- what is no answer --------------------------------------------------------------------------------------------


_PARTS, _SAID = "candidates.0.content.parts", "choices.0.message"
_GEMINI_PARTS: dict[str, list[JsonValue]] = {
    "functionCall": [{"functionCall": "f"}],
    "functionCall.name": [{"functionCall": {}}, {"functionCall": {"name": 1}}],
    "functionCall.args": [{"functionCall": {"name": "f", "args": [1]}}],
    "functionCall.id": [{"functionCall": {"name": "f", "id": 1}}],
    "functionCall.args.a": [Gemini.call("f", a=float("nan"))],
    "text": [{"text": "\ud800"}],
    "thoughtSignature": [{"text": "a", "thoughtSignature": 1}],
    "inlineData": [{"inlineData": "x"}, {"inlineData": {}}, {"inlineData": {"data": "@@"}}],
    "inlineData.data": [{"inlineData": {"data": 1}}],
    "fileData": [{"fileData": {"mimeType": "a/b"}}],
}
_FAULTS: dict[str, Faults] = {
    "anthropic": [
        (
            SAMPLES["anthropic"].whole,
            {
                "type": ["error", None], "content > type": ["text", {}], "usage": [None, [1]],
                "content.0": [1, {"type": 1}], "content.0.signature": [5], "content.1": [{}], "content.1.data": [GONE],
                "content.4.text": [5], "content.5.id": [GONE], "content.5.input": [[1]],
            },
        )
    ],
    "gemini": [
        (
            SAMPLES["gemini"].whole,
            {
                "candidates": [GONE, {}, "x"], "candidates.0": [1], "candidates.0.content": ["x"], _PARTS: [{}],
                f"{_PARTS}.0": ["x"], **{f"{_PARTS}.0 > {_PARTS}.0.{path}": bad for path, bad in _GEMINI_PARTS.items()},
                "candidates.0.finishReason": [1], "candidates.0.citationMetadata": [1],
                "candidates.0.citationMetadata > candidates.0.citationMetadata.citations": [{"citations": 1}],
                "candidates.0.groundingMetadata": [[]], "usageMetadata": [[]],
                "usageMetadata.promptTokensDetails": [1], "modelVersion": [1], "responseId": [["r"]],
            },
        ),
        (
            {"promptFeedback": {"blockReason": "OTHER"}},
            {
                " > candidates": [{"id": "x", "choices": []}],
                "promptFeedback": ["x"], "promptFeedback.blockReason": [1],
            },
        ),
    ],
    "openai_chat": [
        (
            SAMPLES["openai_chat"].whole,
            {
                "choices": [GONE, [], {}], "choices.0": [1], _SAID: [GONE], "choices.0.finish_reason": [GONE, 1],
                f"{_SAID}.content": [1, [{"type": "text"}]], f"{_SAID}.refusal": [{}], f"{_SAID}.tool_calls": [{}],
                f"{_SAID}.tool_calls.0": [1], f"{_SAID}.tool_calls.0.id": [GONE],
                f"{_SAID}.tool_calls.0.function": [1], f"{_SAID}.tool_calls.0.function.name": [GONE],
                f"{_SAID}.tool_calls.0.function > {_SAID}.tool_calls.0.function.name": [GONE],
                f"{_SAID}.tool_calls.0.function.arguments": [{}], f"{_SAID}.annotations": [{}],
                f"{_SAID}.audio > {_SAID}.audio.data": [{"data": "@@"}], "usage": [[]],
            },
        )
    ],
    "openai_responses": [
        (
            SAMPLES["openai_responses"].whole,
            {
                "output": [GONE, {}], "object > output": ["chat.completion"], "status": ["in_progress", 1],
                "output.0": [1], "output.0.type": [GONE], "output.0.id": [GONE], "output.0.summary.0": ["a"],
                "output.0.summary.0.text": [GONE], "output.0.encrypted_content": [1], "output.1.content": [{}],
                "output.1.content.0": [1], "output.1.content.0.type": [GONE], "output.1.content.0.text": [GONE],
                "output.1.content.0.annotations": [1],
                "output.1.content.0 > output.1.content.0.refusal": [{"type": "refusal", "refusal": 1}],
                "output.3.call_id": [GONE], "output.3.name": [GONE], "output.3.arguments": [{}], "usage": [[]],
            },
        )
    ],
}  # fmt: skip


@every_reader
def test_a_malformed_response_is_refused_with_the_path_to_its_fault(name: str) -> None:
    for spoilt, path in spoilt_in(_FAULTS[name]):
        value = cast("Json", spoilt)
        with pytest.raises(DecodeError) as refused:
            read(name, value)
        assert refused.value.path == path, value
        if name == "openai_responses" and path not in {"output", "output.0"} and "output" in value:
            with pytest.raises(DecodeError) as refused:
                fresh(name).take({"type": "response.completed", "response": value})
            assert refused.value.path == f"response.{path}"
    with pytest.raises(DecodeError, match=r"candidates.*: nested deeper than"):
        read("gemini", Gemini.response(Gemini.call("f", a=_DEEP)))


_DEEP: JsonValue = json.loads("[" * 300 + "]" * 300)
_UNSENDABLE: list[JsonValue] = ["\ud800", float("nan"), _DEEP]
_PIECE: Json = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"}
_ADDED: Json = {"type": "response.output_item.added", "output_index": 1}
_CALLS = "choices.0.delta.tool_calls.0"
_BAD_CALLS: list[Json] = [{"function": {"arguments": "{"}}, {"index": True}, {"index": -1}]
_ODD_EVENTS: list[Json] = [
    {}, {"type": 1}, {"type": "message_start"}, {"type": "message_start", "message": "x"}, {"type": "message_delta"},
    {"type": "content_block_start", "index": 0}, {"type": "content_block_stop"}, {"type": "message_delta", "delta": []},
    anthropic_block("start", content_block={"type": "text"}) | {"index": "0"},
    anthropic_block("start", content_block={"text": "a"}), anthropic_block("delta", delta="a"),
    anthropic_block("delta", 7, delta={"type": "text_delta", "text": "a"}),
]  # fmt: skip
_EVENTS: dict[str, tuple[list[Json], dict[str | None, list[Json]]]] = {
    "anthropic": (
        SAMPLES["anthropic"].stream[:1],
        {
            None: _ODD_EVENTS,
        },
    ),
    "gemini": (
        [],
        {
            None: [{"type": "ping"}],
            "usageMetadata.promptTokensDetails": [{"usageMetadata": {"promptTokensDetails": "x"}}],
        },
    ),
    "openai_chat": (
        [],
        {
            "choices": [{}, {"object": "chat.completion.chunk"}, {"choices": None}],
            "choices.0.delta.content": [Chat.chunk({"content": 1})],
            f"{_CALLS}.index": [Chat.chunk({"tool_calls": [call]}) for call in _BAD_CALLS],
            f"{_CALLS}.function.name": [Chat.grows(0, "{")],
            None: [Chat.chunk({"content": bad}) for bad in _UNSENDABLE],
        },
    ),
    "openai_responses": (
        [Responses.event("output_item.added", 0, item=Responses.message("msg_1"))],
        {
            "type": [{}, {"type": 1}],
            "response": [{"type": "response.created"}, {"type": "response.completed", "response": []}],
            "output_index": [
                {"type": "response.output_item.added", "item": SAID},
                {"type": "response.output_item.done", "output_index": True, "item": SAID},
                *({**_PIECE, "output_index": 7}, {**_PIECE, "output_index": {}}),
            ],
            "item": [_ADDED],
            "item.type": [{**_ADDED, "item": {}}],
            "item.name": [{**_ADDED, "item": {"type": "function_call"}}],
            "item.content.0.text": [
                Responses.event("output_item.done", 1, item=Responses.message("m", {"type": "output_text"}))
            ],
            "content_index": [{key: item for key, item in _PIECE.items() if key != "content_index"}],
            "delta": [{key: item for key, item in _PIECE.items() if key != "delta"}],
            "message": [{"type": "error", "message": 1}],
            None: [{"type": "response.new_thing", "data": bad} for bad in _UNSENDABLE],
        },
    ),
}


@every_reader
def test_a_malformed_event_is_refused_with_the_path_to_its_fault(name: str) -> None:
    before, faults = _EVENTS[name]
    for path, event in ((path, event) for path, events in faults.items() for event in events):
        answer = fresh(name)
        folded(answer, before)
        with pytest.raises(DecodeError) as refused:
            answer.take(event)
        assert path is None or refused.value.path == path
        assert answer.message("it broke").error_message == "it broke"


_IGNORED: list[tuple[str, Json]] = [
    ("anthropic", {"type": "something_new", "x": 1}),
    ("gemini", {"candidates": [{}], "modelVersion": "gemini-3-pro"}),
    ("openai_chat", {"object": "new.thing"}),
    ("openai_chat", {**Chat.chunk(), "choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]}),
    ("openai_responses", {"type": "response.new_thing", "output_index": 7}),
    ("openai_responses", {"type": "response.web_search_call.searching", "output_index": {}, "item_id": "x"}),
]


@pytest.mark.parametrize(("name", "event"), _IGNORED)
def test_an_event_of_another_kind_or_of_another_choice_is_ignored(name: str, event: Json) -> None:
    answer = fresh(name)
    assert answer.take(event) == []
    assert (answer.message().content, answer.is_complete) == ((), False)


# --- spoilt answers -----------------------------------------------------------------------------------------------

_odd: st.SearchStrategy[JsonValue] = st.sampled_from(
    [
        *(None, True, 0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "x", "\ud800"),
        *([], [1], [None], [[]], [{"type": {}}], {}, {"type": "x"}, {"index": 0}),
    ]
)


@every_reader
@examples(400)
@given(data=st.data())
def test_a_spoilt_response_is_a_message_or_a_typed_error(name: str, data: st.DataObject) -> None:
    spoilt = _spoilt(SAMPLES[name].whole, data)
    try:
        message = READERS[name].whole(spoilt)
    except MessageError:
        return
    assert our.read_message(message.to_json()) == message


@every_reader
@examples(400)
@given(data=st.data(), order=st.randoms(use_true_random=False))
def test_a_spoilt_stream_in_any_order_is_a_message_or_a_typed_error(
    name: str, data: st.DataObject, order: random.Random
) -> None:
    events = copy.deepcopy(SAMPLES[name].stream)
    at = data.draw(st.integers(0, len(events) - 1))
    events[at] = _spoilt(events[at], data)
    if order.random() < 0.3:
        order.shuffle(events)
    answer, fault = READERS[name].answer(None, None, {}), None
    for event in events:
        try:
            answer.take(event)
        except MessageError as error:
            fault = str(error)
            break
    for message in (answer.message(fault), answer.message("cut")):
        assert our.read_message(message.to_json()) == message


def _spoilt(value: Json, data: st.DataObject) -> Json:
    """The same with something else, or nothing, at one or two of its places."""
    result: JsonValue = value
    for _ in range(data.draw(st.integers(1, 2))):
        if found := [place for place, _ in places(result)]:
            place = data.draw(st.sampled_from(found))
            gone = not place.rpartition(".")[2].isdigit() and data.draw(st.booleans())
            result = changed(result, place, GONE if gone else data.draw(st.one_of(_odd, st.just(_DEEP))))
    return cast("Json", result)
