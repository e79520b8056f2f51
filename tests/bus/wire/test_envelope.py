"""The text form and the order of cursors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import START, Cursor
from lanebus.errors import InvalidCursor

numbers = st.integers(0, 10**18 - 1)


@given(numbers, numbers)
def test_a_cursor_survives_a_round_trip(position: int, delta: int) -> None:
    assert Cursor.parse(str(Cursor(position, delta))) == Cursor(position, delta)
    assert Cursor.parse(str(position)) == Cursor(position)


def test_cursors_compare_as_numbers() -> None:
    assert START < Cursor(9) < Cursor(9, 1) < Cursor(9, 10) < Cursor(10)


@pytest.mark.parametrize(
    "text", ["", "-", "1-", "-1", "1-2-3", "+1", " 1", "1\n", "a", "1.0", "٣", "1" * 19, "1-" + "1" * 19]
)
def test_a_text_that_is_not_a_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor) as caught:
        Cursor.parse(text)
    assert caught.value.text == text
