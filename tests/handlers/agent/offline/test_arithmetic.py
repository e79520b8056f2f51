"""Arithmetic without `eval`: correct within its bounds, and refused beyond them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus.handlers.agent.models.offline import ArithmeticFault, calculate_text

__all__ = ()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("17 × 23", "391"),
        ("12*(3+4)", "84"),
        ("100 ÷ 8", "12.5"),
        ("0.1 + 0.2", "0.3"),
        ("1/3", "0.333333333333333"),
        ("2^10", "1024"),
        ("2**-2", "0.25"),
        ("−7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("1.50", "1.5"),
        ("-0.0", "0"),
        ("2**900", "8.452712498170644e+270"),
    ],
)
def test_expressions_have_values(expression: str, value: str) -> None:
    assert calculate_text(expression) == value


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("1/0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("0**-1", "division by zero"),
        ("9**9**9", "the exponent is over 1000"),
        ("2**1000", "the value is too large"),
        ("1e999", "the value is too large"),
        ("(-8)**0.5", "the value is undefined or too large"),
        ("1 +", "not an arithmetic expression"),
        ("(" * 150 + "1" + ")" * 150, "longer than 200 characters"),
        ("(" * 99 + "1" + ")" * 99 + "+", "not an arithmetic expression"),
        ("a + 1", "only numbers"),
        ("__import__('os')", "only numbers"),
        ("True + 1", "not a number"),
        ("'a' * 9", "only numbers"),
        ("1 if 2 else 3", "only numbers"),
    ],
)
def test_a_text_that_is_no_arithmetic_or_out_of_bounds_is_refused(expression: str, fault: str) -> None:
    with pytest.raises(ArithmeticFault, match=fault):
        calculate_text(expression)


@given(st.integers(-(10**20), 10**20), st.integers(-(10**20), 10**20))
def test_whole_numbers_are_exact(left: int, right: int) -> None:
    assert calculate_text(f"({left}) * ({right}) + ({left}) - ({right})") == str(left * right + left - right)


@given(st.text(alphabet="0123456789.+-*/%^() ", max_size=60))
def test_any_text_has_a_value_or_raises_a_fault(text: str) -> None:
    with suppress(ArithmeticFault):
        assert calculate_text(text)
