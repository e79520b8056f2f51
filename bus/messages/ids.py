"""Generate ids. An id is generated when a message is written, and is stored in the message. A replay generates no ids.

Source: `generate_id` of both graph formats, and the generators of the second graph format.
"""

import inspect
import secrets
import string
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Literal

from lanebus.bus.errors import InvalidContent

Id = str | int

IdKind = Literal["string", "int", "bigint"]
"""The kind of an id.

- "string": a text; a generated id is a UUID
- "int": a number below 2^32
- "bigint": a number below 2^64 as text, because JavaScript cannot represent every integer above 2^53
"""

Override = Callable[[], Id] | Id | None
"""An id, or a function that returns an id. None and "" select the default id."""

_ALPHANUMERIC = string.ascii_letters + string.digits


def generate_id(default: Id | None = None, *, kind: IdKind = "string", override: Override = None) -> Id:
    """Return the id from `override`. If `override` has no id, return `default`, or else a new id.

    Args:
        default: the id to return if it is not empty and fits `kind`. Otherwise a new id is generated.
        kind: the kind of id to return; see `IdKind`. The id from `override` may be of another kind.
        override: an id, or a function that returns an id. None and "" select the default id.

    Raises:
        InvalidContent: the override is asynchronous; use `generate_id_async`.
    """
    chosen = override() if callable(override) else override
    if inspect.isawaitable(chosen):
        if inspect.iscoroutine(chosen):
            chosen.close()  # avoids the warning that the coroutine was never awaited
        raise InvalidContent("the override is asynchronous: use generate_id_async")
    return _choose(chosen, default, kind)


async def generate_id_async(
    default: Id | None = None,
    *,
    kind: IdKind = "string",
    override: Override | Callable[[], Awaitable[Id]] | Awaitable[Id] = None,
) -> Id:
    """Do the same as `generate_id`, but also accept an `override` that is awaitable or an async function."""
    chosen = override() if callable(override) else override
    return _choose(await chosen if inspect.isawaitable(chosen) else chosen, default, kind)


def uuid_id() -> str:
    """Return a random UUID: 36 characters."""
    return str(uuid.uuid4())


def hex_id() -> str:
    """Return a random UUID as 32 hexadecimal digits."""
    return uuid.uuid4().hex


def int_id() -> int:
    """Return a random number below 2^32."""
    return secrets.randbits(32)


def big_int_id() -> str:
    """Return the nanoseconds since 1970 as text, because JavaScript cannot represent such a number."""
    return str(time.time_ns())


def timestamp_id() -> int:
    """Return the microseconds since 1970. Two calls within one microsecond return the same id."""
    return time.time_ns() // 1000


def short_id() -> str:
    """Return eight random letters and digits. A million such ids contain a duplicate with probability 1/400."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(8))


def default_id() -> str:
    """Return "". As an `override`, this function changes nothing: "" means the default id."""
    return ""


def _choose(override: Id | None, default: Id | None, kind: IdKind) -> Id:
    if override is not None and override != "":
        return override
    match kind, default:
        case "string", str() if default:
            return default
        case "string", _:
            return uuid_id()
        case (("int" | "bigint"), int()) if default and not isinstance(default, bool):
            return default if kind == "int" else str(default)
        case "bigint", str() if default:
            return default
        case "int", _:
            return int_id()
        case _:
            return str(secrets.randbits(64))
