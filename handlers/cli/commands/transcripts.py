"""`lanebus import`, `export` and `convert`: transcripts into sessions and back, and other formats."""

import sys
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Literal, NamedTuple, Self, cast

import click
from pydantic import JsonValue

from lanebus.bus import ALL_LANES, Session, SessionHead
from lanebus.bus.errors import CursorTrimmed, DecodeError, EntriesMissing, InvalidSessionId, MessageError, ParentErased
from lanebus.bus.messages import AssistantMessage, Lane, LlmMessage, Publishable, parse_json
from lanebus.bus.wire import Cursor, Envelope, check_session_id
from lanebus.handlers.cli.access import open_bus, open_session, run
from lanebus.handlers.cli.arguments import SessionId, complete_agent
from lanebus.handlers.cli.errors import FileUnread, FileUnwritten
from lanebus.handlers.cli.exits import ExitCode, WrongUsage, print_error
from lanebus.handlers.cli.options import BusCommand, Settings, ViewCommand
from lanebus.handlers.cli.output import Output, count, tell
from lanebus.handlers.context import Context, evolve
from lanebus.handlers.formats import (
    CODECS,
    NATIVE,
    PI,
    Codec,
    ImportProgress,
    ImportReport,
    Moved,
    PositionMap,
    Unplaced,
    Unsayable,
    atomic_file,
    entry_line,
    header_line,
    import_transcript,
    read_lines,
    read_pi_message,
    with_media,
)
from lanebus.handlers.providers import PROVIDERS, ContentRefused, NoModel, ProviderRequest
from lanebus.handlers.serve import compact

_LINES_WITH_HEADER = 100
"""number of first lines that are searched for a header, because damaged lines may precede the header"""


@click.command("import", cls=ViewCommand)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--session",
    type=SessionId(),
    metavar="ID",
    help="Target session; default: the id in the transcript, else the name of the file.",
)
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Agent that a new session belongs to; default: the default agent.",
)
@click.pass_context
def import_command(ctx: click.Context, file: Path, session: str | None, agent: str | None) -> int:
    """Read a transcript FILE into a session; "-" is stdin. The format is detected. It may be a session file of pi, of
    Claude Code or in the coding-agent format, or a file of `lanebus export`. It may also be one JSON document: a
    conversation for OpenAI's Chat Completions.

    A repeated or interrupted import adds only what is missing. Without --session, a session that has other entries is
    refused: the file must not choose whose context it changes. Unreadable lines are listed on stderr with number and
    reason; the other lines are imported, and the exit code is 7. A line whose parent is not in the file is imported and
    listed too, because its context is a guess: after a bad line, and in a file of Claude Code, it follows the previous
    line; otherwise it begins a branch. If a file of `lanebus export` is incomplete, what it has is imported, the
    positions that it lacks are listed, and the exit code is 7. After a file that was cut, import the whole one.

    \b
    Example: lanebus import session.jsonl --session pi
    """
    name = session if session is not None else _session_for(file)
    report = run(partial(_import, Settings.of(ctx), file, name, agent, is_named=session is not None))
    for bad in report.bad:
        tell(f"{report.unit} {bad.number}: {bad.reason}")
    for line in report.missing_parents:
        tell(f"line {line.number}: its parent {line.parent!r} is missing, so its context is a guess")
    for gap in report.missing_entries:
        entries = f"entry {gap.first}" if gap.first == gap.last else f"entries {gap.first} to {gap.last}"
        tell(f"{entries} of the exported session: not in the file, although its header says so")
    _show_import(Output.of(ctx), name, report)
    if next_step := _next_step(report):
        tell(f"hint: {next_step}")
    return ExitCode.FAULTS if report.bad or report.missing_entries else ExitCode.DONE


async def _import(
    settings: Settings, file: Path, session_id: str, agent: str | None, *, is_named: bool
) -> ImportReport:
    try:
        async with open_bus(settings) as bus:
            with ProgressBar() as bar:
                source = sys.stdin.buffer if str(file) == "-" else file
                session = bus.session(session_id, agent=agent)
                return await import_transcript(session, source, beside_others=is_named, on_progress=bar.show)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise FileUnread(file, error.strerror or str(error)) from error


