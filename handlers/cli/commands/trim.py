"""`lanebus trim`: the oldest entries out of the log."""

from functools import partial

import click

from lanebus.bus.retention.trim import Trimmed
from lanebus.bus.session.session import Session
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.text import count, size
from lanebus.handlers.projections.retention import trim_session

__all__ = ("command",)


@click.command("trim", cls=ViewCommand)
@click.argument("session")
@click.option(
    "--before", type=click.IntRange(min=1), required=True, metavar="POSITION", help="The first entry that is kept."
)
@click.option("--force", is_flag=True, help="Pass those who still need some of it; a note in the session says so.")
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would be trimmed, and who still needs it.")
@click.pass_context
def command(ctx: click.Context, session: str, *, before: int, force: bool, dry_run: bool) -> None:
    """Take everything before a position out of a session's log. Positions stay as they are. It is refused as long as
    somebody needs some of it: a projection of your own, a reader with a checkpoint, a fork, a group of workers. What
    `lanebus archive` has written before is still read from there by all who are given the same --archive.

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
        f"{session}: {_amount(trimmed)} {'would be ' if dry_run else ''}trimmed, kept from {trimmed.first_kept}",
    )
    if dry_run and not output.is_json:
        for name, position in sorted(trimmed.holders.items()):
            output.line(f"  needed by {name}, which is done up to {position}")


async def _trim(session: Session, *, before: int, force: bool, dry_run: bool) -> Trimmed:
    plan = await trim_session(session, before, dry_run=True)
    if dry_run:
        return plan
    passed = ", ".join(f"{name} at {position}" for name, position in sorted(plan.holders.items()))
    if force and passed:
        tell(f"{session.id}: trimming {_amount(plan)} that are still needed by {passed}")
    elif not passed:
        tell(f"{session.id}: trimming {_amount(plan)}")
    return await trim_session(session, before, force=force)


def _amount(trimmed: Trimmed) -> str:
    return f"{count(trimmed.entries)} entries of {size(trimmed.size_bytes)}"
