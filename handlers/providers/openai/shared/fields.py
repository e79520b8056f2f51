"""Read and check fields of OpenAI's JSON. Errors name the path to the field."""

from pydantic import JsonValue

from lanebus.bus.messages.content import AnnotationRef
from lanebus.handlers.json_fields import as_list, as_text, as_whole, below
from lanebus.handlers.providers.common.request import Json

__all__ = ("index_at", "list_at", "ref_of", "refs_of", "text_at")


def list_at(holder: Json, name: str, path: str) -> list[JsonValue]:
    """Return the list in a field; empty if the field is missing or null.

    Raises:
        DecodeError: the field holds something other than a list.
    """
    value = holder.get(name)
    return [] if value is None else as_list(value, below(path, name))


def text_at(holder: Json, name: str, path: str, *, required: bool = False) -> str:
    """Return the text in a field; "" if the field is missing or null, and not required.

    Raises:
        DecodeError: the field holds something other than text, or is required and missing or null.
    """
    value = holder.get(name)
    return "" if value is None and not required else as_text(value, below(path, name))


def index_at(holder: Json, name: str, path: str) -> int:
    """Return the index in a field.

    Raises:
        DecodeError: the field does not hold a whole number from 0.
    """
    return as_whole(holder.get(name), below(path, name))


def refs_of(annotations: list[JsonValue]) -> tuple[AnnotationRef, ...]:
    """Return the sources that a text's annotations name. Annotations that are not objects are ignored."""
    return tuple(ref_of(each) for each in annotations if isinstance(each, dict))


def ref_of(annotation: Json) -> AnnotationRef:
    """Return the source of one annotation. Chat Completions nests the fields in an object `url_citation`."""
    nested = annotation.get("url_citation")
    fields = nested if isinstance(nested, dict) else annotation
    url, file_id, index = fields.get("url"), fields.get("file_id"), fields.get("index")
    title = fields.get("title") or fields.get("filename")
    return AnnotationRef(
        url=url if isinstance(url, str) else None,
        file_id=file_id if isinstance(file_id, str) else None,
        index=index if isinstance(index, int) and not isinstance(index, bool) else None,
        title=title if isinstance(title, str) else None,
    )
