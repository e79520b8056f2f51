"""Replace text that UTF-8 cannot hold: a file name that is not UTF-8, or an emoji that a stream has cut in two.

Such text has lone surrogates, which the log refuses. What clients publish is refused, as replacing would hide a fault.
What a tool or a model has produced is replaced, because it cannot be produced again without paying for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from pydantic import BaseModel, JsonValue

__all__ = ("split_half", "whole_json", "whole_model", "whole_text")

M = TypeVar("M", bound="BaseModel")


def whole_text(text: str) -> str:
    """Return the text. The two halves of a surrogate pair are joined, a lone half becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def split_half(text: str) -> tuple[str, str]:
    """Return the text without the first half of a surrogate pair at its end, and that half; "" if there is none."""
    return (text[:-1], text[-1]) if "\ud800" <= text[-1:] <= "\udbff" else (text, "")


def whole_json(value: object) -> JsonValue:
    """Return JSON with whole texts, also in keys. Keys that become equal get more U+FFFD at their ends.

    Args:
        value: JSON, or a value with other values in it, which are returned as they are.

    Raises:
        RecursionError: the value is nested too deep.
    """
    match value:
        case str():
            return whole_text(value)
        case Mapping():
            whole: dict[str, JsonValue] = {}
            for key, item in cast("Mapping[str, object]", value).items():
                name = cast("str", whole_json(key))  # another type than text stays as it is
                while name != key and (name in whole or name in value):
                    name += "\ufffd"
                whole[name] = whole_json(item)
            return whole
        case list() | tuple():
            return [whole_json(item) for item in cast("list[object]", value)]
        case _:
            return cast("JsonValue", value)


def whole_model(model: M) -> M:
    """Return a message or another value with whole texts. If it cannot be made again, return it unchanged."""
    try:
        return type(model).model_validate(whole_json(model.model_dump()))
    except (RecursionError, ValueError):
        return model
