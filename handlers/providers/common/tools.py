"""The tools that a request offers, independent of the provider."""

from typing import Literal, NamedTuple, Self

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, require_choice, require_instance, require_text

__all__ = ("ToolChoice", "ToolSpec")


class _Spec(NamedTuple):
    name: str
    description: str
    schema: dict[str, JsonValue]
    """JSON schema of the tool's arguments. The arguments are a JSON object."""


class ToolSpec(_Spec):
    """A tool as a model sees it.

    Raises:
        InvalidArgument: `name` is no text or empty, `description` is no text, or `schema` is no dict.
    """

    __slots__ = ()

    def __new__(cls, name: str, description: str, schema: dict[str, JsonValue]) -> Self:
        require_text("name", name, is_filled=True)
        require_text("description", description)
        require_instance("schema", schema, dict, 'pass a JSON schema, such as {"type": "object"}')
        return super().__new__(cls, name, description, schema)

    @classmethod
    def read(cls, value: JsonValue, path: str = "") -> Self:
        """Read a tool from its JSON, in the form of any provider.

        The schema's key is `schema`, `input_schema`, `inputSchema` or `parameters`. The whole tool may be nested in
        `function`.

        Args:
            value: the tool's JSON.
            path: path of `value`, for errors.

        Raises:
            DecodeError: the tool has no name, or its schema is not an object.
        """
        if isinstance(value, dict) and isinstance(function := value.get("function"), dict):
            value = function
        if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name:
            raise DecodeError(path, "a tool is a JSON object with a name")
        keys = [key for key in ("schema", "input_schema", "inputSchema", "parameters") if key in value]
        schema: JsonValue = value[keys[0]] if keys else {"type": "object"}
        if not isinstance(schema, dict):
            raise DecodeError(f"{path}.{keys[0]}" if path else keys[0], "a schema is a JSON object")
        description = value.get("description")
        return cls(name, description if isinstance(description, str) else "", schema)


class _Choice(NamedTuple):
    mode: Literal["auto", "required", "none", "named"]
    name: str | None = None
    """Name of the tool that the model must call, if `mode` is "named"; otherwise None."""


class ToolChoice(_Choice):
    """Whether the model may, must or must not call a tool.

    Raises:
        InvalidArgument: there is no such `mode`, or the mode "named" has no `name`.
    """

    __slots__ = ()

    def __new__(cls, mode: Literal["auto", "required", "none", "named"], name: str | None = None) -> Self:
        require_choice("mode", mode, ("auto", "required", "none", "named"))
        require_text("name", name, is_optional=mode != "named", is_filled=mode == "named")
        return super().__new__(cls, mode, name)
