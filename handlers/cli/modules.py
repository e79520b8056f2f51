"""Load an object of a module that the user names, and the packages of an extra that a command needs.

If the module raises, only the module's own traceback is shown.
"""

import os
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from lanebus.bus import Redact, Redaction
from lanebus.bus.errors import BusError, DirectoryNotOwned, InvalidArgument, MissingExtra, SetupError
from lanebus.bus.storage import open_owned
from lanebus.bus.text import without_secrets
from lanebus.handlers.cli.errors import ModuleRaised
from lanebus.handlers.cli.output import tell
from lanebus.handlers.projections import TargetNotFound, by_name, load_object, shared_fault

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
        if os.path.exists(file) and (fault := shared_fault(Path(file).absolute().parent)):
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
        if file == by_name.__file__:
            is_loader = True
        elif is_loader and not file.startswith("<frozen importlib") and not file.endswith("importlib/__init__.py"):
            return inner
        inner = inner.tb_next
    return None


# The function of `--redact`, which changes messages before a command stores or shows them.


class RedactNotFound(SetupError):
    """`--redact` names no plain function. Nothing was opened. Fields: `target`, the text; `reason`, what is wrong."""

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(
            f"redact {target!r}: {reason}",
            "name a plain function that takes and returns a message, as module:attribute or path/to/file.py:attribute",
        )
        self.target, self.reason = target, reason


def redact_of(target: str | None) -> Redact | None:
    """Return the function at `module:attribute` or `path/to/file.py:attribute`; None if `target` is None.

    Raises:
        RedactNotFound: there is no such module, file or attribute, or it cannot be called, is async or is a class.
        ModuleRaised: the module raised an error while it was imported.
    """
    return None if target is None else load_module(_load_redact, target)


def _load_redact(target: str) -> Redact:
    try:
        found = cast("Redact", load_object(target, example="my_package.privacy:hide_cards"))
    except TargetNotFound as error:
        raise RedactNotFound(target, error.reason) from None
    try:
        Redaction(found)
    except InvalidArgument:
        raise RedactNotFound(target, "it cannot be called, is async, or is a class") from None
    return found


@contextmanager
def needs_mcp() -> Generator[None]:
    """Raise MissingExtra if an import in the block needs a package of the extra `mcp` that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types", "starlette", "uvicorn", "httpx2"}:
            raise
        raise MissingExtra("mcp", "mcp") from None
