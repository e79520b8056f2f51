"""`lanebus show` and `lanebus tail`: print a session as a conversation, or its entries, and follow new ones."""

import asyncio
import json
import os
import stat
import sys
import textwrap
from collections.abc import AsyncGenerator, Collection, Generator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import NamedTuple

import anyio
import click
from pydantic import JsonValue

from lanebus.bus import ALL_LANES, FailedWorks, Session, SessionHead
from lanebus.bus.errors import SessionErased
from lanebus.bus.messages import (
    AgentEnded,
    AssistantMessage,
    AudioBlock,
    Block,
    ContextEntry,
    DocumentBlock,
    ErrorBlock,
    ExtensionMessage,
    ImageBlock,
    Lane,
    LlmMessage,
    MediaRef,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolEnded,
    ToolResultBlock,
    ToolResultMessage,
    ToolStarted,
    TurnEnded,
    UserMessage,
    VideoBlock,
)
from lanebus.bus.wire import START, Cursor, DecodeFailure, Envelope, Notice
from lanebus.handlers.agent import BY, REDRIVEN
from lanebus.handlers.cli.access import on_session, open_bus, run
from lanebus.handlers.cli.arguments import SessionId
from lanebus.handlers.cli.errors import BeyondEnd, SessionEmpty
from lanebus.handlers.cli.options import BusCommand, Settings, ViewCommand
from lanebus.handlers.cli.output import (
    Column,
    Line,
    Output,
    Tone,
    about,
    clock_time,
    count,
    counted_from,
    cut,
    duration,
    has_colours,
    moment,
    money,
    plain,
    put,
    size,
    tell,
    visible,
)
from lanebus.handlers.cli.summary import (
    STATES,
    TurnFold,
    answer_commands,
    decision_text,
    event_of,
    failure_text,
    short_id,
    summarize,
)
from lanebus.handlers.projections import (
    STATUS,
    USAGE,
    decisions,
    doing,
    fault_of,
    look,
    look_at_state,
    own_loop,
    waiting_calls,
)
from lanebus.handlers.serve import compact, spliced

_NARROWEST, _WIDEST = 40, 100
"""columns of the text: longer lines are hard to read, whatever the window"""

_WORK = {"model": "the model is called", "tools": "tools run"}


