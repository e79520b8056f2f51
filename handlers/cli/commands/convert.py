"""`lanebus convert`: convert messages to another system's format, or to a provider's request."""

import sys

import click

from lanebus.handlers.cli.dialects import SOURCES, TARGETS, authored, codec_of, read_messages, request_of
from lanebus.handlers.cli.exits import ExitCode, print_error
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.values import INPUT_LIMIT_BYTES, read_values, written_values
from lanebus.handlers.cli.usage import WrongUsage
from lanebus.handlers.codecs.codec import Unsayable
from lanebus.handlers.json_text import compact
from lanebus.handlers.providers.common.errors import ContentRefused, NoModel
from lanebus.handlers.providers.registry import PROVIDERS

__all__ = ("command",)


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
