"""`lanebus erase`: a session away, for good."""

import sys
from functools import partial

import click

from bus.erasure import Erased
from handlers.cli.errors import SessionEmpty
from handlers.cli.opening import open_bus
from handlers.cli.options import Settings, ViewCommand
from handlers.cli.output import Output, tell
from handlers.cli.run import run
from handlers.cli.text import count, moment, size

__all__ = ("command",)


@click.command("erase", cls=ViewCommand)
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal to ask at.")
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
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nothing was erased: without a terminal to ask at it wants --yes")
    settings = Settings.of(ctx)
    tell(run(partial(_plan, settings, session, media=with_media)))
    # Asked for outside of the event loop, where a Ctrl-C ends the waiting for a line.
    if not yes and not click.confirm("Erase it, for good?", err=True):
        tell("nothing was erased")
        return 1
    erased = run(partial(_erase, settings, session, media=with_media, force=force, rewrite=rewrite))
    output = Output.of(ctx)
    if output.is_json:
        output.json({"session": session, "is_erased": True, "media": erased.media})
    else:
        media = f", and {count(len(erased.media))} media" if with_media else ""
        output.line(f"{session}: erased{media}")
    return 0


async def _erase(settings: Settings, session_id: str, *, media: bool, force: bool, rewrite: bool) -> Erased:
    async with open_bus(settings) as bus:
        return await bus.session(session_id).erase(media=media, force=force, rewrite=rewrite)


async def _plan(settings: Settings, session_id: str, *, media: bool) -> str:
    """What is about to go, in a line."""
    async with open_bus(settings) as bus:
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