@click.command("show", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.option("--full", is_flag=True, help="Show the model's thinking, and long arguments and results completely.")
@click.option("--after", metavar="POSITION", help="Start after this position; default: at the beginning.")
@click.pass_context
def show_command(ctx: click.Context, session: str, *, full: bool, after: str | None) -> None:
    """Print a session as a conversation: messages, tool calls with their results, tokens and cost. At the end stand its
    state, why it is dead or tried again, and the calls that wait for a person, with the commands that answer them.

    The output is text also in a pipe. `lanebus tail --json` prints the entries for programs.

    \b
    Example: lanebus show support-42 | less -R
    """
    start = START if after is None else Cursor.parse(after)
    on_session(ctx, session, partial(_show, is_full=full, after=start))


async def _show(session: Session, *, is_full: bool, after: Cursor) -> None:
    head = await session.head()
    if not head.position:
        raise SessionEmpty(session.id)
    colours, columns = has_colours(), _columns()
    transcript = Transcript(session.id, columns, is_full=is_full)

    def say(line: Line) -> None:
        put(line, colours=colours)

    say(Line(session.id, "title"))
    facts = [
        *([f"agent {plain(head.agent)}"] if head.agent else []),
        f"{count(head.position)} entries",
        *([f"fork of {head.origin.session} at {head.origin.position}"] if head.origin else []),
        *(["closed"] if head.is_closed else []),
    ]
    say(Line(" · ".join(facts), "dim"))
    async with aclosing(session.read(after=after, until=head.position)) as envelopes:
        async for envelope in envelopes:
            for line in transcript.lines(envelope):
                say(line)
    for line in transcript.rest():
        say(line)
    say(Line(""))
    for line in await _end(session, head):
        say(line)
    sys.stdout.flush()


async def _end(session: Session, head: SessionHead) -> list[Line]:
    """Return what the session cost, what it does, and the calls that wait for a person."""
    usage, status = await look(session, USAGE), (await look(session, STATUS)).state
    work = (await FailedWorks(session.resources.log).read(session.id)).get(session.id)
    state = await look_at_state(session, head, work)
    total, activity = usage.state.total, doing(session.id, status)
    told = _WORK.get(activity, STATES[state]) if state == "working" else STATES[state]
    spent = f"{about(total.usage.estimated)}{count(total.usage.total_tokens)} tokens"
    cost = money(total.usage.cost.total if total.usage.cost else None)
    calls = f"{count(total.calls)} model call{'' if total.calls == 1 else 's'}"
    lines = [Line(f"{told} · {calls}, {spent}, cost {cost}" if total.calls else told, "dim")]
    if usage.counted_from is not None:
        lines.append(Line(counted_from(session.id, usage.counted_from), "dim"))
    if activity in {"paused", "handoff"}:
        lines.append(Line(f"  lanebus control {session.id} resume", "plain"))
    if work is not None and state in {"dead", "retrying"}:
        lines.append(Line(failure_text(work), "warn"))
    if state == "dead":
        lines.append(Line(f"  lanebus dead redrive --session {session.id}", "plain"))
    loop, decided = own_loop(session.id, status), decisions(status)
    for call in waiting_calls(loop) if loop is not None and activity != "idle" else ():
        if (command := decided.get(call.tool_call_id)) is not None:
            lines.append(Line(f"{plain(call.tool_name)} {decision_text(command)}", "warn"))
            continue
        lines.append(Line(f"{plain(call.tool_name)} waits for a person:", "warn"))
        lines += [Line(f"  {each}") for each in answer_commands(call, session.id)]
    return lines


def _columns() -> int:
    """Return the columns of a line of text, from the window or the variable COLUMNS."""
    try:
        window = int(os.environ.get("COLUMNS", "")) or _WIDEST
    except ValueError:
        window = os.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST
    return max(_NARROWEST, min(window, _WIDEST))


_INDENT = "  "


class Transcript:
    """Turns the entries of one session into lines, in order of position."""

    def __init__(self, session: str, columns: int, *, is_full: bool = False, tool_lines: int = 12) -> None:
        """
        Args:
            session: id of the session.
            columns: longest line; longer text is wrapped at words.
            is_full: show the model's thinking, and long arguments and results completely.
            tool_lines: lines of a tool's arguments or result that are shown unless `is_full`.
        """
        self._session, self._columns, self._is_full = session, columns, is_full
        self._tool_lines = tool_lines
        self._tools = dict[str, float]()
        """tool call id → start of a call that runs"""
        self._took = dict[str, float]()
        """tool call id → seconds of a call that has ended; its result follows or precedes its end"""
        self._held: tuple[ToolResultMessage, Envelope] | None = None
        """an error result whose event has not come yet: it tells whether the call failed, was skipped, and so on"""

    def lines(self, envelope: Envelope) -> Iterator[Line]:
        """Return the lines of an entry; none for an entry that says nothing to a reader of the conversation.

        The lines of a tool's error come with the next entry, or with `rest`.
        """
        held, event = self._held, event_of(envelope)
        if held is not None and isinstance(event, ToolEnded) and event.tool_call_id == held[0].tool_call_id:
            self._held = None
            yield from self._result(*held, fault_of(event.outcome))
            self._tools.pop(event.tool_call_id, None)
            return
        yield from self.rest()
        match envelope.message:
            case ToolResultMessage(is_error=True) as message:
                self._held = message, envelope
            case ToolResultMessage() as message:
                yield from self._result(message, envelope)
            case LlmMessage() as message:
                yield from self._message(message, envelope)
            case ContextEntry():
                yield from self._note(": ".join(filter(None, summarize(envelope))), envelope)
            case ExtensionMessage():
                yield from self._event(envelope)
            case DecodeFailure(error=error):
                yield from self._note(f"unreadable entry: {error}", envelope, tone="bad")
            case _:
                pass

    def rest(self) -> Iterator[Line]:
        """Return the lines that are still held back. Call it after the last entry."""
        held, self._held = self._held, None
        if held is not None:
            yield from self._result(*held, fault_of(None))

    def _message(self, message: LlmMessage, envelope: Envelope) -> Iterator[Line]:
        yield Line("")
        yield Line(self._head(message, envelope), "title")
        for block in message.content:
            yield from self._block(block)
        if isinstance(message, AssistantMessage) and message.is_failed:
            reason = message.error_message or "no reason given"
            is_fault = REDRIVEN not in (message.metadata or {})
            yield from self._text(
                f"{message.stop_reason}: {reason}" if is_fault else reason, "bad" if is_fault else "dim"
            )

    def _head(self, message: LlmMessage, envelope: Envelope) -> str:
        match message:
            case UserMessage(metadata=metadata):
                by = metadata.get(BY) if metadata else None
                who = f"User ({plain(by)})" if isinstance(by, str) else "User"
            case AssistantMessage(metadata=metadata) if REDRIVEN in (metadata or {}):
                who = "Redriven"
            case AssistantMessage(model=model):
                who = f"Assistant ({plain(model)})" if model else "Assistant"
            case SystemMessage():
                who = "System"
            case _:
                who = str(getattr(message, "role", "message")).capitalize()
        return self._spread(who, f"#{envelope.position}  {clock_time(envelope.time)}")

    def _block(self, block: Block) -> Iterator[Line]:
        match block:
            case TextBlock(text=text):
                yield from self._text(text)
            case ThinkingBlock(text=text) if self._is_full:
                yield from self._text(text, "dim")
            case ThinkingBlock(text=text):
                yield Line(f"{_INDENT}(thought {count(len(text))} characters; --full shows them)", "dim")
            case ToolCallBlock(name=name, arguments=arguments):
                yield Line(cut(f"{_INDENT}→ {plain(name)}", self._columns), "title")
                yield from self._short(_arguments(arguments))
            case ToolResultBlock(content=content):
                for part in content:
                    yield from self._block(part)
            case ErrorBlock(message=text):
                yield from self._text(text, "bad")
            case (
                ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media) | DocumentBlock(media=media)
            ):
                yield Line(cut(f"{_INDENT}[{block.type}{_media(media)}]", self._columns), "dim")
            case _:
                yield Line(f"{_INDENT}[{block.type}]", "dim")

    def _result(self, message: ToolResultMessage, envelope: Envelope, fault: str = "") -> Iterator[Line]:
        name = plain(message.tool_name or message.tool_call_id)
        seconds = self._took.pop(message.tool_call_id, None)
        if seconds is None and (started := self._tools.get(message.tool_call_id)) is not None:
            seconds = envelope.time - started
        took = f"  {duration(seconds)}" if seconds is not None else ""
        left = f"{_INDENT}← {name} {fault}".rstrip()
        yield Line(self._spread(left, f"#{envelope.position}{took}"), "bad" if fault else "title")
        for block in message.content:
            if isinstance(block, TextBlock):
                yield from self._short(_lines(block.text))
            else:
                yield from self._block(block)

    def _event(self, envelope: Envelope) -> Iterator[Line]:
        match event_of(envelope):
            case ToolStarted(tool_call_id=call):
                self._tools[call] = envelope.time
            case ToolEnded(tool_call_id=call, outcome=outcome, tool_name=name):
                if (started := self._tools.pop(call, None)) is not None:
                    self._took[call] = envelope.time - started
                if outcome not in {None, "completed", "failed"}:
                    yield from self._note(f"{plain(name)} {fault_of(outcome)}", envelope, tone="warn")
            case TurnEnded(turn_id=turn, usage=usage):
                self._took.clear()
                spent = f"{about(usage.estimated)}{count(usage.total_tokens)} tokens"
                cost = f", {money(usage.cost.total)}" if usage.cost else ""
                yield Line(f"{_INDENT}{short_id(turn, self._session)}: {spent}{cost}", "dim")
            case AgentEnded(stop_reason=reason) if reason not in {"stop", "toolUse"}:
                self._tools.clear()
                yield from self._note(f"the loop ended: {reason}", envelope, tone="warn")
            case _:
                pass

    def _note(self, text: str, envelope: Envelope, *, tone: Tone = "dim") -> Iterator[Line]:
        yield Line("")
        yield Line(self._spread(f"{_INDENT}{plain(text)}", f"#{envelope.position}"), tone)

    def _spread(self, left: str, right: str) -> str:
        """Return text with `right` at the right edge."""
        room = self._columns - len(right) - 2
        return f"{cut(left, room):<{room}}  {right}"

    def _text(self, text: str, tone: Tone = "plain") -> Iterator[Line]:
        yield from (Line(line, tone) for line in self._wrapped(_lines(text)))

    def _short(self, lines: Iterable[str]) -> Iterator[Line]:
        """Return the first lines of what a tool got or returned, and how many more there are."""
        wrapped = list(self._wrapped(lines, extra=_INDENT))
        shown = wrapped if self._is_full or len(wrapped) <= self._tool_lines + 1 else wrapped[: self._tool_lines]
        yield from (Line(line, "dim") for line in shown)
        if len(shown) < len(wrapped):
            yield Line(f"{_INDENT * 2}… {count(len(wrapped) - len(shown))} more lines; --full shows them", "dim")

    def _wrapped(self, lines: Iterable[str], extra: str = "") -> Iterator[str]:
        indent, is_code = _INDENT + extra, False
        for line in lines:
            is_fence = line.lstrip().startswith("```")
            is_code = is_code != is_fence
            if not line:
                yield ""
            elif is_code or is_fence:  # wrapped code cannot be copied
                yield indent + line
            else:
                own = line[: len(line) - len(line.lstrip(" "))][:20]
                yield from textwrap.wrap(
                    line,
                    max(self._columns, 30),
                    initial_indent=indent,
                    subsequent_indent=indent + own,
                    break_on_hyphens=False,
                    drop_whitespace=True,
                    replace_whitespace=False,
                ) or [""]


