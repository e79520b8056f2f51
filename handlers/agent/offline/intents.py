"""Find the tool calls that a text asks the offline model for, and word its answers. Pure and deterministic."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.messages.message import ToolResultMessage
from lanebus.handlers.agent.offline.arithmetic import ArithmeticFault, calculate_text

__all__ = ("Intent", "find_intents", "reflection", "result_text")

MOST = 8
"""maximum number of tool calls of one answer"""

_ARITHMETIC = re.compile(r"[\d(.+\-−–][\d\s().+\-−–*/×÷·^%]*[\d)]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_TIMES = re.compile(r"(?<=\d)\s*x\s*(?=\d)", re.IGNORECASE)
_WORDS = (
    (re.compile(r"\bplus\b", re.IGNORECASE), "+"),
    (re.compile(r"\bminus\b", re.IGNORECASE), "-"),
    (re.compile(r"\b(?:times|multiplied by)\b", re.IGNORECASE), "*"),
    (re.compile(r"\b(?:divided by|over)\b(?=\s*[\d(])", re.IGNORECASE), "/"),
)
_CLOCK = re.compile(r"\b(?:what|which|tell)\b.*\b(?:time|date|day)\b|\btoday\b|\bo'?clock\b", re.IGNORECASE | re.DOTALL)
_DICE = re.compile(r"\b(?:roll|throw)\b(?:\D*?(\d+)?\s*d(\d+)\b|.*\b(?:dice|die)\b)", re.IGNORECASE)


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
    if "clock" in tools and _CLOCK.search(text):
        found.append(Intent("clock", {}, "the time"))
    if "roll_dice" in tools and (match := _DICE.search(text)):
        arguments: dict[str, JsonValue] = {"count": int(match[1] or 1), "sides": int(match[2] or 6)}
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
    return [found for match in _ARITHMETIC.finditer(text) if _is_arithmetic(found := " ".join(match[0].split()))]


def _is_arithmetic(expression: str) -> bool:
    if not re.search(r"[\d)]\s*[-+*/×÷·^%−–]", expression):
        return False  # a single number is not a question
    try:
        calculate_text(expression)
    except ArithmeticFault as fault:
        return "zero" in str(fault) or "large" in str(fault)  # still arithmetic: the tool reports the error
    return True