def _show_import(output: Output, session: str, report: ImportReport) -> None:
    plural = "" if len(report.bad) == 1 else "s"
    bad = f", {count(len(report.bad))} bad {report.unit}{plural}" if report.bad else ""
    lacked = sum(gap.last - gap.first + 1 for gap in report.missing_entries)
    missing = f", {count(lacked)} missing in the file" if lacked else ""
    there = f"{count(report.already_there)} already there"
    guessed = f", {count(len(report.missing_parents))} without their parent" if report.missing_parents else ""
    output.answer(
        {
            "session": session,
            "format": report.format,
            "lines": report.lines,
            "added": report.added,
            "already_there": report.already_there,
            "bad": [{report.unit: each.number, "reason": each.reason} for each in report.bad],
            "missing_parents": [{"line": each.number, "parent": each.parent} for each in report.missing_parents],
            "missing_entries": [{"first": gap.first, "last": gap.last} for gap in report.missing_entries],
            "first": report.first,
            "last": report.last,
        },
        f"{session}: {count(report.added)} entries added, {there}{bad}{guessed}{missing}"
        f" ({report.format} transcript of {count(report.lines)} lines)",
    )


def _next_step(report: ImportReport) -> str:
    """Return how to get what the file lacks; "" if it lacks nothing, or if this is not known."""
    if report.is_cut and len(report.missing_entries) <= 1:
        return "import the whole file into the same session, which adds what is missing"
    if report.missing_entries:
        return "import the whole file into a new session: in this one, what is missing would come last"
    return ""


def _session_for(file: Path) -> str:
    """Return the session id from the transcript's header, else from its file name.

    Raises:
        WrongUsage: neither contains a session id, or the transcript comes from stdin.
    """
    if str(file) == "-":
        raise WrongUsage("a transcript from stdin has no file name", "give a session id with --session")
    for candidate in (_id_in_header(file), file.stem):
        try:
            return check_session_id(candidate)
        except InvalidSessionId:
            continue
    raise WrongUsage(f"{file.name!r} contains no session id", "give one with --session")


def _id_in_header(file: Path) -> str:
    """Return the session id in the transcript's header; "" if no header with an id is found."""
    try:
        with file.open("rb") as lines:
            for line in islice(read_lines(lines), _LINES_WITH_HEADER):
                try:
                    value = parse_json(line.data or b"")
                except MessageError:
                    continue
                match value:
                    case (
                        {"type": "session" | "session_header", "id": str(found)}
                        | {"type": "lanebus.export", "session": str(found)}
                        | {"sessionId": str(found)}
                    ):
                        return found
                    case _:
                        pass
    except OSError as error:
        raise FileUnread(file, error.strerror or str(error)) from error
    return ""


@click.command("export", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write; default: stdout. The file appears once it is complete.",
)
@click.option("--lane", type=click.Choice([lane.value for lane in Lane]), help="Export only this lane; default: both.")
@click.option("--no-media", is_flag=True, help="Write references instead of the media that are in the media store.")
@click.pass_context
def export_command(ctx: click.Context, session: str, *, file: Path | None, lane: str | None, no_media: bool) -> None:
    """Write a session as JSON, one object per line: a header, then each entry with position, lane, time, producer and
    message. `lanebus import` reads the file into a session of any bus.

    An unreadable entry is written with its error and its bytes. Stored media are written inside their messages.
    Trimmed entries are written if --archive holds them.

    \b
    Example: lanebus export support-42 -o support-42.jsonl
    """
    lanes = ALL_LANES if lane is None else frozenset({Lane(lane)})
    with _line_writer(file, Output.of(ctx)) as write:
        entries = run(partial(_export, Settings.of(ctx), session, lanes, write, with_stored=not no_media))
    if file is not None:
        tell(f"{session}: {count(entries)} entries written to {file}")