def _lines(text: str) -> Iterator[str]:
    """Return the lines of untrusted text, with unsafe characters written as codes."""
    yield from map(visible, text.expandtabs(4).rstrip().splitlines())


def _arguments(arguments: JsonValue) -> Iterator[str]:
    if not isinstance(arguments, dict):
        yield from _lines(json.dumps(arguments, ensure_ascii=False))
        return
    for name, value in arguments.items():
        if isinstance(value, str) and "\n" in value:
            yield f"{plain(name)}:"
            yield from (f"  {line}" for line in _lines(value))
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield from _lines(f"{plain(name)}: {text}")


def _media(media: MediaRef) -> str:
    parts = [media.mime_type, media.filename, size(media.size_bytes) if media.size_bytes is not None else None]
    return "".join(f" {plain(part)}" for part in parts if part)


# `lanebus tail`: show the entries of a session, and follow new ones.


_COLUMNS = (
    Column("position", is_number=True, columns=6),
    Column("lane", columns=3),
    Column("time", columns=19),
    Column("kind", columns=12),
    Column("text", is_flexible=True),
)


@click.command("tail", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option("--follow", "-f", is_flag=True, help="Follow new entries until Ctrl-C.")
@click.option("--lane", type=click.Choice([lane.value for lane in Lane]), help="Show only this lane; default: both.")
@click.option("--after", metavar="CURSOR", help="Start after this position, or after this cursor of a JSON line.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Show only this role or kind, such as user, or agent.* for a prefix; may be repeated.",
)
@click.option("--until-closed", is_flag=True, help="Follow, and stop after the last entry of a closed session.")
@click.option("--live", is_flag=True, help="Follow, and show live deltas of messages while models write them.")
@click.option("--all", "is_unfolded", is_flag=True, help="In a table, show each event, and what frameworks store.")
@click.option("-n", "--lines", "last", type=click.IntRange(min=0), metavar="N", help="Show only the last N entries.")
@click.pass_context
def tail_command(
    ctx: click.Context,
    session: str,
    *,
    follow: bool,
    lane: str | None,
    kinds: tuple[str, ...],
    until_closed: bool,
    after: str | None,
    live: bool,
    is_unfolded: bool,
    last: int | None,
) -> None:
    """Show the entries of a session in order of position. With -f, follow new entries.

    A table has one row for all events of a turn, and a call that waits for a person stands with the command that
    approves it. --all, --lane and --kind show each event. What a framework stores, of a kind store.…, is shown with
    --all or --kind 'store.*'. `lanebus show` prints the conversation.

    As JSON, each line is an envelope: session, position, cursor (for --after), lane, time (seconds UTC), producer and
    message. An unreadable entry has the message null and an error. A live delta has its number in "delta". Only an
    imported entry has "is_imported", which is true. A notice on stderr says when the session is closed or reopened.

    \b
    Example: lanebus tail support-42 -f --lane extension
    """
    follows = follow or live or until_closed
    query = _Query(
        ALL_LANES if lane is None else frozenset({Lane(lane)}),
        kinds or None,
        START if after is None else Cursor.parse(after),
        last,
    )
    is_folded = not (is_unfolded or lane or kinds)
    show = _Show(Output.of(ctx), TurnFold(session) if is_folded else None, flush=follows)
    run(partial(_tail, Settings.of(ctx), session, query, show, follow=follows, live=live, until_closed=until_closed))


class _Query(NamedTuple):
    """The selection of entries to show."""

    lanes: Collection[Lane]
    kinds: Collection[str] | None
    after: Cursor
    last: int | None


async def _tail(
    settings: Settings,
    session_id: str,
    query: _Query,
    show: "_Show",
    *,
    follow: bool,
    live: bool,
    until_closed: bool,
) -> None:
    lanes, kinds, after, last = query
    async with open_bus(settings) as bus:
        session = bus.session(session_id)
        head = await session.head()
        if head.is_erased:
            raise SessionErased(session_id)
        end = head.position
        if not end:
            if not follow:
                raise SessionEmpty(session_id)
            tell(f"session {session_id!r} has no entries yet; waiting for the first")
        if not after.incarnation and after.position > end > 0:  # a position that a person typed
            raise BeyondEnd(session_id, after.position, end)
        if last is not None:
            for envelope in await _last(session, query, end, last):
                show(envelope)
            after = head.cursor if head.position > after.position else after
        if follow:
            with _until_reader_gone():
                items = session.subscribe(lanes=lanes, kinds=kinds, after=after, live=live)
                await _show_until(session_id, items, show, until_closed=until_closed)
        elif last is None:
            async with aclosing(session.read(lanes=lanes, kinds=kinds, after=after)) as envelopes:
                async for envelope in envelopes:
                    show(envelope)


async def _show_until(
    session_id: str, items: AsyncGenerator[Envelope | Notice, None], show: "_Show", *, until_closed: bool
) -> None:
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Envelope):
                show(item)
            elif item.kind in {"closed", "reopened"}:
                tell(f"session {session_id!r} was {item.kind}")
                if until_closed and item.kind == "closed":
                    return


