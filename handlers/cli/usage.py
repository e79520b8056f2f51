"""Wrong usage of the command line: each error names its next step, and similar names if there are any."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import click

from lanebus.handlers.cli.exits import ExitCode, print_error
from lanebus.handlers.cli.terminal.output import put_lines

__all__ = ("WrongUsage", "did_you_mean", "show_usage_error")

_NOT_ONE_OF = re.compile(r"'(.*)' is not one of ")


class WrongUsage(click.UsageError):
    """The arguments or options of a command are invalid, or exclude each other.

    Fields: `message`, what is wrong; `remedy`, what to write instead.
    """

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(fault)
        self.remedy = remedy


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that names the known words nearest to a word; "" if none is near."""
    near = get_close_matches(word, list(known))
    return f"did you mean {' or '.join(near)}?" if near else ""


def show_usage_error(error: click.ClickException) -> ExitCode:
    """Print an error of click in lanebus's form, and return its exit code.

    `lanebus` alone is no error: it prints its help.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and error.ctx.parent is None:
        put_lines(error.format_message())
        return ExitCode.DONE
    print_error(_fault(error), _next_step(error))
    return ExitCode.USAGE


def _fault(error: click.ClickException) -> str:
    match error:
        case WrongUsage():
            return error.message
        case click.exceptions.NoArgsIsHelpError(ctx=ctx):
            text = f"{ctx.command_path} needs a command"
        case click.exceptions.NoSuchCommand() | click.NoSuchOption():
            text = error.message
        case _:
            text = error.format_message()
    text = text.strip().removesuffix(".")
    return text[:1].lower() + text[1:]


def _next_step(error: click.ClickException) -> str:
    match error:
        case WrongUsage(remedy=remedy):
            return remedy
        case click.exceptions.NoArgsIsHelpError(ctx=ctx):
            return f"write one of {', '.join(_commands(ctx))}"
        case click.exceptions.NoSuchCommand(ctx=click.Context() as ctx, command_name=name):
            return did_you_mean(name, _commands(ctx)) or f"`{ctx.command_path} --help` lists the commands"
        case click.NoSuchOption(ctx=click.Context() as ctx, option_name=name):
            if owner := _owner(ctx, name):
                return f"write it after the command, such as `{ctx.command_path} {owner} {name}`"
            options = [option for param in ctx.command.get_params(ctx) for option in param.opts]
            return did_you_mean(name, options) or f"`{ctx.command_path} --help` lists the options"
        case click.MissingParameter(ctx=click.Context() as ctx):
            return f"write {ctx.get_usage().removeprefix('Usage: ')}"
        case click.BadParameter(param=click.Parameter(type=click.Choice(choices=choices))):
            return _among(error.message, [str(choice) for choice in choices]) or _help(error)
        case _:
            return _help(error)


def _commands(ctx: click.Context) -> list[str]:
    return ctx.command.list_commands(ctx) if isinstance(ctx.command, click.Group) else []


def _owner(ctx: click.Context, option: str) -> str | None:
    """Return the first command of a group that has this option; None if none has it, or `ctx` is of no group."""
    for name in _commands(ctx):
        command = ctx.command.get_command(ctx, name) if isinstance(ctx.command, click.Group) else None
        if command is not None and any(option in param.opts for param in command.params):
            return name
    return None


def _among(message: str, choices: Sequence[str]) -> str:
    # Click keeps the refused value only in its text.
    found = _NOT_ONE_OF.match(message)
    return did_you_mean(found[1], choices) if found else ""


def _help(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"`{ctx.command_path if ctx else 'lanebus'} --help` shows how to use it"
