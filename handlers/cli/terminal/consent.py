"""The question that stands before a command that cannot be undone."""

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from lanebus.handlers.cli.terminal.output import tell

__all__ = ("ask", "require_consent", "yes_option")

F = TypeVar("F", bound=Callable[..., object])


def yes_option(command: F) -> F:
    """The option `--yes` of a command that asks."""
    return click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal to ask at.")(command)


def require_consent(done: str, *, yes: bool) -> None:
    """Refuse to go on where nobody can be asked.

    Args:
        done: what the command does, as in "nothing was erased".

    Raises:
        click.UsageError: there is neither a terminal nor `--yes`.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(f"nothing was {done}: without a terminal to ask at it wants --yes")


def ask(question: str, done: str, *, yes: bool) -> bool:
    """Ask on stderr, unless `--yes` has answered; False: it was refused, and the user was told that nothing was done.

    Call it outside of the event loop, where a Ctrl-C ends the waiting for a line.
    """
    if yes or click.confirm(question, err=True):
        return True
    tell(f"nothing was {done}")
    return False
