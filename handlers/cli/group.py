"""All commands, by name. Each is imported when it is run, so that `lanebus --help` need not load the bus."""

import sys
from importlib import import_module
from keyword import iskeyword
from typing import cast

import click

from lanebus.handlers.cli.exits import exit_code
from lanebus.handlers.cli.options import WithBusOptions

__all__ = ("COMMANDS", "lanebus", "module_of")

COMMANDS: dict[str, dict[str, str]] = {
    "Begin": {"demo": "Run a small agent and the page that shows it; no key is needed."},
    "Look": {
        "sessions": "List the sessions, newest activity first.",
        "tail": "Show a session's entries, and follow what comes.",
        "turns": "Show each model call of a session, with its tools and cost.",
        "usage": "Sum up the tokens and the cost of a session.",
        "context": "Print the request that shows a model what a session holds.",
        "top": "Show who works on what and what waits, live.",
    },
    "Write": {
        "publish": "Append a message to a session.",
        "control": "Tell a session's agent to stop, to listen or to go on.",
        "import": "Put a transcript file into a session.",
    },
    "Carry": {
        "export": "Write a session into a file, for another bus or for safety.",
        "convert": "Turn messages of one system into another's, or a request.",
    },
    "Look after": {
        "verify": "Prove that stored sessions are whole.",
        "replay": "Fold a session's projections anew, and compare the stored.",
        "fork": "Begin a session that shares the beginning of another one.",
        "archive": "Keep what sessions hold in sealed files, out of the server.",
        "dead": "Look at work that was set aside, and send it on its way again.",
        "projections": "Look at what is stored of a session's views, and remove it.",
        "groups": "Look at groups of workers, and end one that nobody works in.",
        "trim": "Take the oldest entries of a session out of its log.",
        "erase": "Remove everything of a session, for good.",
        "close": "Let a session take no further messages.",
        "reopen": "Let a closed session take messages again.",
    },
    "Run": {
        "worker": "Run an agent of yours on the sessions that users speak in.",
        "serve": "Serve the page that shows sessions live.",
        "server": "Look at the embedded server, or stop it.",
    },
}
"""heading → command → what it does, in a line"""

_NAMES = tuple(name for group in COMMANDS.values() for name in group)


def module_of(name: str) -> str:
    """The module that has this command as `command`."""
    return f"lanebus.handlers.cli.commands.{name}{'_' if iskeyword(name) else ''}"


class _Commands(WithBusOptions, click.Group):
    """A group that imports a command only when it is wanted, and turns what a command raises into its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _NAMES:
            return None
        found: object = import_module(module_of(cmd_name)).command
        assert isinstance(found, click.Command)  # noqa: S101  # only for the type checker; a test loads them all
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table: click's own way would import every command for its short help."""
        del ctx
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Here, inside of click, so that it does not make something else of a Ctrl-C or a broken pipe."""
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
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # takes as long as all of ours

        try:
            click.echo(f"lanebus {version('lanebus')}")
        except PackageNotFoundError:
            click.echo("lanebus (run from its sources, not installed)")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def lanebus() -> None:
    """A message bus for agent loops: every session is one numbered log with two lanes, one for the model and one for
    people.

    Without --url it runs its own server in a directory of yours, for as long as a command needs it. On a terminal it
    shows tables; into a file or a pipe it writes JSON, one object a line.

    \b
    Try:
      lanebus demo
      lanebus publish first "What is 17 × 23?"
      lanebus tail first

    \b
    Exit codes:
      0    done
      1    it was refused or it failed, the reason is on stderr
      2    wrong usage, or settings that cannot work
      130  ended by Ctrl-C      141  its reader is gone      143  ended by SIGTERM
    """
