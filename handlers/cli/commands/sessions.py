"""`lanebus sessions`: list the sessions."""

import sys
from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple, get_args

import click

from lanebus.bus import Bus, CatalogCursor, CatalogPage, FailedWork, Session, SessionHead, SessionState
from lanebus.bus.errors import BusError, InvalidCursor, SessionErased, is_of_session
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.arguments import complete_agent
from lanebus.handlers.cli.errors import next_step
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.output import Column, Output, count, moment, money, size, tell
from lanebus.handlers.cli.summary import STATES, failure_text
from lanebus.handlers.projections import STATUS, SessionLine, doing, look, look_at_state, session_lines, summary

_COLUMNS = (
    Column("session", is_flexible=True),
    Column("agent", is_flexible=True),
    Column("entries", is_number=True),
    Column("size", is_number=True),
    Column("last entry"),
    Column("turns", is_number=True),
    Column("tokens", is_number=True),
    Column("cost", is_number=True),
    Column("title", is_flexible=True),
)
_EMPTY = "no sessions yet in namespace {!r}: create one with `lanebus publish first hello`"
_NONE, _NO_MORE = "no session matches", "no older session matches: the list ends at this cursor"

_LIMIT = 100
"""sessions of a page by default"""

_LOOKED_INTO = 1_000
"""sessions that --waiting looks into"""

_WITH_STATE = (*_COLUMNS[:2], Column("state", is_flexible=True), *_COLUMNS[2:])
"""the columns if at least one session is dead, tried again, closed, forked, trimmed or archived"""


class _Query(NamedTuple):
    """Which sessions to list."""

    agent: str | None
    state: SessionState
    is_waiting: bool
    limit: int
    after: CatalogCursor | None

    @property
    def is_narrowed(self) -> bool:
        """Whether sessions may exist although none is listed."""
        return (self.agent, self.state, self.is_waiting, self.after) != (None, "any", False, None)


class _Listed(NamedTuple):
    """A session of the list."""

    head: SessionHead
    line: SessionLine
    cursor: CatalogCursor
    error: BusError | None
    """why its entries cannot be read; None if they can"""
    work: FailedWork | None
    """its work that is dead or tried again; None if it has none"""


class _Found(NamedTuple):
    """The sessions of one page."""

    lines: list[_Listed]
    served: Collection[str]
    """the agents that have a live worker"""
    more: str
    """the notice that there are more sessions, or \"\""""
    hidden: Collection[BusError]
    """the errors of sessions that are not listed, because of damage"""


@click.command("sessions", cls=ViewCommand)
@click.option("--agent", metavar="NAME", shell_complete=complete_agent, help="Only sessions that belong to this agent.")
@click.option(
    "--state",
    type=click.Choice(get_args(SessionState)),
    default="any",
    help="Only open, closed, forked, trimmed or archived sessions; default: any.",
)
@click.option("--waiting", "is_waiting", is_flag=True, help="Only sessions that wait for a person.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_LIMIT,
    metavar="N",
    help="Most sessions to list; 0 lists all.",
    show_default=True,
)
@click.option(
    "--after",
    metavar="CURSOR",
    help="Continue after this cursor: that of the notice of the previous page, or of its last JSON line.",
)
@click.pass_context
def command(
    ctx: click.Context, *, agent: str | None, state: SessionState, is_waiting: bool, limit: int, after: str | None
) -> None:
    """List sessions, most recently active first. The table has a column "state" if a session is dead, tried again,
    closed, forked, trimmed or archived. An agent without a live worker is marked "no worker". A notice on stderr names
    the option for the next page. Each line of --json has the `cursor` after which the list continues. A session that
    changes between two pages moves to the beginning of the list.

    A session whose entries cannot be read is listed with the fault in place of its title, and as "error" in --json. A
    session whose head cannot be read is left out; a warning on stderr names it.

    With --waiting, a session is listed if it has a tool call to approve or deny, is paused, or was handed to a person.
    Only the newest 1,000 sessions are searched. `lanebus show SESSION` ends with the calls that wait.

    \b
    Example: lanebus sessions --json | head -1
    Example: lanebus sessions --agent support --state closed --limit 20
    """
    query = _Query(agent, state, is_waiting, limit, None if after is None else _cursor(after))
    found = on_bus(ctx, partial(_sessions, query=query), begins=False)
    has_states = any(_state(each) for each in found.lines)
    empty = _NONE if query.after is None else _NO_MORE
    Output.of(ctx).items(
        found.lines,
        partial(_json, served=found.served),
        _WITH_STATE if has_states else _COLUMNS,
        partial(_row, has_state=has_states, served=found.served),
        empty=empty if query.is_narrowed else _EMPTY.format(Settings.of(ctx).namespace),
    )
    for error in found.hidden:
        tell(f"warning: not listed: {error.fault}; {next_step(error)}")
    if found.more:
        tell(found.more)


def _cursor(text: str) -> CatalogCursor:
    try:
        return CatalogCursor.parse(text)
    except InvalidCursor:
        remedy = 'copy it from the notice of the previous page, or "cursor" from its last line with --json'
        raise WrongUsage(f"{text[:80]!r} is not a cursor of the list of sessions", remedy) from None


