"""Commands on the work of agents: agents, groups and dead."""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

import click

from lanebus.bus import AgentStatus, Bus, DeadLetter, DeadLetters, GroupStatus
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.arguments import SessionId, ask, complete_group, require_consent, require_groups, yes_option
from lanebus.handlers.cli.errors import NoSuchGroup, NoSuchLetter
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.options import BusGroup, ViewCommand, ViewGroup
from lanebus.handlers.cli.output import Column, Output, count, moment, plain, size, tell

# `lanebus agents`: list agents, and set the default one.

_AGENT_COLUMNS = (
    Column("agent", is_flexible=True),
    Column("sessions", is_number=True),
    Column("waiting", is_number=True),
    Column("workers", is_number=True),
    Column("", is_flexible=True),
)


@click.group("agents", cls=ViewGroup, invoke_without_command=True)
@click.option(
    "--group", metavar="NAME", shell_complete=complete_group, help="Consumer group of the workers; default: agents."
)
@click.pass_context
def agents_command(ctx: click.Context, *, group: str | None) -> None:
    """List agents. Show for each agent how many sessions it has, how many of them wait for a worker, and how many live
    workers serve the agent. Each session belongs to one agent by name, from its first message on. A worker runs the
    sessions of the agents that it serves.

    \b
    Example: lanebus agents --json
    Example: lanebus agents default support
    """
    if ctx.invoked_subcommand is None:
        found = on_bus(ctx, partial(_agents, group=group), begins=False)
        Output.of(ctx).items(found, _agent_json, _AGENT_COLUMNS, _agent_row, empty="no agents yet")


@agents_command.command("default", cls=ViewCommand)
@click.argument("name")
@click.pass_context
def default(ctx: click.Context, name: str) -> None:
    """Make NAME the default agent: a new session belongs to it unless another agent is given. Existing sessions keep
    their agents. Running programs use the new default after a restart.

    \b
    Example: lanebus agents default support
    """
    on_bus(ctx, lambda bus: bus.set_default_agent(name))
    Output.of(ctx).answer({"default": name}, f"new sessions belong to {name} unless another agent is named")


async def _agents(bus: Bus, *, group: str | None) -> Sequence[AgentStatus]:
    if group is None:  # before the first worker there is no group, but there may be sessions of agents
        return await bus.agents()
    await require_groups(bus, [group])
    return await bus.agents(group)


def _agent_json(agent: AgentStatus) -> dict[str, object]:
    return {
        "agent": agent.name,
        "sessions": agent.sessions,
        "waiting": agent.waiting,
        "is_waiting_more": agent.is_waiting_more,
        "workers": agent.workers,
        "is_default": agent.is_default,
    }


def _agent_row(agent: AgentStatus) -> tuple[str, ...]:
    notes = ("default" if agent.is_default else "", "no worker" if agent.sessions and not agent.workers else "")
    return (
        *(agent.name, count(agent.sessions), f"{count(agent.waiting)}{'+' if agent.is_waiting_more else ''}"),
        *(count(agent.workers), ", ".join(filter(None, notes))),
    )


_GROUP_COLUMNS = (
    Column("group", is_flexible=True),
    Column("alive", is_number=True),
    Column("lag", is_number=True),
    Column("pending", is_number=True),
    Column("retries", is_number=True),
    Column("dead", is_number=True),
    Column("last seen"),
)


@click.group("groups", cls=BusGroup)
def groups_command() -> None:
    """Show consumer groups, and remove unused ones. Entries that a group has not handled yet cannot be trimmed, so an
    unused group should be removed.

    \b
    Example: lanebus groups status
    Example: lanebus groups remove agents --yes
    """