async def _export(
    settings: Settings, session_id: str, lanes: Collection[Lane], write: Callable[[str], None], *, with_stored: bool
) -> int:
    entries = 0
    async with open_session(settings, session_id) as session:
        head = await session.head()
        first = await _first_readable(session, head)
        write(header_line(head, lanes, first))
        # The header names the last position, so entries published from now on are not exported.
        reading = session.read(lanes=lanes, after=Cursor(first - 1), until=head.position)
        async with aclosing(reading) as envelopes:
            async for envelope in envelopes:
                write(entry_line(await _with_media(envelope, session) if with_stored else envelope))
                entries += 1
    return entries


async def _first_readable(session: Session, head: SessionHead) -> int:
    """Return the position of the first entry that can be read from the log, the archive or a fork's parent.

    A notice tells which entries before it are gone, and why.
    """
    first = 1
    while first <= head.position:
        try:
            async with aclosing(session.read(after=Cursor(first - 1), until=head.position)) as envelopes:
                await anext(envelopes, None)
        except CursorTrimmed as gap:
            match gap:
                case EntriesMissing():
                    why = "are missing, no trim removed them,"
                case ParentErased(parent=parent):
                    why = f"went with the session {parent!r}, which was erased,"
                case _:
                    why = "were trimmed"
            tell(f"{session.id}: entries {first} to {gap.first_kept - 1} {why} and are not exported")
            first = gap.first_kept
        else:
            break
    return first


async def _with_media(envelope: Envelope, session: Session) -> Envelope:
    if not isinstance(envelope.message, LlmMessage):
        return envelope
    message, missing = await with_media(envelope.message, session.media)
    for digest in missing:
        tell(
            f"warning: entry {envelope.position}: media {digest} are missing from the store, or too large for one line"
        )
    return envelope._replace(message=message)


@contextmanager
def _line_writer(file: Path | None, output: Output) -> Generator[Callable[[str], None]]:
    """Yield a function that writes one line to the file, or to stdout.

    Raises:
        FileUnwritten: the file could not be written. An earlier file of this name is unchanged.
    """
    if file is None:
        yield output.json_text
        return
    try:
        with atomic_file(file) as lines:
            yield lambda line: cast("None", lines.write(line.encode() + b"\n"))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileUnwritten(file, error.strerror or str(error)) from error


_CELLS = 30
_PAUSE = 0.05  # least seconds between two drawings
_CLEAR_LINE = "\r\x1b[2K"


class ProgressBar:
    """Draws a progress line on stderr during the block, then removes it. Draws nothing if stderr is no terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()

    def show(self, progress: ImportProgress) -> None:
        """Draw the progress, unless it was drawn less than `_PAUSE` seconds ago."""
        if not self._is_shown or monotonic() - self._last < _PAUSE:
            return
        self._last = monotonic()
        sys.stderr.write(_CLEAR_LINE + _bar(progress))
        sys.stderr.flush()


def _bar(progress: ImportProgress) -> str:
    entries = f"{count(progress.entries)} entries"
    if not progress.total_bytes:
        return entries
    part = min(progress.read_bytes / progress.total_bytes, 1.0)
    done = round(part * _CELLS)
    return f"[{'█' * done}{'·' * (_CELLS - done)}] {part:4.0%}  {entries}"


# `lanebus convert`: convert messages to another system's format, or to a provider's request.


# Read JSON input and write JSON output in the same form: one value, a list, or one value per line.

INPUT_LIMIT_BYTES = 64 * 1024 * 1024
"""maximum number of bytes of input, which is held in memory"""

Form = Literal["one", "list", "lines"]
_UNIT = {"list": "message", "lines": "line"}


class BadInput(MessageError):
    """The input cannot be decoded. Nothing was written.

    Fields: `where`, such as "line 3", counted from 1, or "" for the whole input; `reason`, with the path to the fault.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where, self.reason = where, reason


