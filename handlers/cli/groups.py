"""`lanebus groups`: the groups of workers, and the end of one that nobody works in any more."""

import sys
from functools import partial

import click

from bus.groups import GroupStatus
from handlers.cli.opening import open_bus
from handlers.cli.options import BusGroup, Settings, ViewCommand
from handlers.cli.output import Output, tell
from handlers.cli.run import run
from handlers.cli.table import Column
from handlers.cli.text import count

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
    found = run(partial(_status, Settings.of(ctx)))
    output = Output.of(ctx)
    if output.is_json:
        for group in found:
            output.json(_json(group))
    elif found:
        output.table(_COLUMNS, [_row(group) for group in found])
    else:
        tell("no worker has ever taken work here")
    for group in found:
        if group.is_away:
            tell(f"group {group.name}: nobody has worked in it for long; `lanebus groups remove {group.name}` ends it")


@command.command("remove", cls=ViewCommand)
@click.argument("group")
@click.option("--force", is_flag=True, help="Also where workers of it seem to be alive.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal to ask at.")
@click.pass_context
def remove(ctx: click.Context, group: str, *, force: bool, yes: bool) -> int:
    """End a group: its open work, its dead letters and its place go. Sessions are as they were. A worker that comes by
    its name again begins a new one.

    \b
    Example: lanebus groups remove agents --yes
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nothing was removed: without a terminal to ask at it wants --yes")
    if not yes and not click.confirm(f"Remove the group {group}, with its open work and dead letters?", err=True):
        tell("nothing was removed")
        return 1
    was_there = run(partial(_remove, Settings.of(ctx), group, force=force))
    output = Output.of(ctx)
    if output.is_json:
        output.json({"group": group, "removed": was_there})
    else:
        output.line(f"group {group} {'was removed' if was_there else 'does not exist'}")
    return 0 if was_there else 1


async def _status(settings: Settings) -> list[GroupStatus]:
    async with open_bus(settings) as bus:
        return [await bus.group_status(name) for name in await bus.groups()]


async def _remove(settings: Settings, group: str, *, force: bool) -> bool:
    async with open_bus(settings) as bus:
        return await bus.remove_group(group, force=force)


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
