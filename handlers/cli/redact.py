"""The function of `--redact`, which changes messages before a command stores or shows them."""

from typing import cast

from lanebus.bus.errors import InvalidArgument, SetupError
from lanebus.bus.redaction import Redact, Redaction
from lanebus.handlers.cli.modules import load_module
from lanebus.handlers.load import TargetNotFound, load_object

__all__ = ("RedactNotFound", "redact_of")


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
    return None if target is None else load_module(_load, target)


def _load(target: str) -> Redact:
    try:
        found = cast("Redact", load_object(target, example="my_package.privacy:hide_cards"))
    except TargetNotFound as error:
        raise RedactNotFound(target, error.reason) from None
    try:
        Redaction(found)
    except InvalidArgument:
        raise RedactNotFound(target, "it cannot be called, is async, or is a class") from None
    return found
