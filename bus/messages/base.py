"""Base classes of all values in a message. Values are frozen and strictly validated."""

from difflib import get_close_matches
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel, to_snake

from lanebus.bus.errors import InvalidContent
from lanebus.bus.errors.message import shown

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