async def _last(session: Session, query: _Query, end: int, count: int) -> list[Envelope]:
    """Return the last `count` entries that match. As filters skip entries, the range is widened until it has enough."""
    span, (lanes, kinds, after, _) = count, query
    while count and after.position < end:
        start = max(after, Cursor(max(end - span, 0)))
        entries = [envelope async for envelope in session.read(lanes=lanes, kinds=kinds, after=start, until=end)]
        if len(entries) >= count or start == after:
            return entries[-count:]
        span *= 4
    return []


class _Show:
    """Prints envelopes as rows or as JSON."""

    def __init__(self, output: Output, fold: TurnFold | None, *, flush: bool) -> None:
        self._output, self._fold, self._flush = output, fold, flush

    def __call__(self, envelope: Envelope) -> None:
        if self._output.is_json:
            self._output.json_text(entry_json(envelope), flush=self._flush)
            return
        position = f"{envelope.position}-{envelope.delta}" if envelope.delta else str(envelope.position)
        rows = None if self._fold is None else self._fold.rows(envelope)
        for kind, text in [summarize(envelope)] if rows is None else rows:
            row = (position, envelope.lane.value[:3], moment(envelope.time), kind, text)
            # A command that is cut cannot be copied.
            self._output.row(_COLUMNS, row, flush=self._flush, is_whole=kind == "waits" and rows is not None)


