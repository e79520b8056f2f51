"""Fields of other programs' JSON, checked and turned into ours."""

from datetime import UTC, datetime
from typing import TypeVar

from pydantic import JsonValue, ValidationError

from bus.errors import DecodeError
from bus.messages.base import Wire

__all__ = ("Object", "milliseconds", "validated")

Object = dict[str, JsonValue]

W = TypeVar("W", bound=Wire)


def validated(kind: type[W], fields: Object) -> W:
    """A value of ours from its JSON.

    Raises:
        DecodeError: names the first field that does not fit.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise DecodeError(".".join(map(str, first["loc"])), first["msg"]) from None


def milliseconds(value: JsonValue, path: str) -> int | None:
    """A moment in milliseconds UTC, from those or from ISO 8601 text, which is UTC where it names no zone.

    Raises:
        DecodeError: it is neither.
    """
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise DecodeError(path, f"{value[:40]!r} is no moment in ISO 8601") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        # Counted in whole numbers: timestamp() is a float, which may round to the millisecond before.
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    raise DecodeError(path, "wants milliseconds or ISO 8601 text")
