"""The intents of a text: as plain patterns find them, in time proportional to the text."""

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus.handlers.agent.models.offline import find_intents
from tests.support.agent.agents import SECONDS
from tests.support.paths import ROOT
from tests.support.suite.scale import examples

__all__ = ()

# What the intents mean, as patterns that are short and slow.
DICE = re.compile(r"\b(?:roll|throw)\b(?:\D*?(\d+)?\s*d(\d+)\b|.*\b(?:dice|die)\b)", re.IGNORECASE)
CLOCK = re.compile(r"\b(?:what|which|tell)\b.*\b(?:time|date|day)\b|\btoday\b|\bo'?clock\b", re.IGNORECASE | re.DOTALL)
ARITHMETIC = re.compile(r"[\d(.+\-−–][\d\s().+\-−–*/×÷·^%]*[\d)]")

WORDS = ("roll", "throw", "Dice", "die", "d6", "2d20", "2 d6", "d", "3", "what", "tell", "time", "day", "today", "\n")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
SUMS = st.text("12 .()+-*/ax", max_size=12)


@given(TEXTS)
@examples(500)
def test_dice_and_time_are_found_as_by_patterns(text: str) -> None:
    found = {intent.tool: intent.arguments for intent in find_intents(text, {"clock", "roll_dice"})}
    match = DICE.search(text)
    dice = None if match is None else {"count": int(match[1] or 1), "sides": int(match[2] or 6)}
    assert found.get("roll_dice") == dice
    assert ("clock" in found) == (CLOCK.search(text) is not None)


@given(SUMS)
@examples(500)
def test_arithmetic_is_a_run_of_signs_up_to_a_digit_or_bracket(text: str) -> None:
    runs = [" ".join(match[0].split()) for match in ARITHMETIC.finditer(re.sub(r"(?<=\d)\s*x\s*(?=\d)", " × ", text))]
    found = [intent.arguments["expression"] for intent in find_intents(text, {"calculate"})]
    assert [each for each in found if each not in runs] == []


def test_at_most_eight_tools_are_called() -> None:
    assert len(find_intents("1+1 a " * 50, {"calculate"})) == 8


def test_a_long_number_of_dice_is_no_error() -> None:
    assert find_intents("roll " + "9" * 5_000 + "d6", {"roll_dice"}) == []


UNITS = ("roll ", "roll d ", "what ", "(", "1 ", "1 + ", "over ", "1x ", "d1", "9", " ", "roll dice 3 ", "\n")


@pytest.mark.full
@pytest.mark.parametrize("unit", UNITS)
def test_the_time_grows_with_the_text_and_not_with_its_square(unit: str) -> None:
    # In a process, which can be stopped: a search of quadratic time would take hours.
    code = (
        "from lanebus.handlers.agent.models.offline import find_intents, reflection\n"
        f"text = {unit!r} * (1_000_000 // {len(unit)})\n"
        "find_intents(text, {'calculate': '', 'clock': '', 'roll_dice': ''}), reflection(text, {})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=SECONDS)