@groups_command.command("status", cls=ViewCommand)
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show each group: its live workers, its dead letters, and when a worker was last seen. lag counts sessions that
    wait for a worker, pending counts sessions that a worker has, and retries counts sessions that wait for their next
    attempt.

    \b
    Example: lanebus groups status --json
    """
    found = on_bus(ctx, _group_status, begins=False)
    Output.of(ctx).items(
        found,
        _group_json,
        _GROUP_COLUMNS,
        _group_row,
        empty="no worker has run here yet: start one with `lanebus worker MODULE:ATTRIBUTE`",
    )
    for group in found:
        if group.is_away:
            tell(f"group {group.name} has had no worker for long: remove it with `lanebus groups remove {group.name}`")


@groups_command.command("remove", cls=ViewCommand)
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
    on_bus(ctx, partial(_remove_group, group=group, force=force))
    Output.of(ctx).answer({"group": group, "removed": True}, f"group {group} was removed")


async def _remove_group(bus: Bus, *, group: str, force: bool) -> None:
    if not await bus.remove_group(group, force=force):
        raise NoSuchGroup(group, tuple(await bus.groups()))


async def _group_status(bus: Bus) -> list[GroupStatus]:
    return [await bus.group_status(name) for name in await bus.groups()]


def _group_json(group: GroupStatus) -> dict[str, object]:
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


def _group_row(group: GroupStatus) -> tuple[str, ...]:
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


# `lanebus dead`: list, show and redrive dead letters.

_LETTER_COLUMNS = (
    Column("letter"),
    Column("group", is_flexible=True),
    Column("session", is_flexible=True),
    Column("position", is_number=True),
    Column("attempts", is_number=True),
    Column("time"),
    Column("reason", is_flexible=True),
)

_LOOK = 2_000
"""most bytes of a dead letter's entry that `show_letter` prints"""

_group_option = click.option(
    "--group",
    metavar="NAME",
    shell_complete=complete_group,
    help="Only dead letters of this consumer group; default: all groups.",
)
_session_option = click.option(
    "--session", type=SessionId(), metavar="SESSION", help="Only dead letters of this session; default: all sessions."
)


@click.group("dead", cls=BusGroup)
def dead_command() -> None:
    """List, show and redrive dead letters. A dead letter is work that failed in every allowed attempt, or that a retry
    cannot help. The reason is stored with it. A group keeps a limited number and drops the oldest. Logs of sessions do
    not change.

    \b
    Example: lanebus dead list
    Example: lanebus dead redrive --session support-42
    """


@dead_command.command("list", cls=ViewCommand)
@_group_option
@_session_option
@click.pass_context
def list_letters(ctx: click.Context, group: str | None, session: str | None) -> None:
    """List dead letters, oldest first.

    \b
    Example: lanebus dead list --group agents --json
    """
    letters, dropped = on_bus(ctx, partial(_list_letters, group=group, session=session), begins=False)
    Output.of(ctx).items(letters, _letter_json, _LETTER_COLUMNS, _letter_row, empty="no dead letters")
    for name, number in dropped.items():
        tell(f"group {name}: {count(number)} older dead letters were dropped, because there were too many")


@dead_command.command("show", cls=ViewCommand)
@click.argument("letter")
@_group_option
@click.pass_context
def show_letter(ctx: click.Context, letter: str, group: str | None) -> None:
    """Show one dead letter with its reason and the entry that caused it. LETTER is an id from `lanebus dead list`.

    \b
    Example: lanebus dead show 17:1754000000000-0
    """
    name, found = on_bus(ctx, partial(_find_letter, letter_id=letter, group=group))
    output = Output.of(ctx)
    if output.is_json:
        output.json({**_letter_json((name, found)), "raw": found.raw.decode(errors="backslashreplace")})
        return
    output.line(f"{found.id} of group {name}, session {found.session} at position {count(found.position)}")
    output.line(f"dead since {moment(found.time)}, worker {found.worker}, {count(found.attempts)} attempts")
    output.line(f"reason: {plain(found.reason)}")
    if found.size_bytes:
        output.line(f"{size(found.size_bytes)}: {ascii(found.raw[:_LOOK])[2:-1]}")


