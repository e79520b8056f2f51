"""`lanebus help` and `lanebus completion`: print the help of a command or a topic, and the script for a shell."""

from collections.abc import Callable, Iterable, Mapping

import click
from click.shell_completion import ShellComplete, get_completion_class

from lanebus.handlers.cli.exits import ExitCode, WrongUsage, did_you_mean
from lanebus.handlers.cli.options import SHARED_OPTIONS
from lanebus.handlers.cli.output import put_lines


@click.command("help")
@click.argument("words", nargs=-1, metavar="[TOPIC | COMMAND…]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Print the help of a command, or of a topic: options, exit-codes.

    \b
    Example: lanebus help exit-codes
    Example: lanebus help dead redrive
    """
    if len(words) == 1 and words[0] in TOPICS:
        put_lines(_topic_text(words[0]))
        return
    root = ctx.find_root()
    inner = root
    for word in words:
        group = inner.command
        found = group.get_command(inner, word) if isinstance(group, click.Group) else None
        if found is None:
            raise _unknown_word(inner, word, is_first=inner is root)
        inner = click.Context(found, info_name=word, parent=inner)
    put_lines(inner.get_help())


def _topic_text(name: str) -> str:
    introduction, rows = TOPICS[name]
    formatter = click.HelpFormatter(max_width=100)
    formatter.write_text(introduction)
    formatter.write_paragraph()
    formatter.write_dl(list(rows()))
    return formatter.getvalue()


def _unknown_word(ctx: click.Context, word: str, *, is_first: bool) -> click.UsageError:
    commands = ctx.command.list_commands(ctx) if isinstance(ctx.command, click.Group) else []
    topics = TOPICS if is_first else ()
    hint = did_you_mean(word, [*topics, *commands]) or f"`{ctx.command_path} --help` lists the commands"
    return WrongUsage(f"there is no help on {word!r}", hint)


# Help that does not belong to a single command: the topics of `lanebus help`. Pure.


def exit_codes() -> list[tuple[str, str]]:
    """Return each exit code with its meaning."""
    return [(str(int(code)), code.meaning) for code in ExitCode]


def shared_options() -> list[tuple[str, str]]:
    """Return each option that many commands have, with its meaning."""
    return [(option.usage, option.help_with_variable) for option in SHARED_OPTIONS]


Topic = tuple[str, Callable[[], Iterable[tuple[str, str]]]]

TOPICS: Mapping[str, Topic] = {
    "options": (
        "Options of many commands, before or after the command's name. --json, --table and --wide belong to commands "
        "that print; other commands refuse them.",
        shared_options,
    ),
    "exit-codes": (
        "What each exit code means. stderr has `error:` and the reason, then `hint:` and the next step.",
        exit_codes,
    ),
}
"""introduction and table of each topic, by the topic's name"""


_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands, options, choices, session ids, agents and groups. Session ids,
    agents and groups are read from the bus that the command line or the environment names. At most 100 are shown, and
    none if the bus takes longer than one second.

    \b
    bash: add to ~/.bashrc                     eval "$(lanebus completion bash)"
    zsh:  add to ~/.zshrc                      eval "$(lanebus completion zsh)"
    fish: save as completions/lanebus.fish     lanebus completion fish > ~/.config/fish/completions/lanebus.fish

    \b
    Example: lanebus completion bash
    """
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101  # only for the type checker: click has these three
    # The class of bash would start a bash to look at its version.
    click.echo(ShellComplete.source(script(ctx.find_root().command, {}, "lanebus", "_LANEBUS_COMPLETE")), nl=False)
