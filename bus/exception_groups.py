"""The first error of an exception group: no group leaves a public call."""

from typing import cast

__all__ = ("first_error",)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in a group and its nested groups."""
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return first_error(cast("BaseExceptionGroup[BaseException]", first))
    return first
