"""`lanebus groups`: the groups of workers, and the end of one that nobody works in any more."""

import click

from lanebus.bus.bus import Bus
from lanebus.bus.groups.status import GroupStatus
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.options import BusGroup, ViewCommand
from lanebus.handlers.cli.terminal.consent import ask, require_consent, yes_option
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count

__all__ = ("command",)

_COLUMNS = (
    Column("group", is_flexible=True),
    Column("alive", is_number=True),
    Column("waiting", is_number=True),
    Column("in hand", is_number=True),
    Column("put off", is_number=True),
    Column("dead", is_number=True),
    Column("last sign"),
)


@click.group("groups", cls=BusGroup)
def command() -> None:
    """Look at groups of workers, and remove one that nobody works in any more: until then its open work keeps what it
    needs of its sessions from being trimmed.

    \b
    Example: lanebus groups status
    Example: lanebus groups remove agents --yes
    """


@command.command("status", cls=ViewCommand)
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show each group: who is alive, what waits, and when the last sign of life of any worker came.

    \b
    Example: lanebus groups status --json
    """
    found = on_bus(ctx, _status)
    Output.of(ctx).items(found, _json, _COLUMNS, _row, empty="no worker has ever taken work here")
    for group in found:
        if group.is_away:
            tell(f"group {group.name}: nobody has worked in it for long; `lanebus groups remove {group.name}` ends it")


@command.command("remove", cls=ViewCommand)
@click.argument("group")
@click.option("--force", is_flag=True, help="Also where workers of it seem to be alive.")
@yes_option
@click.pass_context
def remove(ctx: click.Context, group: str, *, force: bool, yes: bool) -> int:
    """End a group: its open work, its dead letters and its place go. Sessions are as they were. A worker that comes by
    its name again begins a new one.

    \b
    Example: lanebus groups remove agents --yes
    """
    require_consent("removed", yes=yes)
    if not ask(f"Remove the group {group}, with its open work and dead letters?", "removed", yes=yes):
        return 1
    was_there = on_bus(ctx, lambda bus: bus.remove_group(group, force=force))
    outcome = "was removed" if was_there else "does not exist"
    Output.of(ctx).answer({"group": group, "removed": was_there}, f"group {group} {outcome}")
    return 0 if was_there else 1


async def _status(bus: Bus) -> list[GroupStatus]:
    return [await bus.group_status(name) for name in await bus.groups()]


def _json(group: GroupStatus) -> dict[str, object]:
    return {
        "group": group.name,
        "alive": sum(each.is_alive for each in group.consumers),
        "waiting": group.lag,
        "in_hand": group.pending,
        "put_off": group.retries,
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
