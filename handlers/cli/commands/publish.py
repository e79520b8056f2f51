"""`lanebus publish`: append messages to a session."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError, DecodeError, MessageError
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_parser import parse_json
from lanebus.bus.messages.json_reader import Publishable, read_message
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage, UserMessage
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.arguments import EXPECTED_HELP, CursorParameter
from lanebus.handlers.cli.errors import InputLineRefused
from lanebus.handlers.cli.groups import is_served, tell_unserved
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.session_id import SessionId, complete_agent
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.receipt import receipt_json
from lanebus.handlers.cli.usage import WrongUsage

__all__ = ("command",)

_ROLES: Mapping[str, type[UserMessage | SystemMessage | DeveloperMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}


@click.command("publish", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.argument("text", required=False)
@click.option("--role", type=click.Choice(list(_ROLES)), help="Role of the message; default: user.")
@click.option(
    "--extension", "kind", metavar="KIND", help="Publish an extension message of this kind; TEXT is its JSON data."
)
@click.option("--json", "is_json", is_flag=True, help="Read messages from stdin, one native JSON object per line.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Agent of a new session; refused if the session belongs to another. Default: the session's own.",
)
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat with the same key adds nothing.")
@click.option("--expected", type=CursorParameter(), metavar="CURSOR", help=EXPECTED_HELP)
@click.pass_context
def command(
    ctx: click.Context,
    session: str,
    text: str | None,
    *,
    role: str | None,
    kind: str | None,
    is_json: bool,
    agent: str | None,
    key: str | None,
    expected: Cursor | None,
) -> None:
    """Append a message to a session. Without TEXT, the message is read from stdin. The first message creates the
    session.

    Several messages (--json) are appended in one step: all or none. A user message wakes a worker, if one runs.

    \b
    Example: lanebus publish support-42 "What is 17 × 23?"
    Example: lanebus publish support-42 --extension progress '{"percent": 40}'
    """
    if sum(option is not None for option in (role, kind, is_json or None)) > 1:
        raise WrongUsage("--role, --extension and --json exclude each other", "give one of them")
    if is_json:
        if text is not None:
            raise WrongUsage("--json reads messages from stdin", "leave out TEXT")
        messages: Sequence[Publishable] = _read_lines(_read_stdin())
    elif kind is not None:
        messages = [ExtensionMessage.of(kind, parse_json(text if text is not None else _read_stdin()))]
    else:
        messages = [_ROLES[role or "user"].text(_text(text))]
    receipt, unserved = on_bus(ctx, partial(_publish, session, messages, agent=agent, key=key, expected=expected))
    first, last = receipt.positions[0], receipt.positions[-1]
    what = "already published under this key at" if receipt.is_duplicate else "published at"
    Output.of(ctx).answer(
        receipt_json(session, receipt), f"{session}: {what} position {first}" + (f" to {last}" if last > first else "")
    )
    if unserved is not None:
        tell_unserved(unserved)


async def _publish(
    name: str, messages: Sequence[Publishable], bus: Bus, *, agent: str | None, key: str | None, expected: Cursor | None
) -> tuple[Receipt, str | None]:
    """Publish. Return the receipt, and the session's agent if no live worker serves it."""
    session = bus.session(name)
    receipt = await session.publish(*messages, key=key, expected=expected, agent=agent)
    if not any(isinstance(message, UserMessage) for message in messages):
        return receipt, None
    try:
        owner = (await session.head()).agent
    except BusError:
        return receipt, None  # the messages are in the log; the hint is not worth an error
    return receipt, None if await is_served(bus, owner) else owner


def _text(text: str | None) -> str:
    """Return the message's text: the argument, or stdin without its final line break."""
    try:
        # Arguments that are not UTF-8 contain lone surrogates, which `encode` refuses.
        read = _read_stdin().decode().removesuffix("\n") if text is None else text.encode().decode()
    except UnicodeError:
        raise DecodeError("", "the text is not UTF-8") from None
    if not read.strip():
        raise WrongUsage("the message is empty", "write its text as TEXT or on stdin")
    return read


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
        raise WrongUsage("stdin is empty", "write one message per line")
    return messages
