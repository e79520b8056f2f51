"""Exit codes. An expected error becomes one line on stderr and an exit code, never a traceback."""

import errno
import os
import sys
from contextlib import suppress
from typing import cast

from lanebus.handlers.cli.terminal.text import plain

__all__ = ("FAILED", "INTERRUPTED", "READER_GONE", "SETTINGS", "TERMINATED", "Terminated", "exit_code", "silence")

FAILED = 1
SETTINGS = 2
"""settings that cannot work; also click's code for wrong usage"""
INTERRUPTED = 130
READER_GONE = 141
"""128 + SIGPIPE, as for programs that SIGPIPE ends, so that a shell with `pipefail` treats lanebus like these"""
TERMINATED = 143

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Terminated(Exception):
    """The process received SIGTERM and has closed everything that was open."""


def exit_code(error: BaseException) -> int | None:
    """Print an expected error to stderr, and return its exit code. None means that the error is unexpected.

    `bus` is imported here and not at the top: the import takes most of the start time, and if an error comes from the
    bus, `bus` is already imported.
    """
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, Terminated):
        return TERMINATED
    if isinstance(error, BrokenPipeError):
        silence()
        return READER_GONE
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        silence()
        _tell(f"the output could not be written: {error.strerror}")
        return FAILED
    if isinstance(error, BaseExceptionGroup):
        return _of_group(cast("BaseExceptionGroup[BaseException]", error))
    from lanebus.bus.errors import BusError, SetupError  # noqa: PLC0415

    if isinstance(error, BusError):
        _tell(str(error))
        return SETTINGS if isinstance(error, SetupError) else FAILED
    return None


def silence() -> None:
    """Discard the rest of the output to stdout. Its reader is gone, which Python would report again at the end."""
    with suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def _tell(text: str) -> None:
    with suppress(BrokenPipeError):
        print(f"error: {plain(text)}", file=sys.stderr, flush=True)


def _of_group(group: BaseExceptionGroup[BaseException]) -> int | None:
    """If all errors of the group are expected, print the first error and return its exit code; else return None."""
    from lanebus.bus.errors import BusError  # noqa: PLC0415

    expected = (KeyboardInterrupt, Terminated, BrokenPipeError, BusError)
    if group.split(expected)[1] is not None:
        return None
    return exit_code(group.exceptions[0])
