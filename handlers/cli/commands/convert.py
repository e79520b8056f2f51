"""`lanebus convert`: convert messages to another system's format, or to a provider's request."""

import sys
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import click
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages import AssistantMessage, Lane, Publishable, parse_json
from lanebus.bus.wire import Envelope
from lanebus.handlers.cli.exits import ExitCode, WrongUsage, print_error
from lanebus.handlers.cli.output import Output, tell
from lanebus.handlers.context import Context, evolve
from lanebus.handlers.formats import CODECS, NATIVE, PI, Codec, Moved, PositionMap, Unplaced, Unsayable, read_pi_message
from lanebus.handlers.providers import PROVIDERS, ContentRefused, NoModel, ProviderRequest
from lanebus.handlers.serve import compact

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
def command(
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
