"""Ids, made where a message is written and then stored: a replay never makes one.

Source: seeds 002 and 003, `generate_id` and the generators of the latter.
"""

import inspect
import secrets
import string
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Literal

from lanebus.bus.errors import InvalidContent

__all__ = (
    "Id",
    "IdKind",
    "Override",
    "big_int_id",
    "default_id",
    "generate_id",
    "generate_id_async",
    "hex_id",
    "int_id",
    "short_id",
    "timestamp_id",
    "uuid_id",
)

Id = str | int

IdKind = Literal["string", "int", "bigint"]
"""string: text, a UUID where it is made here. int: a number below 2^32. bigint: a number below 2^64 as text, since
JavaScript reads no whole number above 2^53 exactly."""

Override = Callable[[], Id] | Id | None
"""An id, or who makes it; "" asks for the usual one."""

_ALPHANUMERIC = string.ascii_letters + string.digits


def generate_id(default: Id | None = None, *, kind: IdKind = "string", override: Override = None) -> Id:
    """An id: the override's, else the default, if it is of this kind and says something, else a new one.

    Raises:
        InvalidContent: the override has to be waited for; `generate_id_async` does.
    """
    given = override() if callable(override) else override
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()  # it would complain that nobody ever waited for it
        raise InvalidContent("the override has to be waited for: use generate_id_async")
    return _chosen(given, default, kind)


async def generate_id_async(
    default: Id | None = None,
    *,
    kind: IdKind = "string",
    override: Override | Callable[[], Awaitable[Id]] | Awaitable[Id] = None,
) -> Id:
    """As `generate_id`, but the override's id, or the one it makes, may have to be waited for."""
    given = override() if callable(override) else override
    return _chosen(await given if inspect.isawaitable(given) else given, default, kind)


def uuid_id() -> str:
    """A random UUID: 36 characters."""
    return str(uuid.uuid4())


def hex_id() -> str:
    """A random UUID as 32 hexadecimal digits."""
    return uuid.uuid4().hex


def int_id() -> int:
    """A random number below 2^32."""
    return secrets.randbits(32)


def big_int_id() -> str:
    """Nanoseconds since 1970, as text: too large a number for JavaScript."""
    return str(time.time_ns())


def timestamp_id() -> int:
    """Microseconds since 1970. Two made in one microsecond are the same."""
    return time.time_ns() // 1000


def short_id() -> str:
    """Eight random letters and digits. Among a million of them two are the same once in four hundred times."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(8))


def default_id() -> str:
    """The empty text, by which an override asks for the usual id."""
    return ""


def _chosen(given: Id | None, default: Id | None, kind: IdKind) -> Id:
    if given is not None and given != "":
        return given
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
