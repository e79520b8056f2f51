"""What every value in a message has in common: frozen, strict, camelCase in JSON, absent when None."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ("Frozen", "Wire")


class Frozen(BaseModel):
    """A value that cannot change. Its JSON has the field names as they are; a field that is None is absent.

    Strict: a number is not read from text, nor text from a number, so what was written is what is read. Unknown keys
    are refused here; the wider reader of `json_reader.py` turns other spellings into ours first.
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
        """This value as one line of JSON: no spaces, absent fields left out, text not escaped to ASCII."""
        return self.to_json_bytes().decode()

    def to_json_bytes(self) -> bytes:
        """The same in UTF-8, as it goes into the log.

        Raises:
            pydantic_core.PydanticSerializationError: a text holds a lone surrogate, or free JSON is nested too deep.
        """
        return self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)


class Wire(Frozen):
    """A frozen value whose JSON keys are camelCase, as seed 001 writes them."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel)