@dead_command.command("redrive", cls=ViewCommand)
@click.argument("letters", nargs=-1, metavar="[LETTER]…")
@_group_option
@_session_option
@yes_option
@click.option("--dry-run", is_flag=True, help="Change nothing; only print the number of dead letters.")
@click.pass_context
def redrive_letters(
    ctx: click.Context, letters: tuple[str, ...], group: str | None, session: str | None, *, yes: bool, dry_run: bool
) -> None:
    """Redrive dead letters: the given ones, or all that --group and --session select. Their work goes back to the
    workers, with attempts counted from one. Nothing is appended to any session.

    \b
    Example: lanebus dead redrive 17:1754000000000-0 --yes
    Example: lanebus dead redrive --group agents --dry-run
    """
    if letters and session is not None:
        raise WrongUsage("LETTER and --session exclude each other", "give one of them")
    require_consent("redriven", yes=yes or dry_run)
    found = on_bus(ctx, partial(_chosen_letters, ids=letters, group=group, session=session))
    number = sum(map(len, found.values()))
    if not dry_run and number:
        for name, chosen in found.items():
            tell(f"group {name}: {count(len(chosen))} dead letters")
        ask("Redrive them?", "redriven", yes=yes)
        number = on_bus(ctx, partial(_redrive_letters, chosen=found))
    Output.of(ctx).answer(
        {"letters": number, "is_dry_run": dry_run},
        f"{count(number)} dead letters {'would be ' if dry_run else ''}redriven",
    )


async def _list_letters(
    bus: Bus, *, group: str | None, session: str | None
) -> tuple[list[tuple[str, DeadLetter]], dict[str, int]]:
    found: list[tuple[str, DeadLetter]] = []
    dropped: dict[str, int] = {}
    for each in await _letters_of_groups(bus, group):
        found += [(each.group, letter) for letter in await _read_letters(each, session)]
        if number := await each.dropped():
            dropped[each.group] = number
    return sorted(found, key=lambda pair: pair[1].time), dropped


async def _chosen_letters(
    bus: Bus, *, ids: tuple[str, ...], group: str | None, session: str | None
) -> dict[str, list[DeadLetter]]:
    if not ids:
        chosen = {each.group: await _read_letters(each, session) for each in await _letters_of_groups(bus, group)}
        return {name: letters for name, letters in chosen.items() if letters}
    found: dict[str, list[DeadLetter]] = {}
    for letter_id in ids:
        name, letter = await _find_letter(bus, letter_id=letter_id, group=group)
        found.setdefault(name, []).append(letter)
    return found


async def _redrive_letters(bus: Bus, *, chosen: dict[str, list[DeadLetter]]) -> int:
    return sum([await bus.dead_letters(name).redrive(letters) for name, letters in chosen.items()])


async def _letters_of_groups(bus: Bus, group: str | None) -> list[DeadLetters]:
    if group is not None:
        await require_groups(bus, [group])
    return [bus.dead_letters(name) for name in ((group,) if group is not None else await bus.groups())]


async def _read_letters(letters: DeadLetters, session: str | None) -> list[DeadLetter]:
    async with aclosing(letters.read(session)) as found:
        return [letter async for letter in found]


async def _find_letter(bus: Bus, *, letter_id: str, group: str | None) -> tuple[str, DeadLetter]:
    for each in await _letters_of_groups(bus, group):
        if (found := await each.get(letter_id)) is not None:
            return each.group, found
    raise NoSuchLetter(letter_id)


def _letter_json(found: tuple[str, DeadLetter]) -> dict[str, object]:
    group, letter = found
    return {
        "letter": letter.id,
        "group": group,
        "session": letter.session,
        "position": letter.position,
        "attempts": letter.attempts,
        "time": letter.time,
        "worker": letter.worker,
        "reason": letter.reason,
        "size_bytes": letter.size_bytes,
    }


def _letter_row(found: tuple[str, DeadLetter]) -> tuple[str, ...]:
    group, letter = found
    return (
        *(letter.id, group, letter.session, count(letter.position), count(letter.attempts)),
        *(moment(letter.time), letter.reason),
    )
