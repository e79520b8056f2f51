"""Public names whose classes derive from those of a framework, imported when first used."""

from collections.abc import Callable, Mapping
from importlib import import_module

from lanebus.bus.errors import MissingExtra

__all__ = ("lazy_names",)


def lazy_names(module: str, defined_in: Mapping[str, str], *, package: str, extra: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a public module (PEP 562).

    Args:
        module: name of the public module.
        defined_in: public name → the module that defines it.
        package: the framework's import package.
        extra: the extra of lanebus that installs it.

    The function raises MissingExtra if the package is not installed. Importing the public module itself never fails.
    """

    def get(name: str) -> object:
        if name not in defined_in:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            value: object = getattr(import_module(defined_in[name]), name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if missing == package or missing.startswith(f"{package}.") or package.startswith(f"{missing}."):
                raise MissingExtra(package, extra) from error
            raise
        return value

    return get
