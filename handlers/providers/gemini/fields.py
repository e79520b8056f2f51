"""Fields of Gemini's JSON in either spelling: camelCase as the API has it, snake_case as its SDK."""

from pydantic import JsonValue
from pydantic.alias_generators import to_snake

from lanebus.handlers.json_fields import as_list, as_object, as_text
from lanebus.handlers.providers.common.request import Json

__all__ = ("field_at", "list_at", "object_at", "text_at")


def field_at(value: Json, name: str) -> JsonValue:
    """The field of this camelCase name; None if it is not there."""
    return value[name] if name in value else value.get(to_snake(name))


def object_at(value: Json, name: str, path: str = "") -> Json | None:
    """The object in a field; None if there is none.

    Args:
        path: of `value`, with a dot at its end.

    Raises:
        DecodeError: it holds something else.
    """
    found = field_at(value, name)
    return None if found is None else as_object(found, f"{path}{name}")


def list_at(value: Json, name: str, path: str = "") -> list[JsonValue] | None:
    """The list in a field, as `object_at`."""
    found = field_at(value, name)
    return None if found is None else as_list(found, f"{path}{name}")


def text_at(value: Json, name: str, path: str = "") -> str | None:
    """The text in a field, as `object_at`; None also for an empty one."""
    found = field_at(value, name)
    return None if found is None else as_text(found, f"{path}{name}") or None
