"""The face of a package: its `__init__` names what other packages use, and each name is imported when it is first used.

A face lists its names for type checkers (below `TYPE_CHECKING`) and as a table for `lazy_names`. Code inside of a
package imports the modules themselves, never the package's own face.
"""

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    module: str, names: Mapping[str, tuple[str, ...]], *, package: str = "", extra: str = ""
) -> Callable[[str], object]:
    """Return the `__getattr__` of a face (PEP 562).

    Args:
        module: dotted name of the face.
        names: the module that defines names → these names.
        package: import package of the framework that the names need; importing the face itself never fails.
        extra: the extra of lanebus that installs the framework.

    The function raises MissingExtra if the package is not installed.
    """
    defined_in = {name: definer for definer, defined in names.items() for name in defined}

    def get(name: str) -> object:
        if name not in defined_in:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            return getattr(import_module(defined_in[name]), name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if package and (_is_in(missing, package) or _is_in(package, missing)):
                from lanebus.bus.errors import MissingExtra  # noqa: PLC0415  # a face imports nothing else

                raise MissingExtra(package, extra) from error
            raise

    return get


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
