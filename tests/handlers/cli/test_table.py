"""Text in lines and columns: pure."""

from decimal import Decimal

import pytest

from lanebus.handlers.cli.terminal.table import Column, line, table
from lanebus.handlers.cli.terminal.text import count, cut, duration, moment, money, plain, size, width

__all__ = ()


def test_text_of_others_is_one_line_that_no_terminal_obeys() -> None:
    assert plain("a\r\n\tb\x1b[31mred\x9b0m\u202eold\x00") == "a b[31mred0mold"


def test_a_very_long_text_is_not_looked_at_to_its_end() -> None:
    assert len(plain(10_000_000 * "x")) == 4000


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("🙂", 2), ("", 0), ("a\u200db", 2)]
)
def test_width_counts_columns_and_not_characters(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 4, "日…"),
        ("日本語", 5, "日本…"),
        ("ab", 1, "…"),
        ("ab", 0, ""),
    ],
)
def test_a_cut_text_is_never_wider_than_it_may_be(text: str, columns: int, shown: str) -> None:
    assert cut(text, columns) == shown
    assert width(shown) <= max(columns, 0)


def test_numbers_are_shown_as_people_read_them() -> None:
    assert count(54_693_675) == "54,693,675"
    assert [money(Decimal(text)) for text in ("42.595908", "0.0000004", "0.25", "1234.5")] == [
        "$42.60",
        "$0.000000",
        "$0.250000",
        "$1,234.50",
    ]
    assert money(None) == "unknown"
    assert [size(number) for number in (0, 999, 1500, 2_356_056, 3 * 10**12)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.4 MB",
        "3.0 TB",
    ]
    assert [duration(seconds) for seconds in (0.04, 59.9, 125)] == ["0.0 s", "59.9 s", "2 min 5 s"]
    assert moment(0) == "-"
    assert len(moment(1_795_201_208.148)) == len("2026-11-20 19:00:08")


COLUMNS = (Column("name", is_flexible=True), Column("n", is_number=True), Column("note", is_flexible=True))


def test_columns_are_aligned_by_what_they_take_on_the_screen() -> None:
    assert list(table(COLUMNS, [("日本", "1", "x"), ("abcde", "1,000", "y")], None)) == [
        "name       n  note",
        "日本       1  x",
        "abcde  1,000  y",
    ]


@pytest.mark.parametrize("fit", [1, 10, 20, 30, 40, 79])
def test_no_line_is_wider_than_the_terminal(fit: int) -> None:
    rows = [(30 * "日", "1,000", 100 * "x"), ("a", "2", "b")]
    assert all(width(text) <= fit for text in table(COLUMNS, rows, fit))


def test_what_is_too_wide_is_taken_from_the_widest_column_that_may_shrink() -> None:
    assert list(table(COLUMNS, [("short", "1,000", 100 * "x")], 30))[1] == f"short  1,000  {15 * 'x'}…"


def test_a_row_by_itself_has_its_columns_where_the_others_have_them() -> None:
    columns = (
        Column("position", is_number=True, columns=6),
        Column("who", columns=5),
        Column("what", is_flexible=True),
    )
    assert line(columns, ("12", "user", 50 * "x"), 24) == f"    12  user   {8 * 'x'}…"
