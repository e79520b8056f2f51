"""`lanebus erase`: delete a session for good."""

from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.bus.errors import HeadMissing, SessionDamaged
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.errors import SessionEmpty
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.consent import ask, require_consent, yes_option
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.text import count, moment, size

__all__ = ("command",)


@click.command("erase", cls=ViewCommand)
@click.argument("session", type=SessionId())
@yes_option
@click.option(
    "--with-media",
    is_flag=True,
    help="Also delete its large media that no other session uses. Slow: reads every session.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Erase even if forks share its entries, which become unreadable there, or if its archive is missing.",
)
@click.option(
    "--rewrite",
    is_flag=True,
    help="Make the server rewrite its file, which removes the erased data from it, and wait until it has.",
)
@click.pass_context
def command(ctx: click.Context, session: str, *, yes: bool, with_media: bool, force: bool, rewrite: bool) -> None:
    """Delete everything of a session for good: entries, live deltas, keys, projections and checkpoints. A tombstone
    keeps the session id, which cannot be used again. Repeat the command if it was interrupted.

    The server's file contains the erased data until it is rewritten. Replicas and backups are not changed.

    \b
    Example: lanebus erase support-42 --yes
    """
    require_consent("erased", yes=yes)
    tell(on_bus(ctx, partial(_plan, session_id=session, media=with_media)))
    ask("Erase it for good?", "erased", yes=yes)
    erased = on_bus(ctx, lambda bus: bus.session(session).erase(media=with_media, force=force, rewrite=rewrite))
    media = f", and {count(len(erased.media))} media" if with_media else ""
    Output.of(ctx).answer({"session": session, "is_erased": True, "media": erased.media}, f"{session}: erased{media}")


async def _plan(bus: Bus, *, session_id: str, media: bool) -> str:
    """Describe in one line what will be erased."""
    session = bus.session(session_id)
    try:
        head = await session.head()
    except (HeadMissing, SessionDamaged) as damage:
        return f"{session_id}: erasing all that is left: {damage.fault}"
    if head.is_erased:
        return f"{session_id}: already erased; removing what may be left"
    if not head.position:
        raise SessionEmpty(session_id)
    forks = [name.removeprefix("f:") for name in await session.checkpoints() if name.startswith("f:")]
    shared = f", shared with {', '.join(forks)}" if forks else ""
    others = ", and media that no other session uses" if media else ""
    first = max(head.trimmed, head.own_start.position) + 1
    what = f"entries {first} to {head.position}" if first <= head.position else "no entries of its own"
    return f"{session_id}: erasing {what}, {size(head.size_bytes)}, last written {moment(head.updated)}{shared}{others}"
