"""`lanebus erase`: a session away, for good."""

from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.errors import SessionEmpty
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.terminal.consent import ask, require_consent, yes_option
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.text import count, moment, size

__all__ = ("command",)


@click.command("erase", cls=ViewCommand)
@click.argument("session")
@yes_option
@click.option("--with-media", is_flag=True, help="Also large media that no other session names; reads every session.")
@click.option(
    "--force",
    is_flag=True,
    help="Also if forks share its entries, which then cannot be read, or its archive is not here.",
)
@click.option("--rewrite", is_flag=True, help="Have the server begin to rewrite its file without what was erased.")
@click.pass_context
def command(ctx: click.Context, session: str, *, yes: bool, with_media: bool, force: bool, rewrite: bool) -> int:
    """Remove everything of a session, for good: entries, live deltas, keys, projections, checkpoints. Its id is left on
    a tombstone, and is never used again. Stopped in between, do it again: it goes on.

    The server's file keeps the past until it is rewritten, and backups as long as you keep them.

    \b
    Example: lanebus erase support-42 --yes
    """
    require_consent("erased", yes=yes)
    tell(on_bus(ctx, partial(_plan, session_id=session, media=with_media)))
    if not ask("Erase it, for good?", "erased", yes=yes):
        return 1
    erased = on_bus(ctx, lambda bus: bus.session(session).erase(media=with_media, force=force, rewrite=rewrite))
    media = f", and {count(len(erased.media))} media" if with_media else ""
    Output.of(ctx).answer({"session": session, "is_erased": True, "media": erased.media}, f"{session}: erased{media}")
    return 0


async def _plan(bus: Bus, *, session_id: str, media: bool) -> str:
    """What is about to go, in a line."""
    session = bus.session(session_id)
    head = await session.head()
    if head.is_erased:
        return f"{session_id}: it was erased; what may be left of it goes"
    if not head.position:
        raise SessionEmpty(session_id)
    forks = [name.removeprefix("f:") for name in await session.checkpoints() if name.startswith("f:")]
    shared = f", shared with {', '.join(forks)}" if forks else ""
    others = ", and media that no other session names" if media else ""
    first = max(head.trimmed, head.own_start.position) + 1
    what = f"entries {first} to {head.position}" if first <= head.position else "no entries of its own"
    return f"{session_id}: erasing {what}, {size(head.size_bytes)}, last written {moment(head.updated)}{shared}{others}"
