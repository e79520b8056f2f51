"""Commands that keep, move and delete what is stored: archive, trim, erase and projections."""

from collections.abc import Sequence
from functools import partial

import click

from lanebus.bus import Archived, Bus, Session, Trimmed
from lanebus.bus.errors import BusError, HeadMissing, SessionDamaged, SessionErased, is_of_session
from lanebus.bus.text import number_in
from lanebus.handlers.cli.access import on_bus, on_session
from lanebus.handlers.cli.arguments import SessionId, ask, require_consent, yes_option
from lanebus.handlers.cli.errors import NoSuchProjection, SessionEmpty, next_step
from lanebus.handlers.cli.exits import ExitCode, WrongUsage
from lanebus.handlers.cli.options import BusGroup, Settings, ViewCommand
from lanebus.handlers.cli.output import Column, Output, count, moment, size, tell
from lanebus.handlers.projections import trim_session

_ARCHIVED_COLUMNS = (
    Column("session", columns=16),
    Column("up to", is_number=True, columns=8),
    Column("entries", is_number=True, columns=8),
    Column("segments", is_number=True, columns=8),
    Column("size", is_number=True, columns=8),
)


@click.command("archive", cls=ViewCommand)
@click.argument("sessions", nargs=-1, type=SessionId(), metavar="[SESSION]…")
@click.option("--all", "is_all", is_flag=True, help="Archive every session.")
@click.option(
    "--before",
    type=click.IntRange(min=1),
    metavar="POSITION",
    help="Archive only entries before this position; default: all.",
)
@click.pass_context
def archive_command(ctx: click.Context, sessions: tuple[str, ...], *, is_all: bool, before: int | None) -> int:
    """Copy entries that are not archived yet to gzip files in --archive. A file holds one entry per line, as JSON.

    The log does not change. After `lanebus trim`, commands with the same --archive read the trimmed entries from
    there. A repeated or interrupted archive continues after the last archived entry.

    With --all, a damaged session is left out, and the others are archived. The exit code is then 7.

    \b
    Example: lanebus archive support-42 --archive ./archive
    Example: lanebus archive --all --archive s3://bucket/lanebus
    """
    if is_all == bool(sessions):
        raise WrongUsage("SESSION and --all: one of them is needed", "give either SESSION or --all")
    if Settings.of(ctx).archive is None:
        raise WrongUsage("no archive is set", "name one with --archive or LANEBUS_ARCHIVE")
    return on_bus(ctx, partial(_archive, sessions=sessions, before=before, output=Output.of(ctx)))


async def _archive(bus: Bus, *, sessions: Sequence[str], before: int | None, output: Output) -> int:
    code = ExitCode.DONE
    for name in sessions or await _all_sessions(bus):
        session = bus.session(name)
        if sessions and not (await session.head()).position:
            raise SessionEmpty(name)
        try:
            _show_archived(output, await session.archive(before=before))
        except BusError as error:
            if sessions or not is_of_session(error):
                raise
            if not isinstance(error, SessionErased):  # erased since the list was read
                tell(f"warning: not archived: {error.fault}; {next_step(error)}")
                code = ExitCode.FAULTS
    return code


async def _all_sessions(bus: Bus) -> list[str]:
    """Return every session, also one whose head cannot be read: the command says that it is not archived."""
    names = [head.session for head in await bus.sessions()]
    return [*names, *sorted({*await bus.log.sessions()}.difference(names))]


def _show_archived(output: Output, archived: Archived) -> None:
    if output.is_json:
        output.json(
            {
                "session": archived.session,
                "position": archived.position,
                "entries": archived.entries,
                "segments": archived.segments,
                "size_bytes": archived.size_bytes,
                "orphans": archived.orphans,
            },
            flush=True,
        )
        return
    numbers = (archived.position, archived.entries, len(archived.segments))
    output.row(_ARCHIVED_COLUMNS, (archived.session, *map(count, numbers), size(archived.size_bytes)), flush=True)
    if archived.orphans:
        unused = count(len(archived.orphans))
        tell(
            f"{archived.session}: another process archived it at the same time; {unused} files written here are unused"
        )


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
def trim_command(ctx: click.Context, session: str, *, before: int, force: bool, dry_run: bool) -> None:
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
def erase_command(ctx: click.Context, session: str, *, yes: bool, with_media: bool, force: bool, rewrite: bool) -> None:
    """Delete everything of a session for good: entries, live deltas, keys, projections and checkpoints. A tombstone
    keeps the session id, which cannot be used again. Repeat the command if it was interrupted.

    The server's file contains the erased data until it is rewritten. Replicas and backups are not changed.

    \b
    Example: lanebus erase support-42 --yes
    """
    require_consent("erased", yes=yes)
    tell(on_bus(ctx, partial(_erase_plan, session_id=session, media=with_media)))
    ask("Erase it for good?", "erased", yes=yes)
    erased = on_bus(ctx, lambda bus: bus.session(session).erase(media=with_media, force=force, rewrite=rewrite))
    media = f", and {count(len(erased.media))} media" if with_media else ""
    Output.of(ctx).answer({"session": session, "is_erased": True, "media": erased.media}, f"{session}: erased{media}")


async def _erase_plan(bus: Bus, *, session_id: str, media: bool) -> str:
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


# `lanebus projections`: list the stored projections of a session, or remove one of them.

_PROJECTION_COLUMNS = (Column("projection", is_flexible=True), Column("position", is_number=True))


@click.group("projections", cls=BusGroup)
def projections_command() -> None:
    """List the stored projections of a session, or remove one. Entries after a projection's position cannot be
    trimmed, so a projection that is not used any more should be removed.

    \b
    Example: lanebus projections list support-42
    Example: lanebus projections remove support-42 usage@2
    """


@projections_command.command("list", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.pass_context
def list_projections(ctx: click.Context, session: str) -> None:
    """List each stored projection of a session, and the position up to which it is folded.

    \b
    Example: lanebus projections list support-42 --json
    """
    found = on_session(ctx, session, _stored_projections)
    Output.of(ctx).items(
        found,
        lambda each: {"session": session, "projection": each[0], "position": each[1]},
        _PROJECTION_COLUMNS,
        lambda each: (each[0], str(each[1])),
        empty=f"session {session!r} has no stored projections",
    )


@projections_command.command("remove", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.argument("name", metavar="NAME@VERSION")
@click.pass_context
def remove_projection(ctx: click.Context, session: str, name: str) -> None:
    """Remove one stored projection of a session. Its next use folds it from the log again. The exit code is 3 if it is
    not stored.

    \b
    Example: lanebus projections remove support-42 usage@2
    """
    plain, _, version = name.rpartition("@")
    number = number_in(version)
    if not plain or number is None:
        raise WrongUsage(
            f"{name[:100]!r} is not a projection", f"write NAME@VERSION as in `lanebus projections list {session}`"
        )
    if not on_session(ctx, session, lambda it: it.drop_projection(plain, number)):
        raise NoSuchProjection(session, name)
    Output.of(ctx).answer({"session": session, "projection": name, "removed": True}, f"{name} of {session} was removed")


async def _stored_projections(session: Session) -> list[tuple[str, int]]:
    checkpoints = await session.checkpoints()
    return [(name[2:], cursor.position) for name, cursor in checkpoints.items() if name.startswith("p:")]
