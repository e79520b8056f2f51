"""Base classes of all values in a message. Values are frozen and strictly validated."""

from inspect import signature
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from lanebus.bus.errors import InvalidContent
from lanebus.bus.messages.content_fault import by_name, content_fault

__all__ = ("Frozen", "Wire")


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