async def _sessions(bus: Bus, *, query: _Query) -> _Found:
    newest = partial(bus.catalog.newest, agent=query.agent, state=query.state, after=query.after)
    failed = dict[str, BusError]()
    if query.is_waiting:
        page = await newest(_LOOKED_INTO)
        waiting = [each for each in _places(page) if await _is_waiting(bus.session(each[0].session), failed)]
        places = waiting[: query.limit or len(waiting)]
        has_more = len(waiting) > len(places)
        left_out = f"only the newest {count(_LOOKED_INTO)} sessions were looked at" if page.has_more else ""
        if has_more:
            left_out = f"{count(len(places))} of {count(len(waiting))} waiting sessions"
        last = places[-1][1] if has_more else page.end
    else:
        page = await newest(query.limit or sys.maxsize - 1)
        places, last = _places(page), page.end
        of_all = "" if page.matching is None else f" of {count(page.matching)}"
        left_out = f"{count(len(places))}{of_all} sessions"
    hidden = [*page.damaged, *failed.values()]  # it is not known whether these wait
    lines = await session_lines(bus, heads=[head for head, _ in places], failed=failed)
    served = await bus.live_workers()
    more = f"{left_out}; all: --limit 0, next page: --after {last}" if last else ""
    works = await _failed_work(bus, [head for head, _ in places if head.session in lines])
    listed = [
        _Listed(head, lines[name].state if name in lines else SessionLine(), at, failed.get(name), works.get(name))
        for head, at in places
        if (name := head.session) in lines or name in failed
    ]
    return _Found(listed, served.keys(), more, hidden)


async def _failed_work(bus: Bus, heads: Sequence[SessionHead]) -> dict[str, FailedWork]:
    """Return the work of sessions that are dead or tried again."""
    works, found = await bus.failed_work().read(), dict[str, FailedWork]()
    for head in heads:
        if (work := works.get(name := head.session)) is None:
            continue
        try:
            if await look_at_state(bus.session(name), head, work) in {"dead", "retrying"}:
                found[name] = work
        except BusError as error:
            if not is_of_session(error):
                raise
    return found


def _places(page: CatalogPage) -> list[tuple[SessionHead, CatalogCursor]]:
    return list(zip(page.heads, page.cursors, strict=True))


async def _is_waiting(session: Session, failed: dict[str, BusError]) -> bool:
    """Whether a session waits for a person. The error of a session that cannot be read goes into `failed`."""
    try:
        return doing(session.id, (await look(session, STATUS)).state) in {"waiting", "paused", "handoff"}
    except BusError as error:
        if not is_of_session(error):
            raise
        if not isinstance(error, SessionErased):
            failed[session.id] = error
    return False


def _json(found: _Listed, *, served: Collection[str]) -> dict[str, object]:
    head, line, cursor, error, work = found
    origin = head.origin
    return {
        "session": head.session,
        "agent": head.agent,
        "has_worker": head.agent in served,
        "position": head.position,
        "size_bytes": head.size_bytes,
        "created": head.created,
        "updated": head.updated,
        "is_closed": head.is_closed,
        "first_kept": head.first_kept,
        "archived": head.archived,
        "origin": {"session": origin.session, "position": origin.position} if origin else None,
        "title": line.title,
        "llm": line.llm,
        "extension": line.extension,
        "turns": line.turns,
        "usage": summary(line.usage),
        "error": None if error is None else error.fault,
        "failure": None if work is None else _failure(work),
        "cursor": str(cursor),
    }


def _row(found: _Listed, *, has_state: bool, served: Collection[str]) -> tuple[str, ...]:
    head, line, _, error, _ = found
    cost = line.usage.cost.total if line.usage.cost else None
    return (
        head.session,
        head.agent if head.agent in served else f"{head.agent} (no worker)",
        *((_state(found),) if has_state else ()),
        count(head.position),
        size(head.size_bytes),
        moment(head.updated),
        count(line.turns) if error is None else "",
        count(line.usage.total_tokens) if error is None else "",
        money(cost) if line.turns else "",
        (line.title or "") if error is None else f"damaged: {error.fault}",
    )


def _failure(work: FailedWork) -> dict[str, object]:
    since = work.time if work.is_dead else None
    facts = {"group": work.group, "attempts": work.attempts, "reason": work.reason, "since": since}
    return {"state": "dead" if work.is_dead else "retrying", **facts}


def _state(listed: _Listed) -> str:
    """Describe whether a session is dead, tried again, closed, forked, trimmed or archived; "" if nothing holds."""
    head, work = listed.head, listed.work
    origin = head.origin
    found = [
        f"{STATES['dead' if work.is_dead else 'retrying']} ({failure_text(work)})" if work else "",
        "closed" if head.is_closed else "",
        f"fork of {origin.session} at {count(origin.position)}" if origin else "",
        f"from {count(head.first_kept)}" if head.trimmed else "",
        f"archived to {count(head.archived)}" if head.archived else "",
    ]
    return ", ".join(filter(None, found))
