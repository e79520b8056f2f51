"""Layout of text in lines and columns."""

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from lanebus.handlers.cli.output import (
    Column,
    Line,
    Output,
    count,
    cut,
    duration,
    line,
    moment,
    money,
    plain,
    put,
    shell_word,
    size,
    table,
    visible,
    width,
)

HIDDEN = (
    *(0xAD, 0x34F, 0x61C, 0x180E, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029, 0x202A, 0x202E, 0x2060),
    *(0x2066, 0x2069, 0x206F, 0x3164, 0xFEFF, 0xFFF9, 0xE0001, 0xE0041, 0xE0100),
    *(0x2800, 0x16FE4, 0x1D159, 0x13430, 0x1343F, 0xE000, 0xF0000, 0x600),
)
"""marks that change the direction of text, ends of lines, and characters that nobody sees"""


@pytest.mark.parametrize("character", [*map(chr, (*range(32), *range(0x7F, 0xA0), *HIDDEN))], ids=ascii)
def test_an_unsafe_character_is_escaped_also_in_json(character: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = character.encode("unicode_escape").decode()
    assert visible(f"a{character}b") == f"a{code}b"
    put(f"a{character}b")
    put(Line(f"a{character}b", "bad"), is_error=True)
    Output(is_json=True, fit=None).json({"a": character})
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"a{code}b"
    assert err == f"a{code}b\n"
    written = out.removeprefix(f"a{code}b\n").removesuffix("\n")
    assert character not in written
    assert json.loads(written) == {"a": character}


def test_what_people_write_is_shown_as_it_is_in_one_line_of_plain_text() -> None:
    for text in (
        *("Grüße, 世界 🎉", "👩\u200d👩\u200d👧 ❤\ufe0f", "می\u200cخواهم", "क्\u200dष", "a\u00a0b"),
        "❤\ufe0f 1\ufe0f\u20e3 ©\ufe0f ☝\ufe0f",
    ):
        assert visible(text) == text
    assert visible("a\ufe0fb \ufe0f") == "a\\ufe0fb \\ufe0f"  # a choice of a picture behind a letter
    assert plain("a\r\n\tb\x1b[31mred\x9b0m\u202eold\x00") == "a b\\x1b[31mred\\x9b0m\\u202eold\\x00"
    assert len(plain(10_000_000 * "x")) == 4000


WORDS = (
    *("call-1", "a b", "$(touch ran)", "`touch ran`", "a'; touch ran; '", 'a"b', "-x", "~", "*", "a\\b", "é", "a#b"),
    "#a",
)


@pytest.mark.parametrize("control", ["", "\x1b[2K", "\n", "\u202e\u200b", "\x9b", "\U000e0041"], ids=ascii)
def test_a_shell_reads_a_printed_word_as_the_text_and_runs_no_part_of_it(tmp_path: Path, control: str) -> None:
    words = [shell_word(text + control) for text in WORDS]
    assert [visible(word) for word in words] == words
    for shell in ("bash", "sh"):
        environment = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
        command = [shell, "-c", f"printf '%s\\0' {' '.join(words)}"]
        said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True).stdout
        assert [*tmp_path.iterdir()] == []
        if shell == "bash" or not control:
            assert said.decode().split("\0")[:-1] == [text + control for text in WORDS]


def test_width_counts_columns_and_a_cut_text_is_never_wider_than_requested() -> None:
    texts = {"abc": 3, "日本": 4, "e\u0301": 1, "🙂": 2, "": 0, "a\u200db": 2}
    assert {text: width(text) for text in texts} == texts
    for text, columns, shown in (
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 4, "日…"),
        ("日本語", 5, "日本…"),
        ("ab", 1, "…"),
        ("ab", 0, ""),
    ):
        assert cut(text, columns) == shown
        assert width(shown) <= columns


def test_numbers_are_formatted_for_people() -> None:
    assert count(54_693_675) == "54,693,675"
    amounts = ("42.595908", "0.0000004", "0.25", "1234.5")
    assert [money(Decimal(text)) for text in amounts] == ["$42.60", "$0.000000", "$0.250000", "$1,234.50"]
    assert money(None) == "unknown"
    sizes = {0: "0 B", 999: "999 B", 1500: "1.5 kB", 2_356_056: "2.4 MB", 3 * 10**12: "3.0 TB"}
    assert {number: size(number) for number in sizes} == sizes
    assert [duration(seconds) for seconds in (0.04, 59.9, 125)] == ["0.0 s", "59.9 s", "2 min 5 s"]
    assert moment(0) == "-"
    assert len(moment(1_795_201_208.148)) == len("2026-11-20 19:00:08")


COLUMNS = (Column("name", is_flexible=True), Column("n", is_number=True), Column("note", is_flexible=True))


def test_columns_are_aligned_by_width_on_the_terminal() -> None:
    assert list(table(COLUMNS, [("日本", "1", "x"), ("abcde", "1,000", "y")], None)) == [
        "name       n  note",
        "日本       1  x",
        "abcde  1,000  y",
    ]


def test_no_line_is_wider_than_the_terminal() -> None:
    rows = [(30 * "日", "1,000", 100 * "x"), ("a", "2", "b")]
    for fit in (1, 10, 20, 30, 40, 79):
        assert all(width(text) <= fit for text in table(COLUMNS, rows, fit))
    # The widest flexible column shrinks.
    assert list(table(COLUMNS, [("short", "1,000", 100 * "x")], 30))[1] == f"short  1,000  {15 * 'x'}…"
    number, who, what = Column("n", is_number=True, columns=6), Column("who", columns=5), Column("x", is_flexible=True)
    assert line((number, who, what), ("12", "user", 50 * "x"), 24) == f"    12  user   {8 * 'x'}…"


def test_an_indented_column_keeps_leading_spaces_and_only_those() -> None:
    columns = (Column("session", is_indented=True), Column("n", is_number=True))
    rows = [("top", "1"), ("  a \n b", "2"), ("    \x1bc", "3")]
    assert list(table(columns, rows, None)) == ["session    n", "top        1", "  a b      2", "    \\x1bc  3"]
    assert line(columns, ("  a", "2"), None) == "  a  2"
