"""Exit codes. An expected error becomes `error: …`, a line with the next step, and a code; never a traceback."""

import errno
import os
import sys
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, cast

from lanebus.handlers.cli.terminal.output import put_lines, tell

if TYPE_CHECKING:
    from lanebus.bus.errors import BusError

__all__ = ("ExitCode", "Terminated", "exit_code", "print_error", "silence")


class ExitCode(IntEnum):
    """The exit codes of `lanebus`. The reference and `lanebus help exit-codes` list them with their meanings."""

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        self = int.__new__(cls, code)
        self._value_ = code
        self.meaning = meaning
        return self

    meaning: str
    """when a command exits with the code, in words"""

    DONE = 0, "Success. Also a worker that SIGTERM ended, once its sessions are finished or returned to the group."
    FAILED = 1, "Failed for another reason: a module of yours raised an error, or the output could not be written."
    USAGE = (
        2,
        "Wrong usage or settings: an unknown option, a missing file, an id that cannot be one, a server that is not "
        "safe to use, a server's user without a right.",
    )
    NOT_FOUND = 3, "Not found: there is no such namespace, session, entry, dead letter, group or projection."
    REFUSED = 4, "Refused: the log, the agent or you said no. Nothing was changed."
    UNAVAILABLE = 5, "Unreachable: the server or a worker did not answer, or cannot now. Trying again may help."
    INVALID = 6, "Invalid input: a message, or what a file holds, cannot be read. Nothing was changed."
    FAULTS = 7, "Faults found: by verify, replay, import or doctor; or stored data is damaged."
    INTERRUPTED = 130, "Ended by Ctrl-C."
    READER_GONE = 141, "The reader of the output closed the pipe, as 128 + SIGPIPE of other programs."
    TERMINATED = 143, "Ended by SIGTERM."


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Terminated(Exception):
    """The process received SIGTERM and has closed everything that was open."""


def exit_code(error: BaseException) -> int | None:
    """Print an expected error to stderr, and return its exit code. None means that the error is unexpected.

    `lanebus.bus` is imported inside the function: an import at the top of the module would take most of the start time.
    """
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, Terminated):
        return ExitCode.TERMINATED
    if isinstance(error, BrokenPipeError):
        silence()
        return ExitCode.READER_GONE
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        silence()
        print_error(f"the output could not be written: {error.strerror}", "free space, or write to another place")
        return ExitCode.FAILED
    if isinstance(error, BaseExceptionGroup):
        return _of_group(cast("BaseExceptionGroup[BaseException]", error))
    from lanebus.bus.errors import BusError  # noqa: PLC0415

    if isinstance(error, BusError):
        from lanebus.handlers.cli.errors import ModuleRaised  # noqa: PLC0415
        from lanebus.handlers.cli.next_step import next_step  # noqa: PLC0415

        if isinstance(error, ModuleRaised):
            with suppress(BrokenPipeError):
                put_lines(error.trace, is_error=True)
        print_error(error.fault, next_step(error))
        return code_of(error)
    return None


def code_of(error: "BusError") -> ExitCode:
    """Return the exit code of an error of the bus."""
    from lanebus.bus import errors  # noqa: PLC0415
    from lanebus.handlers.agent.errors import RequestDamaged, RequestUnknown  # noqa: PLC0415
    from lanebus.handlers.cli import errors as own  # noqa: PLC0415
    from lanebus.handlers.context.errors import UnknownLeaf  # noqa: PLC0415

    match error:
        case own.ModuleRaised():
            return ExitCode.FAILED
        case own.SessionEmpty() | own.BeyondEnd() | own.NoSuchLetter() | own.NoSuchGroup() | own.NoSuchProjection():
            return ExitCode.NOT_FOUND
        case own.NamespaceMissing() | errors.NoSuchPosition() | errors.MediaMissing():
            return ExitCode.NOT_FOUND
        case UnknownLeaf() | RequestUnknown():
            return ExitCode.NOT_FOUND
        case errors.SetupError() | errors.InvalidSessionId() | errors.InvalidName():
            return ExitCode.USAGE
        case errors.InvalidCursor() | errors.InvalidLetterId():
            return ExitCode.USAGE
        case (
            errors.EntryDamaged()
            | errors.MediaDamaged()
            | errors.ArchiveDamaged()
            | errors.EntriesMissing()
            | errors.HeadMissing()
            | errors.LogEmptied()
            | errors.SessionDamaged()
            | errors.ForgedEntry()
            | RequestDamaged()
        ):
            return ExitCode.FAULTS
        case own.FileUnwritten():
            return ExitCode.FAILED
        case errors.Refused(code="NOPERM"):
            return ExitCode.USAGE
        case errors.Unavailable():
            return ExitCode.UNAVAILABLE
        case errors.MessageError():
            return ExitCode.INVALID
        case _:
            return ExitCode.REFUSED


def silence() -> None:
    """Discard further output to stdout. Call it after a write to stdout failed: otherwise Python writes again when the
    process ends, and reports a second error."""
    with suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def print_error(fault: str, next_step: str) -> None:
    """Print an error to stderr in two lines: what is wrong, and what to do next."""
    with suppress(BrokenPipeError):
        tell(f"error: {fault}")
        tell(f"hint: {next_step}")


def _of_group(group: BaseExceptionGroup[BaseException]) -> int | None:
    """If all errors of the group are expected, print the first error and return its exit code; else return None."""
    from lanebus.bus.errors import BusError  # noqa: PLC0415

    expected = (KeyboardInterrupt, Terminated, BrokenPipeError, BusError)
    if group.split(expected)[1] is not None:
        return None
    return exit_code(group.exceptions[0])
