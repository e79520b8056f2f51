"""`lanebus help`: print the help of a command, or of a topic."""

import click

from lanebus.handlers.cli.terminal.output import put_lines
from lanebus.handlers.cli.topics import TOPICS
from lanebus.handlers.cli.usage import WrongUsage, did_you_mean

__all__ = ("command",)


@click.command("help")
@click.argument("words", nargs=-1, metavar="[TOPIC | COMMAND…]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Print the help of a command, or of a topic: options, exit-codes.

    \b
    Example: lanebus help exit-codes
    Example: lanebus help dead redrive
    """
    if len(words) == 1 and words[0] in TOPICS:
        put_lines(_topic(words[0]))
        return
    root = ctx.find_root()
    inner = root
    for word in words:
        group = inner.command
        found = group.get_command(inner, word) if isinstance(group, click.Group) else None
        if found is None:
            raise _unknown(inner, word, is_first=inner is root)
        inner = click.Context(found, info_name=word, parent=inner)
    put_lines(inner.get_help())


def _topic(name: str) -> str:
    introduction, rows = TOPICS[name]
    formatter = click.HelpFormatter(max_width=100)
    formatter.write_text(introduction)
    formatter.write_paragraph()
    formatter.write_dl(list(rows()))
    return formatter.getvalue()


def _unknown(ctx: click.Context, word: str, *, is_first: bool) -> click.UsageError:
    commands = ctx.command.list_commands(ctx) if isinstance(ctx.command, click.Group) else []
    topics = TOPICS if is_first else ()
    hint = did_you_mean(word, [*topics, *commands]) or f"`{ctx.command_path} --help` lists the commands"
    return WrongUsage(f"there is no help on {word!r}", hint)
