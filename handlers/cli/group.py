"""All commands, by name, and how one of them runs.

A command is imported when it runs, so `lanebus --help` does not load the bus. Expected errors become an exit code.
"""

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import cast

import click

from lanebus.handlers.cli.exits import ExitCode, exit_code, show_usage_error
from lanebus.handlers.cli.options import WithBusOptions, check_variables
from lanebus.handlers.cli.output import put, put_lines, tell, visible


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
        from lanebus.handlers.projections import shared_fault  # noqa: PLC0415

        if shared_fault(folder):
            del sys.path[0]


class _SafeLines(logging.Formatter):
    """Writes a record without secrets, and with unsafe characters written as codes."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return "\n".join(map(visible, _without_secrets(super().format(record)).split("\n")))


def _without_secrets(text: str) -> str:
    from lanebus.bus.text import without_secrets  # noqa: PLC0415  # loads the errors, which --help does not need

    return without_secrets(text, 100_000)


def _show_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error without secrets, and with unsafe characters written as codes."""
    put_lines(_without_secrets("".join(traceback.format_exception(kind, error, trace))), is_error=True)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a warning as one line, without the file and line number that Python adds."""
    del category
    tell(f"warning: {message}")


COMMANDS: dict[str, dict[str, str]] = {
    "Start here": {
        "demo": "Run a small agent and its web page. Needs no API key.",
        "help": "Show the help of a command or a topic: options, exit-codes.",
        "completion": "Print a script for a shell that completes commands and ids.",
    },
    "Read": {
        "sessions": "List sessions, most recently active first.",
        "show": "Print a session as a conversation.",
        "tail": "Show the entries of a session, and follow new ones.",
        "turns": "Show the model calls of a session, with tools, tokens and cost.",
        "usage": "Show the tokens and the cost of a session.",
        "context": "Print the request that a model receives for a session.",
        "agents": "List agents, and set the default one.",
        "top": "Show consumer groups, running sessions and waiting work, live.",
    },
    "Write": {
        "publish": "Append a message to a session.",
        "control": "Send a command to the agent of a session, such as abort.",
        "close": "Close a session: it accepts no further messages.",
        "reopen": "Reopen a closed session.",
        "hand-over": "Hand a session over to another agent.",
        "fork": "Start a session that shares the first entries of another.",
    },
    "Import and export": {
        "import": "Read a transcript file into a session.",
        "export": "Write a session to a file.",
        "convert": "Convert messages between the formats of several systems.",
    },
    "Maintain": {
        "acl": "Print users for the access list of your server.",
        "alerts": "Print alerts for Prometheus, or a dashboard for Grafana.",
        "doctor": "Look for what loses messages or makes commands fail.",
        "verify": "Check that stored sessions are complete and undamaged.",
        "namespace": "Accept a log that was emptied, or is an older copy.",
        "replay": "Recompute projections, and compare them with the stored ones.",
        "archive": "Copy entries of sessions to compressed files.",
        "trim": "Delete the oldest entries of a session.",
        "erase": "Delete a session for good.",
        "dead": "List, show and redrive dead letters.",
        "groups": "Show consumer groups, and remove unused ones.",
        "projections": "List and remove stored projections.",
    },
    "Run": {
        "worker": "Run an agent on all sessions that need an answer.",
        "acp": "Serve an agent to an editor, over stdin and stdout.",
        "mcp": "Let an MCP client read sessions, over stdin and stdout.",
        "serve": "Serve the web page that shows sessions live.",
        "token": "Make keys for the web page's API, sign tokens and revoke them.",
        "server": "Show or stop the embedded server.",
        "config": "Show the settings, and where each comes from.",
    },
}
"""one-line description of each command, by heading and command name"""

_WITHOUT_SETTINGS = frozenset({"help", "completion"})
"""commands that read no settings, and run also if a variable is wrong"""

_HELP = frozenset({"-h", "--help"})

_NAMES = tuple(name for group in COMMANDS.values() for name in group)

_SHARED = {
    "completion": "help",
    "help": "help",
    "acp": "clients",
    "mcp": "clients",
    "show": "show",
    "tail": "show",
    "usage": "turns",
    "context": "turns",
    "turns": "turns",
    "publish": "write",
    "control": "write",
    "close": "write",
    "reopen": "write",
    "hand-over": "write",
    "fork": "write",
    "import": "transcripts",
    "export": "transcripts",
    "convert": "transcripts",
    "verify": "verify",
    "replay": "verify",
    "namespace": "verify",
    "archive": "retention",
    "trim": "retention",
    "erase": "retention",
    "projections": "retention",
    "agents": "groups",
    "groups": "groups",
    "dead": "groups",
    "server": "server",
    "acl": "server",
    "alerts": "server",
}
"""command → its module, where the module has several commands: there it is `<command>_command`, else `command`"""


def module_of(name: str) -> str:
    """Return the name of the module that defines this command."""
    return f"lanebus.handlers.cli.commands.{_SHARED.get(name, name)}"


def load_command(name: str) -> click.Command:
    """Import the module of a command, and return the command."""
    attribute = f"{name.replace('-', '_')}_command" if name in _SHARED else "command"
    command: object = getattr(import_module(module_of(name)), attribute)
    assert isinstance(command, click.Command)  # noqa: S101  # only for the type checker; a test loads them all
    return command


class _Commands(WithBusOptions, click.Group):
    """A click group that imports a command on demand and converts the command's errors to exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _NAMES:
            return None
        return load_command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from `COMMANDS`. By default, click would import every command to read its short help."""
        del ctx
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name. Refuse unknown environment variables, unless the command needs no
        settings or only prints help."""
        name, command, rest = super().resolve_command(ctx, args)
        options = rest[: rest.index("--")] if "--" in rest else rest
        if not (ctx.resilient_parsing or name in _WITHOUT_SETTINGS or _HELP & {*options}):
            check_variables()
        return name, command, rest

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. Convert its errors to exit codes before click itself handles Ctrl-C and broken pipes."""
        try:
            result = cast("object", super().invoke(ctx))
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            code = exit_code(error)
            if code is None:
                raise
            raise click.exceptions.Exit(code) from None
        return result


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # takes as long as all other imports

        try:
            put(f"lanebus {version('lanebus')}")
        except PackageNotFoundError:
            put("lanebus (run from source, not installed)")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Print the version."
)
def lanebus() -> None:
    """lanebus is a message bus for agent loops. A session is one numbered log with two lanes: the LLM lane holds what
    the model sees, the extension lane holds events for people and programs.

    Without --url, commands share an embedded server, which runs as long as one of them needs it. Commands print tables
    to a terminal, and JSON with one object per line to a file or a pipe. The commands demo, worker, acp, mcp,
    serve and verify warn of a server that may lose acknowledged messages in a crash.

    \b
    Examples:
      lanebus demo
      lanebus publish first "What is 17 × 23?"
      lanebus tail first

    An error prints its reason and the next step. `lanebus help exit-codes` lists the exit codes.
    """