def entry_json(envelope: Envelope) -> str:
    """Encode an envelope as one line of JSON, with the message in its native form as in the log."""
    place = {"session": envelope.session, "position": envelope.position, "cursor": str(envelope.cursor)}
    delta = {"delta": envelope.delta} if envelope.delta else {}
    imported = {"is_imported": True} if envelope.is_imported else {}
    origin = {"lane": envelope.lane.value, "time": envelope.time, "producer": envelope.producer, **imported}
    message = envelope.message
    if isinstance(message, DecodeFailure):
        error = {"type": type(message.error).__name__, "reason": str(message.error)}
        return compact({**place, **delta, **origin, "message": None, "error": error})
    return spliced({**place, **delta, **origin}, "message", message.to_json())


@contextmanager
def _until_reader_gone() -> Generator[None]:
    """End the block when the reader of stdout closes the pipe. Without new entries, no write would notice a closed
    pipe.

    Raises:
        BrokenPipeError: the reader is gone.
    """
    pipe = _output_pipe()
    if pipe is None:
        yield
        return
    is_gone = False
    with anyio.CancelScope() as scope:

        def end() -> None:
            nonlocal is_gone
            is_gone = True
            scope.cancel()

        loop = asyncio.get_running_loop()
        # The writing end of a pipe never becomes readable, but the loop reports it as readable once the other end is
        # closed.
        loop.add_reader(pipe, end)
        try:
            yield
        finally:
            loop.remove_reader(pipe)
    if is_gone:
        raise BrokenPipeError


def _output_pipe() -> int | None:
    """Return the file descriptor of stdout if it is a pipe that the event loop can watch."""
    if sys.platform == "win32":
        return None
    try:
        output = sys.stdout.fileno()
        return output if stat.S_ISFIFO(os.fstat(output).st_mode) else None
    except (OSError, ValueError):  # stdout has no file descriptor
        return None
