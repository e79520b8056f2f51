"""Find the tool calls that a text asks the offline model for, and word its answers. Pure and deterministic.

Each search takes time proportional to the text: no pattern can begin at many places and fail at a far one.
"""

import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.offline.arithmetic import LONGEST, ArithmeticFault, calculate_text

__all__ = ("Intent", "find_intents", "reflection", "result_text")

MOST = 8
"""maximum number of tool calls of one answer"""

_ARITHMETIC = re.compile(r"[\d(.+\-−–][\d\s().+\-−–*/×÷·^%]*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_TIMES = re.compile(r"(?<=\d)\s*x\s*(?=\d)", re.IGNORECASE)
_WORDS = (
    (re.compile(r"\bplus\b", re.IGNORECASE), "+"),
    (re.compile(r"\bminus\b", re.IGNORECASE), "-"),
    (re.compile(r"\b(?:times|multiplied by)\b", re.IGNORECASE), "*"),
    (re.compile(r"\b(?:divided by|over)\b(?=\s*[\d(])", re.IGNORECASE), "/"),
)
_ASKS = re.compile(r"\b(?:what|which|tell)\b", re.IGNORECASE)
_TIME = re.compile(r"\b(?:time|date|day)\b", re.IGNORECASE)
_CLOCK = re.compile(r"\btoday\b|\bo'?clock\b", re.IGNORECASE)
_DICE = re.compile(
    r"(?P<roll>\b(?:roll|throw)\b)|(?P<dice>\b(?:dice|die)\b)|(?P<line>\n)"
    r"|(?:(?<!\d)(?P<count>\d{1,9})\s*)?d(?P<sides>\d{1,9})\b|(?P<number>\d+)",
    re.IGNORECASE,
)


class Intent(NamedTuple):
    """A tool call that a text asks for."""

    tool: str
    arguments: dict[str, JsonValue]
    subject: str
    """what the call is about, in words of the text"""


def find_intents(text: str, tools: Collection[str]) -> list[Intent]:
    """Return the tool calls that a text asks for, limited to available tools and to `MOST` calls."""
    found: list[Intent] = []
    if "calculate" in tools:
        found += [Intent("calculate", {"expression": each}, each) for each in _expressions(text)]
    if "clock" in tools and _wants_time(text):
        found.append(Intent("clock", {}, "the time"))
    if "roll_dice" in tools and (dice := _dice(text)) is not None:
        arguments: dict[str, JsonValue] = {"count": dice[0], "sides": dice[1]}
        found.append(Intent("roll_dice", arguments, "the dice"))
    return found[:MOST]


def result_text(tool: str | None, arguments: JsonValue, result: ToolResultMessage) -> str:
    """Return a clause with a tool's result, such as "the dice show 4". The caller joins the clauses to a sentence."""
    text = result.text_content().strip()
    subject = arguments.get("expression") if isinstance(arguments, dict) else None
    if result.is_error:
        return f"{subject or tool or 'the tool'} did not work ({text or 'no reason given'})"
    match tool:
        case "calculate":
            return f"{subject} is {text}"
        case "clock":
            return f"it is {text}"
        case "roll_dice":
            return f"the dice show {text}"
        case _:
            return f"{tool or 'the tool'} says {text}"


def reflection(text: str, tools: Mapping[str, str]) -> str:
    """Return the answer to a text that asks for no tool. The answer quotes the text and lists what the user can ask."""
    words = " ".join(text.split())
    short = words if len(words) <= 80 else f"{words[:77].rstrip()}..."
    read = f"You wrote: “{short}”. " if short else "I read no text. "
    known = {
        "calculate": "work out arithmetic, such as “What is 17 × 23?”",
        "clock": "tell the time",
        "roll_dice": "roll dice, such as “roll 2d6”",
    }
    skills = [skill for tool, skill in known.items() if tool in tools]
    can = f"What I can do: {'; '.join(skills)}." if skills else "I have no tools here, so this is all I can say."
    return f"{read}I am the offline model: no provider, no key, always the same answer to the same question. {can}"


def _expressions(text: str) -> list[str]:
    text = _TIMES.sub(" × ", _THOUSANDS.sub("", text))
    for pattern, sign in _WORDS:
        text = pattern.sub(sign, text)
    runs = (_trimmed(match[0]) for match in _ARITHMETIC.finditer(text))
    return [*islice((run for run in runs if _is_arithmetic(run)), MOST)]


def _trimmed(run: str) -> str:
    """Return a run of signs and digits up to its last digit or bracket, with single spaces."""
    end = len(run)
    while end and not (run[end - 1].isdecimal() or run[end - 1] == ")"):
        end -= 1
    return " ".join(run[:end].split())


def _wants_time(text: str) -> bool:
    asks = _ASKS.search(text)
    return _CLOCK.search(text) is not None or (asks is not None and _TIME.search(text, asks.end()) is not None)


def _dice(text: str) -> tuple[int, int] | None:
    """Return the number of dice to roll and of their sides; None if the text asks for no dice.

    "2d6" counts if no other number is between the word "roll" and it. The word "dice" counts in the same line.
    """
    is_next = is_line = is_plain = False  # "roll" came, and no number since; came in this line; "dice" came after it
    for match in _DICE.finditer(text):
        match match.lastgroup:
            case "roll":
                is_next = is_line = True
            case "dice":
                is_plain = is_plain or is_line
            case "line":
                is_line = False
            case "sides" if is_next:
                return int(match["count"] or 1), int(match["sides"])
            case _:
                is_next = False
        if is_plain and not is_next:
            break
    return (1, 6) if is_plain else None


def _is_arithmetic(expression: str) -> bool:
    if len(expression) > LONGEST or not re.search(r"[\d)]\s*[-+*/×÷·^%−–]", expression):
        return False  # a single number is not a question
    try:
        calculate_text(expression)
    except ArithmeticFault as fault:
        return "zero" in str(fault) or "large" in str(fault)  # still arithmetic: the tool reports the error
    return True
