"""The command line: `lanebus`.

Start with `group.py`, which lists the commands, each a file in `commands/`. `entry.py` runs one; `terminal/` prints.

Every expected error ends as one line on stderr and an exit code, see `exits.py`, and Ctrl-C and SIGTERM close what is
open. `lanebus --help` imports neither the bus nor a command.
"""

import sys
from typing import NoReturn

__all__ = ("main",)


def main() -> NoReturn:
    """Run the command line of this process, and exit with its code."""
    try:
        from lanebus.handlers.cli.entry import run_command_line  # noqa: PLC0415  # a Ctrl-C while it is imported is one too

        code = run_command_line()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
