"""Base classes of all values in a message, frozen and strictly validated; the lanes, ids, and usage of model calls.

Source: `generate_id` of both graph formats, and the generators of the second graph format.
"""

import inspect
import secrets
import string
import time
import uuid
from collections.abc import Awaitable, Callable
from decimal import Decimal
from difflib import get_close_matches
from enum import StrEnum
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel, to_snake

from lanebus.bus.errors import InvalidContent
from lanebus.bus.errors.base import shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


# The error of a constructor whose fields do not form a valid value, made from pydantic's error.

_JSON_TAGS = frozenset({"dict", "list", "str", "bool", "int", "float"})
"""pydantic's tags in a path through plain JSON: one before each key or index, and perhaps one at the end"""

_JSON_REASONS = {
    "missing": "is missing",
    "extra_forbidden": "is unknown",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
}


def content_fault(kind: type[BaseModel], error: ValidationError, *, most: int = 3) -> InvalidContent:
    """Return the error that names each wrong field of a value, what was given for it, and what to pass instead.

    Args:
        kind: the class of the value.
        error: pydantic's error.
        most: maximum number of fields that the error names.
    """
    found = error.errors(include_url=False, include_context=False)
    faults = [_fault(kind, each) for each in islice(found, most)]
    more = f"; and {len(found) - most} more" if len(found) > most else ""
    *before, last = faults
    return InvalidContent("; ".join((*(f"{fault}: {remedy}" for fault, remedy in before), last[0])), last[1] + more)


def json_reason(fault: "ErrorDetails") -> str:
    """Return the reason of a fault in JSON, in words for its author, who may not know Python. It names no value."""
    text = fault["msg"].removeprefix("Value error, ")
    return _JSON_REASONS.get(fault["type"]) or text.replace("Input tag", "the tag").replace("Input should", "must")


def by_name(kind: type[BaseModel]) -> str:
    """Return advice how to make a value of a class."""
    return f"{_makers(kind)}name each field, as in {kind.__name__}({_fields(kind)[0]}=…)"


def _fault(kind: type[BaseModel], error: "ErrorDetails") -> tuple[str, str]:
    """Return what is wrong with one field, and what to pass instead."""
    name, place = kind.__name__, f"{'.'.join(_path(error['loc'])):.100}"
    message = error["msg"].removeprefix("Value error, ")
    match error["type"]:
        case "missing":
            return f"`{place}` of {name} is missing", f"pass it by name, as in {name}({place}=…)"
        case "extra_forbidden":
            near = get_close_matches(place, kind.model_fields, 1)
            advice = f"did you mean `{near[0]}`?" if near else f"its fields are {', '.join(_fields(kind))}"
            return f"{name} has no field `{place}`", advice
        case "value_error" if not place:
            fault, _, remedy = message.partition(": ")
            return f"{name}: {fault}", remedy or "change its fields"
        case "invalid-json-value":
            return f"`{place}` of {name} is {shown(error['input'])}", "pass what JSON has: dicts, lists, texts, numbers"
        case _:
            advice = message.replace("Input tag", "the tag").replace("Input", "it")
            if error["loc"] == ("content",) and isinstance(error["input"], str):
                advice = f"{_makers(kind)}pass a tuple of blocks"
            elif error["type"] in {"model_type", "model_attributes_type", "dataclass_type"}:
                advice = "pass " + (f"{error['msg'].rpartition(' ')[2]}(…)" if "instance of" in message else "a block")
            return f"`{place}` of {name} is {shown(error['input'])}", advice


def _fields(kind: type[BaseModel]) -> list[str]:
    return [field for field in kind.model_fields if field not in {"role", "type"}]


def _makers(kind: type[BaseModel]) -> str:
    made = (maker for maker in ("text", "of", "from_text") if getattr(getattr(kind, maker, None), "__self__", None))
    return next((f"use {kind.__name__}.{maker}(…), or " for maker in made), "")


def _path(place: tuple[int | str, ...]) -> list[str]:
    """Return the path as the caller wrote it: without the tags of unions, and with the fields' names."""
    first = next((index for index, part in enumerate(place) if index and part in _JSON_TAGS), len(place))
    fields = place[:first]
    return [
        to_snake(part) if isinstance(part, str) else str(part)
        for index, part in enumerate(fields)
        if not (index and isinstance(fields[index - 1], int) and index < len(place) - 1)
    ] + [str(part) for part in place[first + 1 :: 2]]


