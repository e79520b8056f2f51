"""The command line: `lanebus`.

Start with `group.py`: it lists the commands and runs one. The commands are in `commands/`, `output.py` prints their
answers.

Expected errors become one line on stderr and an exit code, see `exits.py`. Ctrl-C and SIGTERM close the bus. `lanebus
--help` imports neither the bus nor a command.
"""

import sys
from typing import NoReturn

__all__ = ("main",)


def main() -> NoReturn:
    """Run the command that this process's arguments name, and exit with the command's exit code."""
    try:
        from lanebus.handlers.cli.group import run_command_line  # noqa: PLC0415  # Ctrl-C during the import exits with 130 too

        code = run_command_line()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