class InputTooLarge(MessageError):
    """The input is larger than the limit. Nothing was decoded."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the input is over the limit of {limit_bytes} bytes", "split it")
        self.limit_bytes = limit_bytes


class Values(NamedTuple):
    """The JSON values of the input, and whether the input was one value, a list, or a value per line."""

    form: Form
    values: tuple[tuple[int, JsonValue], ...]
    """pairs of number and value. The number, counted from 1, is the value's line or its index in the list"""

    def where(self, number: int) -> str:
        """Return where the value with this number is in the input, such as "line 3"; "" if the input is one value."""
        return f"{_UNIT[self.form]} {number}" if self.form in _UNIT else ""


def read_values(data: bytes, *, limit_bytes: int = INPUT_LIMIT_BYTES) -> Values:
    """Decode JSON: one value, a list, or a value per line.

    Raises:
        BadInput: the input, or a line of the input, is not JSON.
        InputTooLarge: the input is larger than `limit_bytes`.
    """
    if len(data) > limit_bytes:
        raise InputTooLarge(limit_bytes)
    text = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value = parse_json(text)
    except DecodeError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not any(_is_object(line) for _, line in (lines[0], lines[-1])):
            raise BadInput("", str(error)) from None
        return Values("lines", tuple(_parsed(lines)))
    if isinstance(value, list):
        return Values("list", tuple(enumerate(value, 1)))
    return Values("one", ((1, value),))


def written_values(form: Form, values: Sequence[JsonValue]) -> str:
    """Encode values as JSON in the given form. With the form "one", several values are written
    as a list."""
    if form == "lines":
        return "\n".join(map(compact, values))
    return compact(values[0] if form == "one" and len(values) == 1 else list(values))


def _parsed(lines: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, JsonValue]]:
    for number, line in lines:
        try:
            yield number, parse_json(line)
        except DecodeError as error:
            raise BadInput(f"line {number}", str(error)) from None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except DecodeError:
        return False


# Convert messages of one system to messages of another system, or to a provider's request. Pure.

SOURCES = (*CODECS, PI.name, NATIVE.name)
TARGETS = (*CODECS, NATIVE.name, *PROVIDERS)


def codec_of(name: str) -> Codec:
    """Return the codec of a format. Raises KeyError for `pi` and for the providers, which have no codec."""
    return NATIVE if name == NATIVE.name else CODECS[name]


def read_messages(source: str, values: Values) -> list[Publishable]:
    """Decode the messages, in order.

    Raises:
        BadInput: a message cannot be decoded. The error names its number and the path to the fault.
    """
    messages: list[Publishable] = []
    for number, value in values.values:
        try:
            messages += _read_pi(value) if source == PI.name else codec_of(source).read(value)
        except MessageError as error:
            raise BadInput(values.where(number), str(error)) from None
    return messages


def authored(messages: Sequence[Publishable], provider: str, model: str) -> list[Publishable]:
    """Return the messages, with `provider` and `model` as the author of each assistant message that names no author.

    A request contains signed thinking only if the message names the request's provider and model as its author.
    """
    return [
        message.model_copy(update={"provider": provider, "model": model})
        if isinstance(message, AssistantMessage) and message.provider is None and message.model is None
        else message
        for message in messages
    ]


def context_of(messages: Sequence[Publishable]) -> Context:
    """Return the context of a session that contains only these messages."""
    context = Context("converted")
    for position, message in enumerate(messages, 1):
        if message.lane is Lane.LLM:
            context = evolve(context, Envelope(context.session, position, Lane.LLM, message, 0.0, ""))
    return context


