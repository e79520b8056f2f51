"""Ask for confirmation before a command that cannot be undone."""

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from lanebus.handlers.cli.errors import Declined
from lanebus.handlers.cli.terminal.text import visible
from lanebus.handlers.cli.usage import WrongUsage

__all__ = ("ask", "require_consent", "yes_option")

F = TypeVar("F", bound=Callable[..., object])


def yes_option(command: F) -> F:
    """Add the option `--yes` to a command that asks for confirmation."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")(
        command
    )


def require_consent(done: str, *, yes: bool) -> None:
    """Refuse to continue if the user cannot be asked: stdin is not a terminal, and `--yes` is not given.

    Args:
        done: participle of what the command does, as in "nothing was erased".
        yes: whether `--yes` was given.

    Raises:
        WrongUsage: stdin is not a terminal, and `yes` is false.
    """
    if not yes and not sys.stdin.isatty():
        raise WrongUsage(f"nothing was {done}: there is no terminal to ask on", "confirm with --yes")


def ask(question: str, done: str, *, yes: bool) -> None:
    """Ask a question on stderr. Return if the user agreed.

    Call `ask` outside of the event loop, so that Ctrl-C interrupts the wait for an answer.

    Args:
        question: the question, with its question mark.
        done: participle of what the command does, as in "nothing was erased".
        yes: whether `--yes` was given; if so, return without asking.

    Raises:
        Declined: the user did not agree.
    """
    if not yes and not click.confirm(visible(question), err=True):
        raise Declined(done)
