"""Checks of callers' arguments, made before anything is sent. Each raises `InvalidArgument`, and no raw TypeError."""

from collections.abc import Collection
from math import isinf, isnan

from lanebus.bus.errors.message import InvalidArgument

__all__ = (
    "require_all",
    "require_choice",
    "require_count",
    "require_epoch",
    "require_flag",
    "require_instance",
    "require_methods",
    "require_seconds",
    "require_share",
    "require_text",
)


def require_text(name: str, value: object, *, is_optional: bool = False, is_filled: bool = False) -> None:
    """Raise InvalidArgument unless the value is a text.

    Args:
        name: the argument's name.
        value: what the caller passed.
        is_optional: True also accepts None.
        is_filled: True also refuses an empty text.
    """
    if not (isinstance(value, str) or (is_optional and value is None)):
        raise InvalidArgument(name, value, "pass a text")
    if is_filled and value == "":
        raise InvalidArgument(name, value, "pass a text that is not empty" + (", or None" if is_optional else ""))


def require_count(
    name: str, value: object, *, least: int = 0, most: int | None = None, is_optional: bool = False
) -> None:
    """Raise InvalidArgument unless the value is an integer, such as a position, an epoch or a number of bytes.

    Args:
        name: the argument's name.
        value: what the caller passed.
        least: the smallest valid number.
        most: the largest valid number; None means no limit.
        is_optional: True also accepts None.
    """
    if is_optional and value is None:
        return
    number = None if isinstance(value, bool) or not isinstance(value, int) else value
    if number is None or number < least or (most is not None and number > most):
        bounds = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise InvalidArgument(name, value, f"pass an integer {bounds}")


def require_epoch(epoch: object) -> None:
    """Raise InvalidArgument unless `epoch` is None or may be the epoch of a lease: an integer of 0 or more."""
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0):
        raise InvalidArgument("epoch", epoch, "pass the `epoch` of a lease, an integer")


def require_seconds(name: str, value: object, *, is_positive: bool = False, is_optional: bool = False) -> None:
    """Raise InvalidArgument unless the value is a number of seconds of 0 or more.

    Args:
        name: the argument's name.
        value: what the caller passed.
        is_positive: True also refuses 0 and infinity.
        is_optional: True also accepts None.
    """
    if is_optional and value is None:
        return
    number = None if isinstance(value, bool) or not isinstance(value, int | float) else value
    if number is None or isnan(number) or number < 0 or (is_positive and (number == 0 or isinf(number))):
        raise InvalidArgument(name, value, f"pass seconds, as a number {'above 0' if is_positive else 'of 0 or more'}")


def require_share(name: str, value: object) -> None:
    """Raise InvalidArgument unless the value is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgument(name, value, "pass a number from 0 to 1")


def require_flag(name: str, value: object, *, is_optional: bool = False) -> None:
    """Raise InvalidArgument unless the value is True or False, or None with `is_optional`."""
    if not (isinstance(value, bool) or (is_optional and value is None)):
        raise InvalidArgument(name, value, "pass True or False")


def require_instance(
    name: str, value: object, kinds: type | tuple[type, ...], advice: str, *, is_optional: bool = False
) -> None:
    """Raise InvalidArgument unless the value is an object of a class.

    Args:
        name: the argument's name.
        value: what the caller passed.
        kinds: the class, or several; one must fit.
        advice: what to pass instead, such as "pass a Session, from `bus.session(…)`".
        is_optional: True also accepts None.
    """
    if not (isinstance(value, kinds) or (is_optional and value is None)):
        raise InvalidArgument(name, value, advice)


def require_methods(
    name: str, value: object, methods: Collection[str], advice: str, *, is_optional: bool = False
) -> None:
    """Raise InvalidArgument unless the value is an object with the methods of a protocol. A class is refused.

    Args:
        name: the argument's name.
        value: what the caller passed.
        methods: the names of the methods.
        advice: what to pass instead.
        is_optional: True also accepts None.
    """
    if is_optional and value is None:
        return
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidArgument(name, value, advice)


def require_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise InvalidArgument unless the value is one of the texts `choices`."""
    if not (isinstance(value, str) and value in choices):
        *others, last = (f'"{choice}"' for choice in choices)
        raise InvalidArgument(name, value, f"pass {', '.join(others)} or {last}")


def require_all(name: str, values: object, kinds: type | tuple[type, ...], advice: str) -> None:
    """Raise InvalidArgument unless `values` is a collection of objects of a class.

    A single text is refused, even if `kinds` is `str`. See `require_instance` for the arguments.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Collection):
        raise InvalidArgument(name, values, advice)
    for value in values:  # pyright: ignore[reportUnknownVariableType]  # a caller may have passed anything
        require_instance(name, value, kinds, advice)  # pyright: ignore[reportUnknownArgumentType]
