"""Load an object of a module that the user names. If the module raises, only the module's own traceback is shown."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError, DirectoryNotOwned
from lanebus.bus.storage.ownership import open_owned
from lanebus.handlers import load as loading
from lanebus.handlers.cli.errors import ModuleRaised
from lanebus.handlers.cli.terminal.output import tell

__all__ = ("load_module", "warn_of_others")

T = TypeVar("T")


def load_module(load: Callable[[str], T], target: str) -> T:
    """Return what `load` returns for a target such as `module:attribute`. Warn of a file that others may write.

    Raises:
        BusError: the error of `load`, or one that the module raised, such as a missing extra.
        ModuleRaised: the module raised another error while it was imported.
    """
    file = target.rpartition(":")[0]
    if file.endswith(".py"):
        warn_of_others(Path(file), "file")
        if os.path.exists(file) and (fault := loading.shared_fault(Path(file).absolute().parent)):
            tell(f"warning: {file} cannot import modules of its folder, which {fault}")
    try:
        return load(target)
    except BusError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever the module raises
        own = _own_frames(error.__traceback__)
        trace = without_secrets("".join(traceback.format_exception(type(error), error, own)), 100_000)
        raise ModuleRaised(target, type(error).__name__, trace) from None


def warn_of_others(path: Path, what: str) -> None:
    """Warn that another user could have written a file that the user named. It counts nevertheless."""
    if not path.is_file():
        return  # a missing file is told later; a pipe is read only once
    try:
        os.close(open_owned(path, what, ""))
    except DirectoryNotOwned as error:
        tell(f"warning: {error.fault}")
    except OSError:
        return


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the frames of the user's module, without the frames of the loader and the import system."""
    inner, is_loader = trace, False
    while inner is not None:
        file = inner.tb_frame.f_code.co_filename
        if file == loading.__file__:
            is_loader = True
        elif is_loader and not file.startswith("<frozen importlib") and not file.endswith("importlib/__init__.py"):
            return inner
        inner = inner.tb_next
    return None
