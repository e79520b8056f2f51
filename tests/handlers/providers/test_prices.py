"""Costs by the providers' price lists."""

from decimal import Decimal
from importlib.metadata import version

import pytest

from lanebus.bus.messages import Usage
from lanebus.handlers.providers import list_price
from lanebus.handlers.providers.registry import PricesMissing

USAGE = Usage(input=1000, output=100, cache_read=200)


def test_a_known_model_has_a_price_and_its_source() -> None:
    cost = list_price(USAGE, provider="anthropic", model="claude-sonnet-4-5", timestamp=1_760_000_000_000)
    assert cost is not None
    assert cost.source == f"genai-prices/{version('genai-prices')}"
    assert cost.total == cost.input + cost.output
    assert cost.input < Decimal(1200) / 1_000_000 * 3  # what was cached is cheaper


def test_an_unknown_model_has_an_unknown_cost() -> None:
    assert list_price(USAGE, provider="anthropic", model="no-such-model") is None


def test_gemini_is_found_under_the_lists_name_for_it() -> None:
    assert list_price(USAGE, provider="gemini", model="gemini-2.5-pro") is not None


def test_without_the_lists_the_error_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "genai_prices", None)
    with pytest.raises(PricesMissing, match=r"lanebus\[cost\]"):
        list_price(USAGE, provider="anthropic", model="claude-sonnet-4-5")
