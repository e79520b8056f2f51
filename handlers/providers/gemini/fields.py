"""Read fields of Gemini's JSON in either spelling: camelCase as in the API, snake_case as in the SDK."""

from pydantic import JsonValue
from pydantic.alias_generators import to_snake

from lanebus.handlers.json_fields import as_list, as_object, as_text
from lanebus.handlers.providers.common.request import Json

__all__ = ("field_at", "list_at", "object_at", "text_at")


def field_at(value: Json, name: str) -> JsonValue:
    """Return the field with this camelCase name, or with the same name in snake_case; None if both are missing."""
    return value[name] if name in value else value.get(to_snake(name))


def object_at(value: Json, name: str, path: str = "") -> Json | None:
    """Return the object in a field; None if it is missing.

    Args:
        value: the object that has the field.
        name: the field's camelCase name.
        path: path of `value`, with a dot at its end.

    Raises:
        DecodeError: the field does not hold an object.
    """
    found = field_at(value, name)
    return None if found is None else as_object(found, f"{path}{name}")


def list_at(value: Json, name: str, path: str = "") -> list[JsonValue] | None:
    """Return the list in a field; see `object_at`."""
    found = field_at(value, name)
    return None if found is None else as_list(found, f"{path}{name}")


def text_at(value: Json, name: str, path: str = "") -> str | None:
    """Return the text in a field; None if the field is missing or the text is empty. See `object_at`."""
    found = field_at(value, name)
    return None if found is None else as_text(found, f"{path}{name}") or None
