"""The tools that a request offers, independent of the provider."""

from typing import Literal, NamedTuple, Self

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError

__all__ = ("ToolChoice", "ToolSpec")


class ToolSpec(NamedTuple):
    """A tool as a model sees it."""

    name: str
    description: str
    schema: dict[str, JsonValue]
    """JSON schema of its arguments, which are an object."""

    @classmethod
    def read(cls, value: JsonValue, path: str = "") -> Self:
        """Read a tool from its JSON, in the form of any provider.

        The schema is `schema`, `input_schema`, `inputSchema` or `parameters`; everything may be nested in `function`.

        Args:
            value: the tool's JSON.
            path: where it stands, for errors.

        Raises:
            DecodeError: it has no name, or its schema is not an object.
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


class ToolChoice(NamedTuple):
    """Whether the model may, must or must not call a tool."""

    mode: Literal["auto", "required", "none", "named"]
    name: str | None = None
    """The one tool that it must call, with mode "named"; otherwise None."""
