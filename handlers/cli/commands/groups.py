"""`lanebus groups`: show consumer groups, and remove one that has no workers any more."""

from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.bus.groups.status import GroupStatus
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.errors import NoSuchGroup
from lanebus.handlers.cli.options import BusGroup, ViewCommand
from lanebus.handlers.cli.session_id import complete_group
from lanebus.handlers.cli.terminal.consent import ask, require_consent, yes_option
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count

__all__ = ("command",)

_COLUMNS = (
    Column("group", is_flexible=True),
    Column("alive", is_number=True),
    Column("lag", is_number=True),
    Column("pending", is_number=True),
    Column("retries", is_number=True),
    Column("dead", is_number=True),
    Column("last seen"),
)


@click.group("groups", cls=BusGroup)
def command() -> None:
    """Show consumer groups, and remove unused ones. Entries that a group has not handled yet cannot be trimmed, so an
    unused group should be removed.

    \b
    Example: lanebus groups status
    Example: lanebus groups remove agents --yes
    """


@command.command("status", cls=ViewCommand)
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show each group: its live workers, its dead letters, and when a worker was last seen. lag counts sessions that
    wait for a worker, pending counts sessions that a worker has, and retries counts sessions that wait for their next
    attempt.

    \b
    Example: lanebus groups status --json
    """
    found = on_bus(ctx, _status, begins=False)
    Output.of(ctx).items(
        found,
        _json,
        _COLUMNS,
        _row,
        empty="no worker has run here yet: start one with `lanebus worker MODULE:ATTRIBUTE`",
    )
    for group in found:
        if group.is_away:
            tell(f"group {group.name} has had no worker for long: remove it with `lanebus groups remove {group.name}`")


@command.command("remove", cls=ViewCommand)
@click.argument("group", shell_complete=complete_group)
@click.option("--force", is_flag=True, help="Remove it even if its workers seem to be alive.")
@yes_option
@click.pass_context
def remove(ctx: click.Context, group: str, *, force: bool, yes: bool) -> None:
    """Remove a group with its pending work, its dead letters, and its position in the log. Sessions do not change. A
    worker that uses the name again creates a new group. The exit code is 3 if there is no such group.

    \b
    Example: lanebus groups remove agents --yes
    """
    require_consent("removed", yes=yes)
    ask(f"Remove group {group} with its pending work and dead letters?", "removed", yes=yes)
    on_bus(ctx, partial(_remove, group=group, force=force))
    Output.of(ctx).answer({"group": group, "removed": True}, f"group {group} was removed")


async def _remove(bus: Bus, *, group: str, force: bool) -> None:
    if not await bus.remove_group(group, force=force):
        raise NoSuchGroup(group, tuple(await bus.groups()))


async def _status(bus: Bus) -> list[GroupStatus]:
    return [await bus.group_status(name) for name in await bus.groups()]


def _json(group: GroupStatus) -> dict[str, object]:
    return {
        "group": group.name,
        "alive": sum(each.is_alive for each in group.consumers),
        "lag": group.lag,
        "pending": group.pending,
        "retries": group.retries,
        "dead": group.dead,
        "seen": group.seen,
        "is_away": group.is_away,
    }


def _row(group: GroupStatus) -> tuple[str, ...]:
    alive = sum(each.is_alive for each in group.consumers)
    return (
        *(group.name, count(alive), f"{count(group.lag)}{'+' if group.is_lag_more else ''}", count(group.pending)),
        *(count(group.retries), count(group.dead), _ago(group.seen)),
    )


def _ago(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    for length, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{count(int(seconds // length))} {unit} ago"
    return f"{seconds:.0f} s ago"
