"""From the arguments to an exit code."""

import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TextIO, cast

import click

from lanebus.handlers.cli.exits import INTERRUPTED, exit_code
from lanebus.handlers.cli.group import lanebus
from lanebus.handlers.cli.terminal.output import tell

__all__ = ("run_command_line",)


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Every expected error is told on stderr; one that nobody expected is raised as it is.

    Args:
        arguments: None are those of the process.

    Returns:
        The exit code: see `exits.py`.
    """
    # A message may hold what an ASCII terminal cannot show: then it is shown escaped, and nothing breaks.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = cast("int | None", lanebus.main(arguments, prog_name="lanebus", standalone_mode=False))
            sys.stdout.flush()
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except click.Abort:
            return INTERRUPTED
        except (Exception, KeyboardInterrupt) as error:
            found = exit_code(error)
            if found is None:
                raise
            return found
    return code or 0


def _show_warning(  # noqa: PLR0917  # as Python calls it
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line, without the place in our code that a Python warning shows."""
    del category, filename, lineno, file, line
    tell(f"warning: {message}")
