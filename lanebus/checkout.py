"""Short module names in a checkout: `import bus` imports `lanebus.bus`, and the same for `handlers`."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import lanebus

__all__ = ("alias",)

_aliased: list[ModuleType] = []


class _Aliases(MetaPathFinder, Loader):
    """Import `bus.x` as the module `lanebus.bus.x`. Both names are the same module object."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if sys.modules.get(fullname.partition(".")[0]) in _aliased else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f"lanebus.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has replaced the module's spec with the spec of the alias: restore the original spec.
        module.__spec__ = module.__spec__ and module.__spec__.loader_state


def alias(name: str) -> None:
    """Register `lanebus.<name>` under the short name `<name>`.

    The package calls this function while it is imported under the short name.
    """
    if not _aliased:
        sys.meta_path.insert(0, _Aliases())
    module = sys.modules[name] = import_module(f"lanebus.{name}")
    names = vars(module)
    names["__getattr__"] = partial(_public_or_own, names.get("__getattr__"))
    _aliased.append(module)


def _public_or_own(own: Callable[[str], object] | None, name: str) -> object:
    """Return a public name of `lanebus`, or else a name of the package's own face."""
    if own is None or name in lanebus.__all__:
        return lanebus.__getattr__(name)
    return own(name)
