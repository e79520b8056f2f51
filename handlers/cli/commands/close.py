"""`lanebus close`: a session takes no further messages."""

import click

from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import user_messages
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.receipt import show_state

__all__ = ("command",)


@click.command("close", cls=BusCommand)
@click.argument("session")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]…")
@click.option("--reason", default="", metavar="TEXT", help="Why; it stands in the note that ends the log.")
@click.option("--key", help="Your own name for this; closed again under it, nothing is added.")
@click.option(
    "--expected", type=click.IntRange(min=0), metavar="POSITION", help="Refuse if the session's last entry is another."
)
@click.pass_context
def command(
    ctx: click.Context, session: str, messages: tuple[str, ...], *, reason: str, key: str | None, expected: int | None
) -> None:
    """Close a session: in one step with the last MESSAGES of the user, if there are any, it takes no further ones.
    What is in it stays. At its end stands a note `session.closed` with the reason, for readers however late they come.

    \b
    Example: lanebus close support-42 --reason solved "Thanks, that was it."
    """
    said = user_messages(messages)
    receipt = on_session(ctx, session, lambda it: it.close(*said, reason=reason, key=key, expected=expected))
    show_state(Output.of(ctx), session, receipt, is_closed=True)
