"""The check of the dataclasses that hold bounds, periods and limits."""

from collections.abc import Collection
from dataclasses import fields
from math import isfinite
from typing import TYPE_CHECKING

from lanebus.bus.errors.setup import InvalidBound

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ("check_bounds",)


def check_bounds(bounds: "DataclassInstance", key: str = "", *, zero: Collection[str] = ()) -> None:
    """Check every field of a dataclass of bounds. Call this function in `__post_init__`.

    A field of type int must be an integer of 1 or more. A field of type float must be a finite number above 0. A field
    of another type must be a dataclass, which checks itself.

    Args:
        bounds: the bounds.
        key: name of the bounds in the error, such as "bounds.publish". "" means the name of the class.
        zero: fields that may also be 0.

    Raises:
        InvalidBound: a field has another value.
    """
    for field in fields(bounds):
        value: object = getattr(bounds, field.name)
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
        number = None if isinstance(value, bool) or not isinstance(value, int | float) else value
        least = field.name in zero
        if kind == "int":
            is_valid = isinstance(number, int) and number >= (0 if least else 1)
            remedy = f"use {0 if least else 1} or more"
        elif kind == "float":
            is_valid = number is not None and isfinite(number) and (number > 0 or (least and number == 0))
            remedy = f"use a number {'of 0 or more' if least else 'above 0'}"
        else:
            is_valid, remedy = kind in {each.__name__ for each in type(value).__mro__}, f"use {kind}(…)"
        if not is_valid:
            raise InvalidBound(f"{key or type(bounds).__name__}.{field.name}", value, remedy)
