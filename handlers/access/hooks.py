"""Find the hooks `identify` and `authorize` by name, for the command line."""

from inspect import iscoroutinefunction
from typing import cast

from lanebus.handlers.access.access import Identify
from lanebus.handlers.access.errors import HookNotFound
from lanebus.handlers.access.request import Authorize
from lanebus.handlers.load import TargetNotFound, load_object

__all__ = ("load_authorize", "load_identify")


def load_identify(target: str) -> Identify:
    """Return the hook at `module:attribute` or `path/to/file.py:attribute`.

    Raises:
        HookNotFound: there is no such module, file or attribute, or the object is no async function.
        Exception: any error that the module raises while it is imported.
    """
    return cast("Identify", _function(target))


def load_authorize(target: str) -> Authorize:
    """Return the hook at `module:attribute` or `path/to/file.py:attribute`.

    Raises:
        HookNotFound: there is no such module, file or attribute, or the object is no async function.
        Exception: any error that the module raises while it is imported.
    """
    return cast("Authorize", _function(target))


def _function(target: str) -> object:
    try:
        found = load_object(target, example="my_package.access:authorize")
    except TargetNotFound as error:
        raise HookNotFound(target, error.reason) from None
    # Refused here: a hook that cannot be awaited would refuse every request.
    if not iscoroutinefunction(found) and not iscoroutinefunction(getattr(type(found), "__call__", None)):  # noqa: B004
        raise HookNotFound(target, "it is no async function")
    return found
