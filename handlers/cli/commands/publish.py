"""`lanebus publish`: append to a session."""

import sys
from collections.abc import Mapping, Sequence

import click

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable, parse_json, read_message
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage, UserMessage
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.errors import InputLineRefused
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.receipt import receipt_json

__all__ = ("command",)

_ROLES: Mapping[str, type[UserMessage | SystemMessage | DeveloperMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}


@click.command("publish", cls=BusCommand)
@click.argument("session")
@click.argument("text", required=False)
@click.option("--role", type=click.Choice(list(_ROLES)), help="Who speaks; the user if not given.")
@click.option(
    "--extension", "kind", metavar="KIND", help="For the extension lane, of this kind; the text is its JSON data."
)
@click.option("--json", "is_json", is_flag=True, help="Stdin has whole messages as native JSON, one a line.")
@click.option("--key", help="Your own name for this publish; published again under it, nothing is added.")
@click.option(
    "--expected", type=click.IntRange(min=0), metavar="POSITION", help="Refuse if the session's last entry is another."
)
@click.pass_context
def command(
    ctx: click.Context,
    session: str,
    text: str | None,
    *,
    role: str | None,
    kind: str | None,
    is_json: bool,
    key: str | None,
    expected: int | None,
) -> None:
    """Append a message to a session: TEXT, or what stands on stdin. A session begins with its first message.

    Several messages (--json) go in together or, if one of them is refused, not at all. What the user says wakes a
    worker, if one runs.

    \b
    Example: lanebus publish support-42 "What is 17 × 23?"
    Example: lanebus publish support-42 --extension progress '{"percent": 40}'
    """
    if len([given for given in (role, kind, is_json or None) if given is not None]) > 1:
        raise click.UsageError("--role, --extension and --json exclude each other")
    if is_json:
        if text is not None:
            raise click.UsageError("with --json the messages come from stdin, not as an argument")
        messages: Sequence[Publishable] = _read_lines(_read_stdin())
    elif kind is not None:
        messages = [ExtensionMessage.of(kind, parse_json(text if text is not None else _read_stdin()))]
    else:
        messages = [_ROLES[role or "user"].text(_text(text))]
    receipt = on_bus(ctx, lambda bus: bus.session(session).publish(*messages, key=key, expected=expected))
    first, last = receipt.positions[0], receipt.positions[-1]
    what = "is there already, under this key:" if receipt.is_duplicate else "published at"
    Output.of(ctx).answer(
        receipt_json(session, receipt), f"{session}: {what} position {first}" + (f" to {last}" if last > first else "")
    )


def _text(text: str | None) -> str:
    """What to say, from the argument or from stdin without the end of its last line."""
    try:
        # What is no UTF-8 comes in an argument as lone surrogates.
        said = _read_stdin().decode().removesuffix("\n") if text is None else text.encode().decode()
    except UnicodeError:
        raise DecodeError("", "the text is not UTF-8") from None
    if not said.strip():
        raise click.UsageError("there is nothing to publish: the text is empty")
    return said


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        tell("reading from the terminal; end with Ctrl-D")
    return sys.stdin.buffer.read()


def _read_lines(data: bytes) -> list[Publishable]:
    messages: list[Publishable] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                messages.append(read_message(line))
            except MessageError as error:
                raise InputLineRefused(number, str(error)) from None
    if not messages:
        raise click.UsageError("there is nothing to publish: stdin has no line")
    return messages
