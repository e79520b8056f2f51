"""Base classes of all values in a message. Values are frozen and strictly validated."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ("Frozen", "Wire")


class Frozen(BaseModel):
    """An immutable value. Its JSON keys are the field names; a field that is None is left out.

    Validation is strict: a number is not read from text, nor text from a number. Unknown keys are refused. Before
    validation, `json_reader.py` renames the keys of other formats.
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

    def to_json(self) -> str:
        """Return the value as one line of JSON, without spaces and without escaping text to ASCII."""
        return self.to_json_bytes().decode()

    def to_json_bytes(self) -> bytes:
        """Return the JSON in UTF-8, as it is stored in the log.

        Raises:
            pydantic_core.PydanticSerializationError: a text contains a lone surrogate, or free JSON is nested too deep.
        """
        return self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)


class Wire(Frozen):
    """A frozen value with camelCase JSON keys, as in the `two-lane-agent` format."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel)
