"""Find a Python object by a command-line argument: `module:attribute` or `path/to/file.py:attribute`."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

from lanebus.bus.errors import require_text

__all__ = ("TargetNotFound", "load_object")


class TargetNotFound(Exception):
    """`load_object` found no object. Its callers catch this error and raise their own. Fields: `reason`, what is
    missing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def load_object(target: str, *, example: str) -> object:
    """Return the object at `module:attribute` or `path/to/file.py:attribute`.

    Modules are also searched for in the current directory. A file may import modules of its own directory.

    Args:
        target: the text. The attribute may have dots.
        example: a valid target, shown in the error if `target` has another form.

    Raises:
        TargetNotFound: `target` has another form, or there is no such module, file or attribute.
        Exception: any error that the module raises while it is imported.
    """
    require_text("target", target)
    module_name, _, attribute = target.rpartition(":")
    if not module_name or not attribute:
        raise TargetNotFound(f"this is neither module:attribute nor path/to/file.py:attribute, as in {example}")
    found: object = _load_file(module_name) if module_name.endswith(".py") else _load_module(module_name)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise TargetNotFound(f"{module_name!r} has no attribute {attribute!r}")
        found = cast("object", getattr(found, name))
    return found


def _load_module(name: str) -> ModuleType:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and imports a module that does not exist
        raise TargetNotFound(f"there is no module {error.name!r}") from None


def _load_file(name: str) -> ModuleType:
    path = Path(name).absolute()
    if not path.is_file():
        raise TargetNotFound(f"there is no file {name!r}")
    _search(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetNotFound(f"{name!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _search(folder: Path) -> None:
    """Search a folder for modules first, as Python does with the folder of a script."""
    if str(folder) not in sys.path and not ("" in sys.path and folder == Path.cwd()):
        sys.path.insert(0, str(folder))
