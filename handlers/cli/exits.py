"""Exit codes. An expected error becomes `error: …`, a line with the next step, and a code; never a traceback.

Wrong usage is one of these errors: it names similar words if there are any.
"""

import errno
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from enum import IntEnum
from typing import TYPE_CHECKING, cast

import click

from lanebus.handlers.cli.output import put_lines, tell

if TYPE_CHECKING:
    from lanebus.bus.errors import BusError


class ExitCode(IntEnum):
    """The exit codes of `lanebus`. The reference and `lanebus help exit-codes` list them with their meanings."""

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        self = int.__new__(cls, code)
        self._value_ = code
        self.meaning = meaning
        return self

    meaning: str
    """when a command exits with the code, in words"""

    DONE = 0, "Success. Also a worker that SIGTERM ended, once its sessions are finished or returned to the group."
    FAILED = 1, "Failed for another reason: a module of yours raised an error, or the output could not be written."
    USAGE = (
        2,
        "Wrong usage or settings: an unknown option, a missing file, an id that cannot be one, a server that is not "
        "safe to use, a server's user without a right.",
    )
    NOT_FOUND = 3, "Not found: there is no such namespace, session, entry, dead letter, group or projection."
    REFUSED = 4, "Refused: the log, the agent or you said no. Nothing was changed."
    UNAVAILABLE = 5, "Unreachable: the server or a worker did not answer, or cannot now. Trying again may help."
    INVALID = 6, "Invalid input: a message, or what a file holds, cannot be read. Nothing was changed."
    FAULTS = 7, "Faults found: by verify, replay, import or doctor; or stored data is damaged."
    INTERRUPTED = 130, "Ended by Ctrl-C."
    READER_GONE = 141, "The reader of the output closed the pipe, as 128 + SIGPIPE of other programs."
    TERMINATED = 143, "Ended by SIGTERM."


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Terminated(Exception):
    """The process received SIGTERM and has closed everything that was open."""


def exit_code(error: BaseException) -> int | None:
    """Print an expected error to stderr, and return its exit code. None means that the error is unexpected.

    `lanebus.bus` is imported inside the function: an import at the top of the module would take most of the start time.
    """
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, Terminated):
        return ExitCode.TERMINATED
    if isinstance(error, BrokenPipeError):
        silence()
        return ExitCode.READER_GONE
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        silence()
        print_error(f"the output could not be written: {error.strerror}", "free space, or write to another place")
        return ExitCode.FAILED
    if isinstance(error, BaseExceptionGroup):
        return _of_group(cast("BaseExceptionGroup[BaseException]", error))
    from lanebus.bus.errors import BusError  # noqa: PLC0415

    if isinstance(error, BusError):
        from lanebus.handlers.cli.errors import ModuleRaised, next_step  # noqa: PLC0415

        if isinstance(error, ModuleRaised):
            with suppress(BrokenPipeError):
                put_lines(error.trace, is_error=True)
        print_error(error.fault, next_step(error))
        return code_of(error)
    return None


def code_of(error: "BusError") -> ExitCode:
    """Return the exit code of an error of the bus."""
    from lanebus.bus import errors  # noqa: PLC0415
    from lanebus.handlers.agent import RequestDamaged, RequestUnknown  # noqa: PLC0415
    from lanebus.handlers.cli import errors as own  # noqa: PLC0415
    from lanebus.handlers.context import UnknownLeaf  # noqa: PLC0415

    match error:
        case own.ModuleRaised():
            return ExitCode.FAILED
        case own.SessionEmpty() | own.BeyondEnd() | own.NoSuchLetter() | own.NoSuchGroup() | own.NoSuchProjection():
            return ExitCode.NOT_FOUND
        case own.NamespaceMissing() | errors.NoSuchPosition() | errors.MediaMissing():
            return ExitCode.NOT_FOUND
        case UnknownLeaf() | RequestUnknown():
            return ExitCode.NOT_FOUND
        case errors.SetupError() | errors.InvalidSessionId() | errors.InvalidName():
            return ExitCode.USAGE
        case errors.InvalidCursor() | errors.InvalidLetterId():
            return ExitCode.USAGE
        case (
            errors.EntryDamaged()
            | errors.MediaDamaged()
            | errors.ArchiveDamaged()
            | errors.EntriesMissing()
            | errors.HeadMissing()
            | errors.LogEmptied()
            | errors.SessionDamaged()
            | errors.ForgedEntry()
            | RequestDamaged()
        ):
            return ExitCode.FAULTS
        case own.FileUnwritten():
            return ExitCode.FAILED
        case errors.Refused(code="NOPERM"):
            return ExitCode.USAGE
        case errors.Unavailable():
            return ExitCode.UNAVAILABLE
        case errors.MessageError():
            return ExitCode.INVALID
        case _:
            return ExitCode.REFUSED


def silence() -> None:
    """Discard further output to stdout. Call it after a write to stdout failed: otherwise Python writes again when the
    process ends, and reports a second error."""
    with suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def print_error(fault: str, next_step: str) -> None:
    """Print an error to stderr in two lines: what is wrong, and what to do next."""
    with suppress(BrokenPipeError):
        tell(f"error: {fault}")
        tell(f"hint: {next_step}")


def _of_group(group: BaseExceptionGroup[BaseException]) -> int | None:
    """If all errors of the group are expected, print the first error and return its exit code; else return None."""
    from lanebus.bus.errors import BusError  # noqa: PLC0415

    expected = (KeyboardInterrupt, Terminated, BrokenPipeError, BusError)
    if group.split(expected)[1] is not None:
        return None
    return exit_code(group.exceptions[0])


# Wrong usage of the command line: each error names its next step, and similar names if there are any.

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
