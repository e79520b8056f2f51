"""`lanebus trim`: delete the oldest entries of a session."""

from functools import partial

import click

from lanebus.bus.retention.trim import Trimmed
from lanebus.bus.session.session import Session
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.text import count, size
from lanebus.handlers.projections.retention import trim_session

__all__ = ("command",)


@click.command("trim", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option(
    "--before",
    type=click.IntRange(min=1),
    required=True,
    metavar="POSITION",
    help="First position to keep; at most one after the last.",
)
@click.option("--force", is_flag=True, help="Trim even entries that are still needed; the session records this.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be trimmed, and what still needs it.")
@click.pass_context
def command(ctx: click.Context, session: str, *, before: int, force: bool, dry_run: bool) -> None:
    """Delete all entries before a position. The other entries keep their positions.

    The trim is refused while these entries are needed by a custom projection, a reader's checkpoint, a fork, a
    consumer group or the session's agent. Entries archived before with `lanebus archive` stay readable for commands
    with the same --archive.

    An agent needs all messages of the LLM lane: a worker that starts on the session reads the lane from its first
    entry. So archive the session first, and give the workers the same --archive.

    \b
    Example: lanebus trim support-42 --before 5000 --dry-run
    Example: lanebus archive support-42 --archive ./archive && lanebus trim support-42 --before 5000
    """
    trimmed = on_session(ctx, session, partial(_trim, before=before, force=force, dry_run=dry_run))
    output = Output.of(ctx)
    output.answer(
        {
            "session": session,
            "is_dry_run": dry_run,
            "entries": trimmed.entries,
            "size_bytes": trimmed.size_bytes,
            "first_kept": trimmed.first_kept,
            "holders": dict(trimmed.holders),
        },
        f"{session}: {_amount(trimmed)} {'would be ' if dry_run else ''}trimmed, first kept is {trimmed.first_kept}",
    )
    if dry_run and not output.is_json:
        for name, position in sorted(trimmed.holders.items()):
            output.line(f"  still needed by {name}, which is at position {position}")


async def _trim(session: Session, *, before: int, force: bool, dry_run: bool) -> Trimmed:
    plan = await trim_session(session, before, dry_run=True)
    if dry_run:
        return plan
    holders = ", ".join(f"{name} at {position}" for name, position in sorted(plan.holders.items()))
    if force and holders:
        tell(f"{session.id}: trimming {_amount(plan)} that are still needed by {holders}")
    elif not holders:
        tell(f"{session.id}: trimming {_amount(plan)}")
    return await trim_session(session, before, force=force)


def _amount(trimmed: Trimmed) -> str:
    return f"{count(trimmed.entries)} entries of {size(trimmed.size_bytes)}"