class Frozen(BaseModel):
    """An immutable value. Its JSON keys are the field names; a field that is None is left out.

    Validation is strict: a number is not read from text, nor text from a number. Unknown keys are refused. Before
    validation, `json_reader.py` renames the keys of other formats.

    Raises:
        InvalidContent: the fields do not form a valid value.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
        ser_json_inf_nan="strings",
        allow_inf_nan=False,
    )

    if not TYPE_CHECKING:  # a type checker refuses positional arguments itself

        def __init__(self, /, *given: object, **fields: object) -> None:
            if given:
                raise InvalidContent(f"{type(self).__name__} takes its fields by name", by_name(type(self)))
            try:
                self.__pydantic_validator__.validate_python(fields, self_instance=self)
            except ValidationError as error:
                raise content_fault(type(self), error) from None

        # Validation then builds values without this method, as with pydantic's own. Calling it would cost 40 %.
        __init__.__pydantic_base_init__ = True
        __init__.__signature__ = signature(BaseModel.__init__)  # so that the fields' signature has no `*given`

    def to_json(self) -> str:
        """Return the value as one line of JSON, without spaces and without escaping text to ASCII."""
        return self.to_json_bytes().decode()

    def to_json_bytes(self) -> bytes:
        """Return the JSON in UTF-8, as it is stored in the log.

        Raises:
            pydantic_core.PydanticSerializationError: a text contains a lone surrogate, or the JSON of a field is nested
                too deep.
        """
        return self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)


class Wire(Frozen):
    """A frozen value with camelCase JSON keys, as in the `two-lane-agent` format."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel)


# The two lanes of a session.


class Lane(StrEnum):
    """A lane of a session.

    A model sees the messages of the LLM lane. The extension lane has events, commands and other messages for programs
    and people, and is never sent to a model.
    """

    LLM = "llm"
    EXTENSION = "extension"


# Generate ids. An id is generated when a message is written, and is stored in the message. A replay generates no ids.


Id = str | int

IdKind = Literal["string", "int", "bigint"]
"""The kind of an id.

- "string": a text; a generated id is a UUID
- "int": a number below 2^32
- "bigint": a number below 2^64 as text, because JavaScript cannot represent every integer above 2^53
"""

Override = Callable[[], Id] | Id | None
"""An id, or a function that returns an id. None and "" select the default id."""

_ALPHANUMERIC = string.ascii_letters + string.digits


def generate_id(default: Id | None = None, *, kind: IdKind = "string", override: Override = None) -> Id:
    """Return the id from `override`. If `override` has no id, return `default`, or else a new id.

    Args:
        default: the id to return if it is not empty and fits `kind`. Otherwise a new id is generated.
        kind: the kind of id to return; see `IdKind`. The id from `override` may be of another kind.
        override: an id, or a function that returns an id. None and "" select the default id.

    Raises:
        InvalidContent: the override is asynchronous; use `generate_id_async`.
    """
    chosen = override() if callable(override) else override
    if inspect.isawaitable(chosen):
        if inspect.iscoroutine(chosen):
            chosen.close()  # avoids the warning that the coroutine was never awaited
        raise InvalidContent("the override is asynchronous: use generate_id_async")
    return _choose(chosen, default, kind)


async def generate_id_async(
    default: Id | None = None,
    *,
    kind: IdKind = "string",
    override: Override | Callable[[], Awaitable[Id]] | Awaitable[Id] = None,
) -> Id:
    """Do the same as `generate_id`, but also accept an `override` that is awaitable or an async function."""
    chosen = override() if callable(override) else override
    return _choose(await chosen if inspect.isawaitable(chosen) else chosen, default, kind)


def uuid_id() -> str:
    """Return a random UUID: 36 characters."""
    return str(uuid.uuid4())


def hex_id() -> str:
    """Return a random UUID as 32 hexadecimal digits."""
    return uuid.uuid4().hex


def int_id() -> int:
    """Return a random number below 2^32."""
    return secrets.randbits(32)


def big_int_id() -> str:
    """Return the nanoseconds since 1970 as text, because JavaScript cannot represent such a number."""
    return str(time.time_ns())


def timestamp_id() -> int:
    """Return the microseconds since 1970. Two calls within one microsecond return the same id."""
    return time.time_ns() // 1000


def short_id() -> str:
    """Return eight random letters and digits. A million such ids contain a duplicate with probability 1/400."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(8))


def default_id() -> str:
    """Return "". As an `override`, this function changes nothing: "" means the default id."""
    return ""


def _choose(override: Id | None, default: Id | None, kind: IdKind) -> Id:
    if override is not None and override != "":
        return override
    match kind, default:
        case "string", str() if default:
            return default
        case "string", _:
            return uuid_id()
        case (("int" | "bigint"), int()) if default and not isinstance(default, bool):
            return default if kind == "int" else str(default)
        case "bigint", str() if default:
            return default
        case "int", _:
            return int_id()
        case _:
            return str(secrets.randbits(64))


# Usage of model calls: tokens, cost, and the source of the prices.


_MILLION = Decimal(1_000_000)
_READ_AT = {"anthropic": Decimal("0.1"), "openai": Decimal("0.5")}
_WRITE_AT = Decimal("1.25")

_BOUND = Decimal(10) ** 15
"""The largest amount. Without this bound, the text 1E+999999999 would be an amount that no fold can add, and that needs
a gigabyte to print. A bound on the number of digits would have the same effect but take six times as long."""

Amount = Annotated[Decimal, Field(ge=-_BOUND, le=_BOUND)]


def _only_true(value: object) -> object:
    return None if value is False else value


class Rates(Frozen):
    """Prices in US dollars per million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal = Decimal(0)
    cache_write: Decimal = Decimal(0)

    @classmethod
    def by_discount(cls, provider: str, *, input: Decimal, output: Decimal) -> Self:
        """Return rates with cache prices estimated from the input price.

        Args:
            provider: selects the price of cache reads: 0.1 times `input` for "anthropic", 0.5 times `input` for
                "openai", and `input` for others. Cache writes cost 1.25 times `input`.
            input: US dollars per million input tokens.
            output: US dollars per million output tokens.

        Source: an implementation of the `universal-client` format. It counts cached tokens as part of `input`; lanebus
        does not.
        """
        discount = _READ_AT.get(provider, Decimal(1))
        return cls(input=input, output=output, cache_read=input * discount, cache_write=input * _WRITE_AT)


