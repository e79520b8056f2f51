"""The offline model: the same conversation gives the same answer, and tools are called."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import AssistantMessage, LlmMessage, Session, ToolCallBlock, ToolResultMessage, Usage, UserMessage
from lanebus.agent import ModelRequest, OfflineModel, Piece, Tool, ToolSpec
from lanebus.handlers.agent import demo_agent
from lanebus.handlers.agent.demo import calculate, clock, roll_dice
from lanebus.handlers.agent.models.offline import OFFLINE_RATES, ArithmeticFault, calculate_text, find_intents
from tests.support.agent.agents import SECONDS, take_run
from tests.support.agent.logs import said
from tests.support.log.entries import context_of
from tests.support.paths import ROOT
from tests.support.suite.scale import examples

TOOLS = (calculate, clock, roll_dice)


async def answer_to(
    *said: LlmMessage, tools: Sequence[Tool] = TOOLS
) -> tuple[AssistantMessage, list[Piece], list[Usage]]:
    specs: list[ToolSpec] = [tool.spec for tool in tools]
    request = ModelRequest(context_of(*said), specs)
    told = [event async for event in OfflineModel(delay=0).stream(request)]
    assert isinstance(told[-1], AssistantMessage)
    pieces = [event for event in told if isinstance(event, Piece)]
    return told[-1], pieces, [event for event in told if isinstance(event, Usage)]


async def wanted(text: str) -> list[tuple[str, object]]:
    message, _, _ = await answer_to(UserMessage.text(text))
    return [(call.name, call.arguments) for call in message.tool_calls()]


@pytest.mark.parametrize(
    ("text", "expressions"),
    [
        ("What is 17 × 23?", ["17 × 23"]),
        ("What is 17 × 23 and 5 + 6?", ["17 × 23", "5 + 6"]),
        ("12*(3+4)", ["12*(3+4)"]),
        ("please compute 1,000 + 2", ["1000 + 2"]),
        ("3 x 4", ["3 × 4"]),
        ("what is 3 plus 4 times 2", ["3 + 4 * 2"]),
        ("1/0", ["1/0"]),
        ("2^10.", ["2^10"]),
        ("I have 3 apples and 4 pears", []),
        ("call me at 5", []),
        ("", []),
    ],
)
async def test_arithmetic_is_found_in_a_text(text: str, expressions: list[str]) -> None:
    assert await wanted(text) == [("calculate", {"expression": each}) for each in expressions]


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("What time is it?", "clock", {}),
        ("which day is today", "clock", {}),
        ("roll the dice", "roll_dice", {"count": 1, "sides": 6}),
        ("Roll 2d20, please", "roll_dice", {"count": 2, "sides": 20}),
    ],
)
async def test_other_questions_ask_for_other_tools(text: str, tool: str, arguments: object) -> None:
    assert await wanted(text) == [(tool, arguments)]


async def test_results_become_a_sentence() -> None:
    asked = UserMessage.text("What is 17 × 23 and 1/0?")
    calls, _, _ = await answer_to(asked)
    first, second = calls.tool_calls()
    results = (ToolResultMessage.of(first, "391"), ToolResultMessage.of(second, "division by zero", is_error=True))
    message, _, _ = await answer_to(asked, calls, *results)
    assert message.text_content() == "17 × 23 is 391, and 1/0 did not work (division by zero)."


async def test_a_new_question_is_not_answered_from_old_results() -> None:
    call = ToolCallBlock(id="c1", name="calculate", arguments={"expression": "1+1"})
    old = (UserMessage.text("1+1"), AssistantMessage.of(call), ToolResultMessage.of(call, "2"))
    message, _, _ = await answer_to(*old, AssistantMessage.text("1+1 is 2."), UserMessage.text("Nice to meet you"))
    assert "“Nice to meet you”" in message.text_content()
    assert "What is 17 × 23?" in message.text_content()


async def test_the_streamed_pieces_are_the_message() -> None:
    message, pieces, _ = await answer_to(UserMessage.text("What is 17 × 23?"))
    thinking = "".join(piece.text for piece in pieces if piece.kind == "thinking")
    assert [block.text for block in message.thinking()] == [thinking]
    (call,) = message.tool_calls()
    (piece,) = [piece for piece in pieces if piece.kind == "toolCall"]
    assert (json.loads(piece.text), piece.tool_name, piece.block) == (call.arguments, "calculate", 1)
    message, pieces, _ = await answer_to(UserMessage.text("hi"))
    assert "".join(piece.text for piece in pieces if piece.kind == "text") == message.text_content()
    assert len(pieces) > 20


async def test_the_same_conversation_gives_the_same_answer_and_a_missing_tool_is_not_called() -> None:
    asked = UserMessage.text("What is 17 × 23?")
    (one, *_), (other, *_) = await answer_to(asked), await answer_to(asked)
    assert one.model_copy(update={"timestamp": None}) == other.model_copy(update={"timestamp": None})
    message, _, _ = await answer_to(asked, tools=())
    assert ([*message.tool_calls()], message.stop_reason) == ([], "stop")


async def test_tokens_are_counted_and_priced_with_a_source() -> None:
    message, _, reported = await answer_to(UserMessage.text("12345678"), tools=())
    usage = message.usage
    assert usage is not None
    assert usage.input == 2
    assert usage.output == sum(
        -(-len(text) // 4) for text in (message.text_content(), *(b.text for b in message.thinking()))
    )
    assert 0 < usage.reasoning < usage.output
    assert usage.total_tokens == usage.input + usage.output
    assert usage.cost == usage.cost_at(OFFLINE_RATES, source="offline (made up)")
    assert usage.cost is not None
    assert usage.cost.total == Decimal(usage.input + 5 * usage.output) / 1_000_000
    assert [(each.input, each.output) for each in reported] == [(2, 0)]


async def test_without_a_delay_it_answers_at_once() -> None:
    answers = OfflineModel(delay=0).stream(ModelRequest(context_of(UserMessage.text("What is 17 × 23?"))))
    others_had_a_turn = anyio.Event()

    async def other() -> None:
        others_had_a_turn.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        assert [event async for event in answers]
        assert not others_had_a_turn.is_set()


async def test_the_demo_answers_with_two_tools_at_once(session: Session) -> None:
    await session.publish(UserMessage.text("What is 17 × 23 and 5 + 6?"))
    await demo_agent(delay=0)(await take_run(session))
    entries = await said(session)
    assert "assistant toolUse: <calculate><calculate>" in entries
    assert "assistant stop: 17 × 23 is 391, and 5 + 6 is 11." in entries


# --- the intents of a text -----------------------------------------------------------------------------------------

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


def test_at_most_eight_tools_are_called_and_a_long_number_of_dice_is_no_error() -> None:
    assert len(find_intents("1+1 a " * 50, {"calculate"})) == 8
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


# --- arithmetic without `eval` -------------------------------------------------------------------------------------


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
