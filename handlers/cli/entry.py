"""Run one command, and convert its errors to an exit code."""

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import cast

import click

from lanebus.handlers.cli.exits import ExitCode, exit_code
from lanebus.handlers.cli.group import lanebus
from lanebus.handlers.cli.terminal.output import put_lines, tell
from lanebus.handlers.cli.terminal.text import visible
from lanebus.handlers.cli.usage import show_usage_error

__all__ = ("run_command_line",)


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Print expected errors to stderr; raise unexpected errors.

    Args:
        arguments: the command-line arguments; None takes the arguments of the process.

    Returns:
        The exit code, see `exits.py`.
    """
    _leave_shared_folder()
    # Escape characters that the terminal's encoding lacks; by default, printing them raises.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if logging.lastResort is not None:  # writes warnings of commands that log to no handler
        logging.lastResort.setFormatter(_SafeLines())
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = cast("int | None", lanebus.main(arguments, prog_name="lanebus", standalone_mode=False))
            sys.stdout.flush()
        except click.ClickException as error:
            return show_usage_error(error)
        except click.Abort:
            return ExitCode.INTERRUPTED
        except (Exception, KeyboardInterrupt) as error:
            error_code = exit_code(error)
            if error_code is None:
                sys.excepthook = _show_crash
                raise
            return error_code
    return code or 0


def _leave_shared_folder() -> None:
    """Import nothing from the working directory, as `python -m` does, if other users may put files there."""
    with suppress(OSError):  # the directory was removed
        folder = Path.cwd()
        if sys.path[:1] not in ([""], [str(folder)]) or os.name != "posix":
            return
        facts = [each.stat() for each in (folder, *folder.parents)]
        if all(each.st_uid in {os.geteuid(), 0} and not each.st_mode & 0o022 for each in facts):
            return  # in most folders; the import of what judges the others takes longer than `--help`
        from lanebus.handlers.load import shared_fault  # noqa: PLC0415

        if shared_fault(folder):
            del sys.path[0]


class _SafeLines(logging.Formatter):
    """Writes a record without secrets, and with unsafe characters written as codes."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return "\n".join(map(visible, _without_secrets(super().format(record)).split("\n")))


def _without_secrets(text: str) -> str:
    from lanebus.bus.error_text import without_secrets  # noqa: PLC0415  # loads the errors, which --help does not need

    return without_secrets(text, 100_000)


def _show_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error without secrets, and with unsafe characters written as codes."""
    put_lines(_without_secrets("".join(traceback.format_exception(kind, error, trace))), is_error=True)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a warning as one line, without the file and line number that Python adds."""
    del category
    tell(f"warning: {message}")