class Cost(Frozen):
    """Exact amounts in US dollars. In JSON each amount is text, because a JSON number would be read as a float."""

    input: Amount = Decimal(0)
    output: Amount = Decimal(0)
    cache_read: Amount = Decimal(0)
    cache_write: Amount = Decimal(0)
    total: Amount = Decimal(0)
    source: str | None = None
    """the source of the prices, such as "genai-prices/0.2.3". A replay uses the stored cost and not current prices"""

    def combine(self, other: Self) -> Self:
        """Return the sum of each field, capped at 10^15. `source` is kept if both have the same source, else None."""
        return type(self)(
            input=_within_bound(self.input + other.input),
            output=_within_bound(self.output + other.output),
            cache_read=_within_bound(self.cache_read + other.cache_read),
            cache_write=_within_bound(self.cache_write + other.cache_write),
            total=_within_bound(self.total + other.total),
            source=self.source if self.source == other.source else None,
        )


class Usage(Frozen):
    """Tokens of one model call, or the sum over several calls.

    `input` excludes cached tokens, `reasoning` is part of `output`, and `total_tokens` is the provider's own total. If
    an answer is recorded without a total, the total is the sum of its parts, see `with_total`.
    """

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    image_tokens: int | None = None
    audio_tokens: int | None = None
    cost: Cost | None = None
    """cost of the tokens; None means unknown, not free"""
    estimated: Annotated[bool | None, BeforeValidator(_only_true)] = None
    """whether some counts are estimates, because the call was cut before the provider reported its usage. None means
    that all counts are as reported"""
    raw: JsonValue = None
    """the usage as the provider reported it. For an estimate, it is the part that was received"""

    def combine(self, other: Self) -> Self:
        """Return the sum of each field, without `raw`. Adding `Usage()` changes no number.

        An unknown cost is added as 0, so the sum is the known cost. If either part is an estimate, so is the sum.
        """
        return type(self)(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            total_tokens=self.total_tokens + other.total_tokens,
            image_tokens=_add(self.image_tokens, other.image_tokens),
            audio_tokens=_add(self.audio_tokens, other.audio_tokens),
            cost=self.cost.combine(other.cost) if self.cost and other.cost else self.cost or other.cost,
            estimated=self.estimated or other.estimated,
        )

    def with_total(self) -> Self:
        """Return this usage; without a total, a copy whose total is the sum of input, output and cached tokens.

        Call this method only when an answer is recorded. A replay adds up the recorded totals, so its sums do not
        change.
        """
        if self.total_tokens:
            return self
        return self.model_copy(update={"total_tokens": self.input + self.output + self.cache_read + self.cache_write})

    def cost_at(self, rates: Rates, *, source: str | None = None) -> Cost:
        """Return the cost of these tokens. Reasoning is part of the output and is not charged again.

        Args:
            rates: prices per million tokens.
            source: the source of the prices, for `Cost.source`.

        Source: the `two-lane-agent` system, `estimated_cost`.
        """
        parts = {
            "input": _within_bound(self.input * rates.input / _MILLION),
            "output": _within_bound(self.output * rates.output / _MILLION),
            "cache_read": _within_bound(self.cache_read * rates.cache_read / _MILLION),
            "cache_write": _within_bound(self.cache_write * rates.cache_write / _MILLION),
        }
        return Cost(**parts, total=_within_bound(sum(parts.values(), Decimal(0))), source=source)

    def cache_hit_rate(self) -> float:
        """Return the share of the input that came from the cache, from 0.0 to 1.0. If there is no input, return 0.0."""
        whole = self.input + self.cache_read + self.cache_write
        # The provider's counts are not checked. Negative counts give 0.0.
        return self.cache_read / whole if 0 < self.cache_read <= whole else 0.0


def _add(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _within_bound(amount: Decimal) -> Decimal:
    return max(-_BOUND, min(_BOUND, amount))
