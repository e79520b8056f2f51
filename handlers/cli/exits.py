"""How a command ends: each expected error as one line on stderr and an exit code, and never as a traceback."""

import errno
import os
import sys
from contextlib import suppress
from typing import cast

from lanebus.handlers.cli.terminal.text import plain

__all__ = ("FAILED", "INTERRUPTED", "READER_GONE", "SETTINGS", "TERMINATED", "Terminated", "exit_code", "silence")

FAILED = 1
SETTINGS = 2
"""also click's code for a wrong usage"""
INTERRUPTED = 130
READER_GONE = 141
"""128 + SIGPIPE, what a program gives that the signal ended: a shell with `pipefail` sees the same as of any other"""
TERMINATED = 143

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Terminated(Exception):
    """The process was asked to end, by SIGTERM, and what it had open is closed."""


def exit_code(error: BaseException) -> int | None:
    """The code for an error, after telling the user about it; None for one that nobody expected.

    `bus` is imported here and not above: it takes most of a start, and an error of its own has imported it already.
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
        _tell(f"what was to be said could not be written: {error.strerror}")
        return FAILED
    if isinstance(error, BaseExceptionGroup):
        return _of_group(cast("BaseExceptionGroup[BaseException]", error))
    from lanebus.bus.errors import BusError, SetupError  # noqa: PLC0415

    if isinstance(error, BusError):
        _tell(str(error))
        return SETTINGS if isinstance(error, SetupError) else FAILED
    return None


def silence() -> None:
    """Whoever read our output is gone: what is left of it goes nowhere, so that the end of the process is silent."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _tell(text: str) -> None:
    with suppress(BrokenPipeError):
        print(f"error: {plain(text)}", file=sys.stderr, flush=True)


def _of_group(group: BaseExceptionGroup[BaseException]) -> int | None:
    """The code of a group is that of its first error, if all of them are expected; then only that one is told."""
    from lanebus.bus.errors import BusError  # noqa: PLC0415

    expected = (KeyboardInterrupt, Terminated, BrokenPipeError, BusError)
    if group.split(expected)[1] is not None:
        return None
    return exit_code(group.exceptions[0])