def request_of(
    messages: Sequence[Publishable], provider: str, *, model: str | None, max_tokens: int | None, lossy: bool
) -> ProviderRequest:
    """Return the request that shows the messages to a model. The request's warnings name everything that is left out.

    Args:
        provider: a name in `PROVIDERS`.
        model: the model's name; None takes the model that the messages name.
        max_tokens: maximum number of tokens of the answer; None is the provider's default.
        lossy: leave out content that the request cannot contain, such as extension messages.

    Raises:
        NoModel: `model` is None and the messages name no model.
        ContentRefused: the request cannot contain some of the content, and `lossy` is false.
    """
    context = context_of(messages)
    request = PROVIDERS[provider].to_request(context, model=model, max_tokens=max_tokens)
    others = [
        f"{index}: an extension message, which no model sees"
        for index, message in enumerate(messages)
        if message.lane is not Lane.LLM
    ]
    losses = (*others, *request.warnings)
    if losses and not lossy:
        raise ContentRefused(provider, losses)
    return ProviderRequest(request.body, losses, request.call_ids, request.tool_names)


def _read_pi(value: JsonValue) -> Sequence[Publishable]:
    """Decode a message of pi, or a line of a pi session file. References to other lines go into the metadata."""
    if isinstance(value, dict) and "type" not in value:
        return (read_pi_message(value, entry_id=None, written=None, rest={}),)
    match PI.read(value).message:
        case Unplaced() as unplaced:
            return (unplaced.place(None),)
        case Moved() as moved:
            return (moved.place(PositionMap()),)
        case message:
            return (message,)


@click.command("convert")
@click.option("--from", "source", type=click.Choice(SOURCES), required=True, help="Format of the messages on stdin.")
@click.option(
    "--to",
    "target",
    type=click.Choice(TARGETS),
    required=True,
    help="Format of the output: messages, or a provider's request.",
)
@click.option(
    "--author",
    metavar="PROVIDER/MODEL",
    help="Author of assistant messages that name none, such as anthropic/claude-x.",
)
@click.option("--lossy", is_flag=True, help="Leave out what the target format cannot express, with a warning for each.")
@click.option("--model", metavar="NAME", help="Model of a request; default: the one that the messages name.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Most tokens of a request's answer; default: the provider's.",
)
@click.pass_context
def convert_command(
    ctx: click.Context,
    source: str,
    target: str,
    *,
    author: str | None,
    lossy: bool,
    model: str | None,
    max_tokens: int | None,
) -> int:
    """Read messages as JSON from stdin, and write them to stdout in another system's format. The format native is
    lanebus's own; 000 to 004 are short names of the first five formats in the list of --from.

    Stdin holds one message, a JSON list, or one message per line; stdout has the same form. For a provider, stdout is
    one request body. If the target format cannot express something, nothing is written unless --lossy is given.

    \b
    Example: lanebus convert --from pi --to openai-chat --lossy --model gpt-5 < session.jsonl > request.json
    """
    is_request = target in PROVIDERS
    if not is_request and (model or max_tokens):
        raise WrongUsage("--model and --max-tokens need a provider's request", "name a provider with --to")
    values = read_values(_read_stdin())
    messages = read_messages(source, values)
    if author is not None:
        messages = authored(messages, *_author(author))
    try:
        if is_request:
            request = request_of(messages, target, model=model, max_tokens=max_tokens, lossy=lossy)
            losses, text = request.warnings, compact(request.body)
        else:
            written = codec_of(target).write(messages, lossy)
            losses, text = written.losses, written_values(values.form, written.values)
    except NoModel:
        raise WrongUsage("the messages name no model", "name one with --model") from None
    except (Unsayable, ContentRefused) as error:
        for loss in error.losses:
            tell(f"{target} cannot express: {loss}")
        print_error("nothing was written", "use --lossy to leave these out")
        return ExitCode.INVALID
    for loss in losses:
        tell(f"warning: {loss}")
    Output.of(ctx).json_text(text)
    return 0


def _author(text: str) -> tuple[str, str]:
    provider, slash, model = text.partition("/")
    if not (provider and slash and model):
        raise WrongUsage(f"--author {text!r} names no model", "write --author PROVIDER/MODEL")
    return provider, model


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        tell("reading from the terminal; end with Ctrl-D")
    data = sys.stdin.buffer.read(INPUT_LIMIT_BYTES + 1)
    if not data.strip():
        raise WrongUsage("stdin is empty", "pipe messages into it")
    return data
