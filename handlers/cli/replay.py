"""`lanebus replay`: projections folded anew."""

from collections.abc import Sequence
from functools import partial

import click

from handlers.cli.errors import BeyondEnd
from handlers.cli.opening import open_session
from handlers.cli.options import Settings, ViewCommand
from handlers.cli.output import Output, tell
from handlers.cli.run import run
from handlers.cli.table import Column
from handlers.verify import PROJECTION_NAMES, Replayed, differs, replay

__all__ = ("command",)

_COLUMNS = (
    Column("projection"),
    Column("position", is_number=True),
    Column("stored"),
    Column("state", is_flexible=True),
)


@click.command("replay", cls=ViewCommand)
@click.argument("session")
@click.option("--until", type=click.IntRange(min=1), metavar="POSITION", help="As of this entry.")
@click.option(
    "--projection",
    "names",
    type=click.Choice(PROJECTION_NAMES),
    multiple=True,
    help="Only this one; may be given several times.",
)
@click.pass_context
def command(ctx: click.Context, session: str, *, until: int | None, names: tuple[str, ...]) -> int:
    """Fold a session's projections anew from its first entry, print their states, and compare them with the stored
    ones. The exit code is 1 if a stored one is not what the log gives. Nothing is stored.

    As JSON each line is a projection: its name and version, the position it was folded up to, where the stored one
    stood, whether that agreed, and the state.

    \b
    Example: lanebus replay support-42
    Example: lanebus replay support-42 --until 12 --projection usage --json
    """
    chosen = tuple(dict.fromkeys(names)) or PROJECTION_NAMES
    replayed = run(partial(_replay, Settings.of(ctx), session, chosen, until))
    _show(Output.of(ctx), session, replayed)
    disagree = [each.key for each in replayed if each.agrees is False]
    for key in disagree:
        tell(differs(session, key))
    return 1 if disagree else 0


async def _replay(settings: Settings, session_id: str, names: Sequence[str], until: int | None) -> list[Replayed]:
    async with open_session(settings, session_id) as session:
        last = (await session.head()).position
        if until is not None and until > last:
            raise BeyondEnd(session_id, until, last)
        return await replay(session, names, until=until or last)


def _show(output: Output, session: str, replayed: Sequence[Replayed]) -> None:
    if not output.is_json:
        output.table(_COLUMNS, [_row(each) for each in replayed])
        return
    for each in replayed:
        # Not parsed and written again: it is JSON already, and may be long.
        stored = "null" if each.stored is None else str(each.stored)
        agrees = {None: "null", True: "true", False: "false"}[each.agrees]
        output.json_text(
            f'{{"session":"{session}","projection":"{each.name}","version":{each.version},'
            f'"position":{each.cursor.position},"stored":{stored},"agrees":{agrees},"state":{each.state.decode()}}}'
        )


def _row(each: Replayed) -> tuple[str, ...]:
    match each.agrees:
        case True:
            stored = f"agrees at {each.stored}"
        case False:
            stored = f"differs at {each.stored}"
        case None:
            stored = "none" if each.stored is None else f"at {each.stored}"
    return (each.key, str(each.cursor.position), stored, each.state.decode())
