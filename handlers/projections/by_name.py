"""Find by name: a Python object that a command line names, or a value of a mapping, made at its first access."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Never, TypeVar, cast

from lanebus.bus.errors import DirectoryNotOwned, require_text
from lanebus.bus.storage import open_owned

# Find a Python object by a command-line argument: `module:attribute` or `path/to/file.py:attribute`.
#
# A folder into which other users may put files is not searched for modules: their code would run as this user.


class TargetNotFound(Exception):
    """`load_object` found no object. Its callers catch this error and raise their own. Fields: `reason`, what is
    missing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def load_object(target: str, *, example: str) -> object:
    """Return the object at `module:attribute` or `path/to/file.py:attribute`.

    Modules are also searched for in the current directory. A file may import modules of its own directory. Both hold
    only for directories into which no other user may put files.

    Args:
        target: the text. The attribute may have dots.
        example: a valid target, shown in the error if `target` has another form.

    Raises:
        TargetNotFound: `target` has another form, or there is no such module, file or attribute.
        DirectoryNotOwned: the module is in the current directory, and another user could have put it there.
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


def shared_fault(folder: Path) -> str:
    """Return why another user could have put a module into a folder, or a compiled one beside it; "" if none could."""
    if fault := _fault(CodePlace(folder, is_folder=True)):
        return fault
    compiled = CodePlace(folder / "__pycache__", is_folder=True)
    fault = _fault(compiled) if compiled.path.exists() else ""
    return fault and f"has a __pycache__ that {fault}"


class CodePlace(NamedTuple):
    """A file that an import reads, or a folder in which it looks for files."""

    path: Path
    is_folder: bool = False


def _fault(place: CodePlace) -> str:
    try:
        os.close(open_owned(place.path, "code", "", is_folder=place.is_folder))
    except DirectoryNotOwned as error:
        return error.reason
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    return ""


def code_places(name: str) -> Iterator[CodePlace]:
    """Yield the files and folders from which `load_object` would take the code of a module or file; none if it is
    missing. Nothing is imported.

    The folders are those of packages and of compiled files, not the search path itself. lanebus is left out: its code
    runs already. So is what was compiled from a file: `load_object` reads it only if no other user could write it.
    """
    if name.endswith(".py"):
        yield CodePlace(Path(name))
        return
    first, *inner = name.split(".")
    spec = None if first == "lanebus" else _top_spec(first)
    for part in (*inner, ""):
        if spec is None:
            return
        if spec.has_location and spec.origin:
            yield CodePlace(_existing(Path(spec.origin)))  # an archive of modules, if it is in one
        yield from _compiled(spec)
        folders = [*(spec.submodule_search_locations or ())]
        yield from (CodePlace(_existing(Path(folder)), is_folder=True) for folder in folders)
        # By its last part, because the whole name needs the package, and that would be imported.
        spec = PathFinder.find_spec(part, folders) if part else None


def _top_spec(name: str) -> ModuleSpec | None:
    """Return where `_load_module` would find a module without dots."""
    before = [*sys.path]
    if not shared_fault(Path.cwd()):
        _search(Path.cwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec and spec.submodule_search_locations is not None:
            # Those of a package without `__init__.py` are computed anew from the search path at each look.
            spec.submodule_search_locations = [*spec.submodule_search_locations]
        return spec
    except (ImportError, ValueError):  # the import itself tells what is wrong
        return None
    finally:
        sys.path[:] = before


def _compiled(spec: ModuleSpec) -> Iterator[CodePlace]:
    """Yield the compiled file of a module, and the folder where it is or would be made."""
    if spec.cached:
        cached = Path(spec.cached)
        yield CodePlace(_existing(cached.parent), is_folder=True)
        if cached.exists():
            yield CodePlace(cached)


def _existing(path: Path) -> Path:
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())


def _load_module(name: str) -> ModuleType:
    folder, first = Path.cwd(), name.partition(".")[0]
    if not (fault := shared_fault(folder)):
        _search(folder)
    elif str(folder) not in sys.path and first not in sys.modules and PathFinder.find_spec(first, [str(folder)]):
        remedy = "start lanebus in a directory of your own, or set PYTHONPATH=. if you trust all who may write here"
        raise DirectoryNotOwned(folder, fault, what=f"module {first!r} was not imported from", remedy=remedy)
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
    is_shared = bool(shared_fault(path.parent))
    if not is_shared:
        _search(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec and (is_shared or any(map(_fault, _compiled(spec)))):
        spec.loader = _WithoutCache(path.stem, str(path))
    if spec is None or spec.loader is None:
        raise TargetNotFound(f"{name!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


class _WithoutCache(SourceFileLoader):
    """Compiles a file from its source: another user may have written the compiled file."""

    def path_stats(self, path: str) -> Never:
        """Raise OSError: without the facts of the source, Python neither reads nor writes a compiled file."""
        raise OSError(path)


def _search(folder: Path) -> None:
    """Search a folder for modules first, as Python does with the folder of a script."""
    if str(folder) not in sys.path and not ("" in sys.path and folder == Path.cwd()):
        sys.path.insert(0, str(folder))


T = TypeVar("T")


class Lazy(Mapping[str, T]):
    """A mapping from names to values. A value is made once, at its first access. Iteration and `in` make no values."""

    def __init__(self, makers: Mapping[str, Callable[[], T]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
