"""The command line: `lanebus`. One file a command; `group.py` lists them, `entry.py` runs them."""

import sys
from typing import NoReturn

__all__ = ("main",)


def main() -> NoReturn:
    """Run the command line of this process, and exit with its code."""
    try:
        from handlers.cli.entry import run_command_line  # noqa: PLC0415  # a Ctrl-C while it is imported is one too

        code = run_command_line()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
