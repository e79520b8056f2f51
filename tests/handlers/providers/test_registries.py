"""Codecs and providers are found by name and imported on first use; costs come from the providers' price lists."""

import json
from decimal import Decimal
from functools import partial
from importlib.metadata import version

import pytest

from lanebus import AssistantMessage, UserMessage
from lanebus.bus.messages import Usage
from lanebus.errors import SetupError
from lanebus.handlers.formats import CODECS, NATIVE, Codec
from lanebus.handlers.formats.codec import ALIASES
from lanebus.handlers.projections import Lazy
from lanebus.handlers.providers import PROVIDERS, list_price
from tests.support.log.entries import context_of

RESPONSES: dict[str, str] = {
    "anthropic": '{"type":"message","id":"1","model":"m","content":[{"type":"text","text":"hi"}],"usage":{},'
    '"stop_reason":"end_turn"}',
    "openai-chat": '{"object":"chat.completion","id":"1","model":"m","choices":[{"index":0,"finish_reason":"stop",'
    '"message":{"role":"assistant","content":"hi"}}]}',
    "openai-responses": '{"object":"response","id":"1","model":"m","status":"completed","output":[{"type":"message",'
    '"id":"2","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hi","annotations":[]}]}]}',
    "gemini": '{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP"}]}',
}


@pytest.mark.parametrize("name", CODECS)
def test_each_codec_is_the_one_of_its_name(name: str) -> None:
    codec = CODECS[name]
    assert codec.name in {name, *(number for number, alias in ALIASES.items() if alias == name)}
    written = codec.write([UserMessage.text("hi")], True)
    (read,) = codec.read(written.values[0])
    assert isinstance(read, UserMessage)
    assert read.text_content() == "hi"


@pytest.mark.parametrize("name", PROVIDERS)
def test_each_provider_goes_both_ways(name: str) -> None:
    provider = PROVIDERS[name]
    request = provider.to_request(context_of(UserMessage.text("hello")), model="m")
    assert "hello" in json.dumps(request.body)
    response = provider.from_response(json.loads(RESPONSES[name]), model="m")
    assert isinstance(response, AssistantMessage)
    assert (response.text_content(), response.model) == ("hi", "m")
    answer = provider.answer("m")
    assert not answer.is_complete


def test_a_registry_loads_an_entry_once_and_only_when_it_is_used() -> None:
    made: list[str] = []

    def make(name: str) -> int:
        made.append(name)
        return len(made)

    table = Lazy({name: partial(make, name) for name in "ab"})
    assert (list(table), len(table), "a" in table, "c" in table) == (["a", "b"], 2, True, False)
    assert made == []
    assert [table["b"], table["b"]] == [1, 1]
    assert made == ["b"]
    with pytest.raises(KeyError):
        table["c"]


def test_our_own_json_is_a_codec_too() -> None:
    message = UserMessage.text("hi")
    assert isinstance(NATIVE, Codec)
    assert NATIVE.read(NATIVE.write([message], False).values[0]) == (message,)


# --- prices -------------------------------------------------------------------------------------------------------

USAGE = Usage(input=1000, output=100, cache_read=200)


def test_a_known_model_has_a_price_and_its_source_and_an_unknown_one_none() -> None:
    cost = list_price(USAGE, provider="anthropic", model="claude-sonnet-4-5", timestamp=1_760_000_000_000)
    assert cost is not None
    assert cost.source == f"genai-prices/{version('genai-prices')}"
    assert cost.total == cost.input + cost.output
    assert cost.input < Decimal(1200) / 1_000_000 * 3  # what was cached is cheaper
    assert list_price(USAGE, provider="anthropic", model="no-such-model") is None
    assert list_price(USAGE, provider="gemini", model="gemini-2.5-pro") is not None  # under the lists' name for it


def test_without_the_lists_the_error_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "genai_prices", None)
    with pytest.raises(SetupError, match=r"lanebus\[cost\]"):
        list_price(USAGE, provider="anthropic", model="claude-sonnet-4-5")
