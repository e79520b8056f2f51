"""`import bus` and `from handlers… import …` in a checkout: the modules of `lanebus` under their short names."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import lanebus

__all__ = ("alias",)

_aliased: list[ModuleType] = []


class _Aliases(MetaPathFinder, Loader):
    """Import `bus.x` as the module `lanebus.bus.x`: one object under both names, and never a second copy."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if sys.modules.get(fullname.partition(".")[0]) in _aliased else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f"lanebus.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__ and module.__spec__.loader_state  # the import system has put the alias there


def alias(name: str) -> None:
    """Put `lanebus.<name>` in the place of a folder of the checkout that is being imported as `<name>`."""
    if not _aliased:
        sys.meta_path.insert(0, _Aliases())
    module = sys.modules[name] = import_module(f"lanebus.{name}")
    vars(module)["__getattr__"] = lanebus.__getattr__
    _aliased.append(module)
