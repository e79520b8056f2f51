"""Models that need no provider: the offline model, for demos, and the scripted model, for tests of agents."""

import ast
import json
import math
import operator
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from itertools import count, islice
from typing import NamedTuple

import anyio
from pydantic import JsonValue

from lanebus.bus.errors import SetupError, require_instance, require_seconds, require_text
from lanebus.bus.messages import (
    AssistantMessage,
    Block,
    LlmMessage,
    Rates,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    now_ms,
)
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.providers import ModelEvent, Piece, ToolSpec

# Find the tool calls that a text asks the offline model for, and word its answers. Pure and deterministic.
#
# Each search takes time proportional to the text: no pattern can begin at many places and fail at a far one.

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


OFFLINE_RATES = Rates(input=Decimal(1), output=Decimal(5))
"""fictional prices, so that turns have a cost to show; the cost's source says that it is made up"""

PRICE_SOURCE = "offline (made up)"

_CHARACTERS_PER_TOKEN = 4
_WORD = re.compile(r"\s*\S+|\s+")


class OfflineModel:
    """A deterministic model for demos and tests. It understands arithmetic, and questions about the time and dice."""

    provider = "offline"
    context_window: int | None = None
    """None: the model reads only the last question and the messages after it, so it needs no limit"""

    def __init__(self, *, name: str = "offline-1", delay: float = 0.03) -> None:
        """
        Args:
            name: the model's name.
            delay: seconds before each word. 0 answers without yielding to the event loop.
        """
        require_text("name", name, is_filled=True)
        require_seconds("delay", delay)
        self.name, self._delay = name, delay

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`. It never fails."""
        input_tokens = _tokens(_text_of_request(request))
        yield self._usage(input_tokens, 0, 0)
        blocks = _answer(request)
        for index, block in enumerate(blocks):
            match block:
                case ThinkingBlock(text=text):
                    async for piece in self._words("thinking", text, index):
                        yield piece
                case TextBlock(text=text):
                    async for piece in self._words("text", text, index):
                        yield piece
                case ToolCallBlock(name=name, arguments=arguments):
                    await self._pause()
                    yield Piece("toolCall", json.dumps(arguments, ensure_ascii=False), index, name)
                case _:
                    pass
        output = sum(_tokens(_text_of_block(block)) for block in blocks)
        reasoning = sum(_tokens(block.text) for block in blocks if isinstance(block, ThinkingBlock))
        calls = any(isinstance(block, ToolCallBlock) for block in blocks)
        yield AssistantMessage(
            content=blocks,
            stop_reason="toolUse" if calls else "stop",
            provider=self.provider,
            model=self.name,
            usage=self._usage(input_tokens, output, reasoning),
            timestamp=now_ms(),
        )

    def price(self, usage: Usage) -> Usage:
        """See `Pricing.price`."""
        return usage.model_copy(update={"cost": usage.cost_at(OFFLINE_RATES, source=PRICE_SOURCE)})

    async def _words(self, kind: str, text: str, index: int) -> AsyncGenerator[Piece, None]:
        for word in _WORD.findall(text):
            await self._pause()
            yield Piece("thinking" if kind == "thinking" else "text", word, index)

    def _usage(self, input_tokens: int, output: int, reasoning: int) -> Usage:
        usage = Usage(input=input_tokens, output=output, reasoning=reasoning, total_tokens=input_tokens + output)
        return self.price(usage)

    async def _pause(self) -> None:
        if self._delay > 0:  # a sleep of 0 would still cost one pass of the event loop for each word
            await anyio.sleep(self._delay)


def _answer(request: ModelRequest) -> tuple[Block, ...]:
    messages = request.context.messages
    last = next((at for at in range(len(messages) - 1, -1, -1) if isinstance(messages[at], UserMessage)), None)
    since: Sequence[LlmMessage] = messages[last + 1 :] if last is not None else messages[:]
    results = [message for message in since if isinstance(message, ToolResultMessage)]
    if results:
        calls = {
            call.id: call for message in since if isinstance(message, AssistantMessage) for call in message.tool_calls()
        }
        return (TextBlock(text=_sentence(calls, results)),)
    text = messages[last].text_content() if last is not None else ""
    return _reply(text, request.tools, request.context.position)


def _reply(text: str, tools: Sequence[ToolSpec], position: int) -> tuple[Block, ...]:
    known = {spec.name: spec.description for spec in tools}
    intents = find_intents(text, known)
    if not intents:
        thought = "Nothing here asks for one of my tools, so I say what I can do."
        return (ThinkingBlock(text=thought), TextBlock(text=reflection(text, known)))
    thought = f"This asks for {_listed([intent.subject for intent in intents])}; I call {_listed(_names(intents))}."
    numbers = count(1)
    # With the position, ids are unique in a session, and the same if the model is called again for the same context.
    calls = (
        ToolCallBlock(id=f"call-{position}-{next(numbers)}", name=i.tool, arguments=dict(i.arguments)) for i in intents
    )
    return (ThinkingBlock(text=thought), *calls)


def _sentence(calls: dict[str, ToolCallBlock], results: Sequence[ToolResultMessage]) -> str:
    parts: list[str] = []
    for result in results:
        call = calls.get(result.tool_call_id)
        arguments: JsonValue = call.arguments if call else None
        parts.append(result_text(call.name if call else result.tool_name, arguments, result))
    sentence = _listed(parts, comma=True)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _names(intents: Sequence[Intent]) -> list[str]:
    return list(dict.fromkeys(intent.tool for intent in intents))


def _listed(parts: Sequence[str], *, comma: bool = False) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])}{',' if comma else ''} and {parts[-1]}"


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _text_of_request(request: ModelRequest) -> str:
    context = request.context
    messages = [*context.system, *context.messages]
    tools = "".join(f"{spec.name}{spec.description}{json.dumps(spec.schema)}" for spec in request.tools)
    return "".join(_text_of_block(block) for message in messages for block in message.content) + tools


def _text_of_block(block: Block) -> str:
    match block:
        case TextBlock(text=text) | ThinkingBlock(text=text):
            return text
        case ToolCallBlock(name=name, arguments=arguments):
            return name + json.dumps(arguments, ensure_ascii=False)
        case _:
            return ""


# Evaluate arithmetic in a text without `eval`: numbers, + - * / // % ** and brackets, within bounds.

LONGEST = 200
"""maximum number of characters of an expression"""

LARGEST = 300
"""maximum number of digits of a value before the decimal point; this also limits the time to compute a power"""

_SHORT = 50
"""maximum number of digits of a value that is written without an exponent"""

_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**"})

_BINARY: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: (left / right).to_integral_value(ROUND_FLOOR),
    ast.Mod: lambda left, right: left - right * (left / right).to_integral_value(ROUND_FLOOR),
}


class ArithmeticFault(ValueError):
    """The text is not arithmetic, or its value is out of bounds."""


def calculate_text(expression: str) -> str:
    """Return the value of an expression as text: "391" for "17 × 23".

    Whole numbers are exact; others are rounded to 15 decimal places.

    Raises:
        ArithmeticFault: the expression is invalid or out of bounds; the text says why.
    """
    if len(expression) > LONGEST:
        raise ArithmeticFault(f"longer than {LONGEST} characters")
    try:
        tree = ast.parse(expression.translate(_SIGNS).strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ArithmeticFault("not an arithmetic expression") from None
    # Whole numbers are exact: the precision exceeds the largest number of digits.
    with localcontext(prec=LARGEST + 20) as context:
        context.Emax, context.Emin = LARGEST, -LARGEST
        try:
            return _text(_value(tree.body))
        except DivisionByZero:
            raise ArithmeticFault("division by zero") from None
        except Overflow:
            raise ArithmeticFault("the value is too large") from None
        except InvalidOperation:
            raise ArithmeticFault("the value is undefined or too large") from None


def _value(node: ast.expr) -> Decimal:
    match node:
        case ast.Constant(value=bool()):
            raise ArithmeticFault("not a number")
        case ast.Constant(value=int() | float() as number):
            # `repr` of a float is the number as it was written, unless the number was too large for a float.
            if number == math.inf:
                raise Overflow
            return +Decimal(repr(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _BINARY[type(sign)](_value(left), _value(right))
        case _:
            raise ArithmeticFault("only numbers, + - * / // % ** and brackets are understood")


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    if abs(exponent) > 1_000:
        raise ArithmeticFault("the exponent is over 1000")
    if base == 0 and exponent < 0:
        raise ArithmeticFault("division by zero")
    return base**exponent


def _text(value: Decimal) -> str:
    """Return a value as text without trailing zeros. A value with many digits is written with an exponent."""
    is_whole = value == value.to_integral_value()
    if is_whole and value.adjusted() < _SHORT:
        return f"{value.to_integral_value():f}"
    if -6 < value.adjusted() < _SHORT:
        return f"{round(value, 15).normalize():f}"
    return f"{value:.16g}"


# A model that returns prepared answers, for tests of agents.


class ScriptEnded(SetupError):
    """A scripted model was called more often than it has answers. Fields: `calls`, the number of this call."""

    def __init__(self, calls: int) -> None:
        super().__init__(
            f"the scripted model has no answer for call {calls}", "give it one more with `ScriptedModel.then`"
        )
        self.calls = calls


class ScriptedModel:
    """A model that returns prepared answers, one for each call, and keeps the requests that it received.

    `requests` is the list of the requests so far, one `ModelRequest` for each call.

    The script belongs to this object, so to one process: a worker in another process begins with the first answer.
    """

    provider, name, context_window = "test", "script", None

    def __init__(self, *answers: AssistantMessage | ToolCallBlock | str | Exception) -> None:
        """
        Args:
            answers: as for `then`.
        """
        self.requests: list[ModelRequest] = []
        """the requests so far, one for each call"""
        self._answers: deque[AssistantMessage | Exception] = deque()
        self.then(*answers)

    def then(self, *answers: AssistantMessage | ToolCallBlock | str | Exception) -> "ScriptedModel":
        """Add answers to the end of the script, and return the model.

        Args:
            answers: one for each call. A text is an answer that ends the loop. A tool call is an answer that makes the
                call. An exception is raised by the call. A message is returned unchanged.
        """
        for answer in answers:
            require_instance(
                "answers",
                answer,
                (AssistantMessage, ToolCallBlock, str, Exception),
                "pass texts, ToolCallBlocks, AssistantMessages or exceptions, one for each call of the model",
            )
        self._answers.extend(map(_scripted_answer, answers))
        return self

    @property
    def left(self) -> int:
        """The number of answers that no call has returned yet."""
        return len(self._answers)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the next answer. See `Model.stream`.

        Raises:
            ScriptEnded: no answer is left.
        """
        self.requests.append(request)
        if not self._answers:
            raise ScriptEnded(len(self.requests))
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        yield answer


def _scripted_answer(answer: AssistantMessage | ToolCallBlock | str | Exception) -> AssistantMessage | Exception:
    match answer:
        case str():
            return AssistantMessage.text(answer)
        case ToolCallBlock():
            return AssistantMessage(content=(answer,), stop_reason="toolUse")
        case _:
            return answer
