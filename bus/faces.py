"""The face of a package: its `__init__` names what other packages use, and each name is imported when it is first used.

A face lists its names for type checkers (below `TYPE_CHECKING`) and as a table for `lazy_names`. Code inside of a package
imports the modules themselves, never the package's own face.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(module: str, names: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a face (PEP 562).

    Args:
        module: dotted name of the face.
        names: the module that defines names → these names.
    """
    defined_in = {name: definer for definer, defined in names.items() for name in defined}

    def get(name: str) -> object:
        if name not in defined_in:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value: object = getattr(import_module(defined_in[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return get
