"""Numbers in foreign text."""

import pytest

from lanebus.bus.text import number_in
from lanebus.errors import DecodeError
from lanebus.messages import TurnId

__all__ = ()


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_a_text_of_digits_is_a_number(text: str, number: int) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize("text", ["", " 1", "1\n", "-1", "+1", "1_0", "1.0", "\u0663", "\u00b2", "9" * 19, "9" * 5_000])
def test_any_other_text_is_none(text: str) -> None:
    assert number_in(text) is None
    with pytest.raises(DecodeError):
        TurnId.from_text(f"s.main.1#{text}")
