"""`lanebus dead`: list, show and redrive dead letters."""

from contextlib import aclosing
from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.bus.groups.dead_letters import DeadLetter, DeadLetters
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.errors import NoSuchLetter
from lanebus.handlers.cli.groups import require_groups
from lanebus.handlers.cli.options import BusGroup, ViewCommand
from lanebus.handlers.cli.session_id import SessionId, complete_group
from lanebus.handlers.cli.terminal.consent import ask, require_consent, yes_option
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count, moment, plain, size
from lanebus.handlers.cli.usage import WrongUsage

__all__ = ("command",)

_COLUMNS = (
    Column("letter"),
    Column("group", is_flexible=True),
    Column("session", is_flexible=True),
    Column("position", is_number=True),
    Column("attempts", is_number=True),
    Column("time"),
    Column("reason", is_flexible=True),
)

_LOOK = 2_000
"""most bytes of a dead letter's entry that `show` prints"""

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
def command() -> None:
    """List, show and redrive dead letters. A dead letter is work that failed in every allowed attempt, or that a retry
    cannot help. The reason is stored with it. A group keeps a limited number and drops the oldest. Logs of sessions do
    not change.

    \b
    Example: lanebus dead list
    Example: lanebus dead redrive --session support-42
    """


@command.command("list", cls=ViewCommand)
@_group_option
@_session_option
@click.pass_context
def list_(ctx: click.Context, group: str | None, session: str | None) -> None:
    """List dead letters, oldest first.

    \b
    Example: lanebus dead list --group agents --json
    """
    letters, dropped = on_bus(ctx, partial(_list, group=group, session=session), begins=False)
    Output.of(ctx).items(letters, _json, _COLUMNS, _row, empty="no dead letters")
    for name, number in dropped.items():
        tell(f"group {name}: {count(number)} older dead letters were dropped, because there were too many")


@command.command("show", cls=ViewCommand)
@click.argument("letter")
@_group_option
@click.pass_context
def show(ctx: click.Context, letter: str, group: str | None) -> None:
    """Show one dead letter with its reason and the entry that caused it. LETTER is an id from `lanebus dead list`.

    \b
    Example: lanebus dead show 17:1754000000000-0
    """
    name, found = on_bus(ctx, partial(_find, letter_id=letter, group=group))
    output = Output.of(ctx)
    if output.is_json:
        output.json({**_json((name, found)), "raw": found.raw.decode(errors="backslashreplace")})
        return
    output.line(f"{found.id} of group {name}, session {found.session} at position {count(found.position)}")
    output.line(f"dead since {moment(found.time)}, worker {found.worker}, {count(found.attempts)} attempts")
    output.line(f"reason: {plain(found.reason)}")
    if found.size_bytes:
        output.line(f"{size(found.size_bytes)}: {ascii(found.raw[:_LOOK])[2:-1]}")


@command.command("redrive", cls=ViewCommand)
@click.argument("letters", nargs=-1, metavar="[LETTER]…")
@_group_option
@_session_option
@yes_option
@click.option("--dry-run", is_flag=True, help="Change nothing; only print the number of dead letters.")
@click.pass_context
def redrive(
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
    found = on_bus(ctx, partial(_chosen, ids=letters, group=group, session=session))
    number = sum(map(len, found.values()))
    if not dry_run and number:
        for name, chosen in found.items():
            tell(f"group {name}: {count(len(chosen))} dead letters")
        ask("Redrive them?", "redriven", yes=yes)
        number = on_bus(ctx, partial(_redrive, chosen=found))
    Output.of(ctx).answer(
        {"letters": number, "is_dry_run": dry_run},
        f"{count(number)} dead letters {'would be ' if dry_run else ''}redriven",
    )


async def _list(
    bus: Bus, *, group: str | None, session: str | None
) -> tuple[list[tuple[str, DeadLetter]], dict[str, int]]:
    found: list[tuple[str, DeadLetter]] = []
    dropped: dict[str, int] = {}
    for each in await _groups(bus, group):
        found += [(each.group, letter) for letter in await _read(each, session)]
        if number := await each.dropped():
            dropped[each.group] = number
    return sorted(found, key=lambda pair: pair[1].time), dropped


async def _chosen(
    bus: Bus, *, ids: tuple[str, ...], group: str | None, session: str | None
) -> dict[str, list[DeadLetter]]:
    if not ids:
        chosen = {each.group: await _read(each, session) for each in await _groups(bus, group)}
        return {name: letters for name, letters in chosen.items() if letters}
    found: dict[str, list[DeadLetter]] = {}
    for letter_id in ids:
        name, letter = await _find(bus, letter_id=letter_id, group=group)
        found.setdefault(name, []).append(letter)
    return found


async def _redrive(bus: Bus, *, chosen: dict[str, list[DeadLetter]]) -> int:
    return sum([await bus.dead_letters(name).redrive(letters) for name, letters in chosen.items()])


async def _groups(bus: Bus, group: str | None) -> list[DeadLetters]:
    if group is not None:
        await require_groups(bus, [group])
    return [bus.dead_letters(name) for name in ((group,) if group is not None else await bus.groups())]


async def _read(letters: DeadLetters, session: str | None) -> list[DeadLetter]:
    async with aclosing(letters.read(session)) as found:
        return [letter async for letter in found]


async def _find(bus: Bus, *, letter_id: str, group: str | None) -> tuple[str, DeadLetter]:
    for each in await _groups(bus, group):
        if (found := await each.get(letter_id)) is not None:
            return each.group, found
    raise NoSuchLetter(letter_id)


def _json(found: tuple[str, DeadLetter]) -> dict[str, object]:
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


def _row(found: tuple[str, DeadLetter]) -> tuple[str, ...]:
    group, letter = found
    return (
        *(letter.id, group, letter.session, count(letter.position), count(letter.attempts)),
        *(moment(letter.time), letter.reason),
    )
