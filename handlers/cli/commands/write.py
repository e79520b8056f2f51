"""Commands that write to a session: publish, control, close, reopen, hand-over and fork."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import click
from pydantic import JsonValue

from lanebus.bus import Bus, Session, SessionHead
from lanebus.bus.errors import BusError, Conflict, DecodeError, MessageError, SessionClosed
from lanebus.bus.messages import (
    Approve,
    Control,
    ControlAnswered,
    Deny,
    DeveloperMessage,
    ExtensionMessage,
    Publishable,
    SystemMessage,
    UserMessage,
    parse_json,
    read_message,
)
from lanebus.bus.wire import Cursor, Receipt
from lanebus.handlers.agent import COMMAND_SPECS, AnswerTimeout, answered, decide_call, follow_up, read_control, send
from lanebus.handlers.cli.access import existing, on_bus, on_session
from lanebus.handlers.cli.arguments import (
    EXPECTED_HELP,
    CursorParameter,
    SessionId,
    complete_agent,
    is_served,
    read_turn,
    tell_unserved,
    user_messages,
)
from lanebus.handlers.cli.errors import CommandRefused, InputLineRefused, NotAnswered, SessionOpen
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.options import BusCommand, ViewCommand
from lanebus.handlers.cli.output import Output, tell

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
def publish_command(
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
        messages: Sequence[Publishable] = _messages_of_lines(_stdin_bytes())
    elif kind is not None:
        messages = [ExtensionMessage.of(kind, parse_json(text if text is not None else _stdin_bytes()))]
    else:
        messages = [_ROLES[role or "user"].text(_message_text(text))]
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


def _message_text(text: str | None) -> str:
    """Return the message's text: the argument, or stdin without its final line break."""
    try:
        # Arguments that are not UTF-8 contain lone surrogates, which `encode` refuses.
        read = _stdin_bytes().decode().removesuffix("\n") if text is None else text.encode().decode()
    except UnicodeError:
        raise DecodeError("", "the text is not UTF-8") from None
    if not read.strip():
        raise WrongUsage("the message is empty", "write its text as TEXT or on stdin")
    return read


def _stdin_bytes() -> bytes:
    if sys.stdin.isatty():
        tell("reading from the terminal; end with Ctrl-D")
    return sys.stdin.buffer.read()


def _messages_of_lines(data: bytes) -> list[Publishable]:
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


_CONTROL_OPTIONS = {"reason": "reason", "to": "to", "loop_id": "loop", "by": "by"}
"""options of the command line by the field of the control message that they set"""

_EFFECTIVE = frozenset({"applied", "repeated"})
"""outcomes of a command that has taken effect"""

_WIDEST_CONTROL = max(map(len, COMMAND_SPECS))
_CONTROL_LIST = "\n".join(f"{name:<{_WIDEST_CONTROL}}  {spec.help}" for name, spec in COMMAND_SPECS.items())

_CONTROL_HELP = f"""\
Send a command to the agent of a session. steer and follow-up need TEXT, the user's message. approve and
deny need TURN and CALL, the ids of the turn and the tool call; `lanebus turns` prints TURN without the session. A
worker answers each command but follow-up in the log.

\b
COMMAND is one of:
{_CONTROL_LIST}

\b
Example: lanebus control support-42 abort --when turn --wait 10
Example: lanebus control support-42 steer "In French, please"
Example: lanebus control support-42 approve support-42.main.3#0 call-1
"""


@click.command("control", cls=BusCommand, help=_CONTROL_HELP)
@click.argument("session", type=SessionId())
@click.argument("name", metavar="COMMAND", type=click.Choice(list(COMMAND_SPECS)))
@click.argument("arguments", nargs=-1, metavar="[TEXT | TURN CALL]")
@click.option(
    "--when",
    type=click.Choice(["now", "turn", "next"]),
    help="abort: now (default), or turn, after the current turn. steer: next (default), in the next request, or now.",
)
@click.option("--reason", metavar="TEXT", help="abort, deny, pause, handoff: the reason, recorded in the log.")
@click.option("--to", metavar="NAME", help="handoff: the person who takes over.")
@click.option("--loop", "loop_id", metavar="ID", help="abort: only this loop; default: the running one.")
@click.option("--by", metavar="NAME", help="Sender of the command, recorded in the log.")
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat of the command with this key adds nothing.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait this long for a worker's answer, and print it; default: do not wait. The exit code is 4 unless the "
    "command is applied or repeated.",
)
@click.pass_context
def control_command(
    ctx: click.Context,
    /,
    session: str,
    name: str,
    arguments: tuple[str, ...],
    *,
    key: str | None,
    wait: float | None,
    **options: str | None,
) -> None:
    fields = {field: value for field, value in options.items() if value is not None}
    _check_control(name, arguments, fields, wait)
    control, message = _read_arguments(session, name, arguments, fields)
    receipt, answer = on_session(ctx, session, partial(_control, control=control, message=message, key=key, wait=wait))
    what = "already sent under this key at" if receipt.is_duplicate else "sent at"
    outcome = f": {answer.outcome}" if answer else ""
    reason = f" ({answer.reason})" if answer and answer.reason else ""
    Output.of(ctx).answer(
        {**receipt_json(session, receipt), "outcome": answer and answer.outcome, "reason": answer and answer.reason},
        f"{session}: {what} position {receipt.position}{outcome}{reason}",
    )
    if answer is not None and answer.outcome not in _EFFECTIVE:
        raise CommandRefused(session, name, answer.outcome, answer.reason)


def _check_control(name: str, arguments: Sequence[str], fields: Mapping[str, str], wait: float | None) -> None:
    """Raise if an argument or option does not belong to the command."""
    spec = COMMAND_SPECS[name]
    if len(arguments) != len(spec.arguments):
        needed = " and ".join(spec.arguments)
        if needed:
            raise WrongUsage(
                f"{name} needs {needed} after its name",
                f"write lanebus control SESSION {name} {' '.join(spec.arguments)}",
            )
        raise WrongUsage(f"{name} takes no arguments", f"write lanebus control SESSION {name}")
    if "when" in fields and fields["when"] not in spec.when_choices:
        choices = " or ".join(spec.when_choices)
        if choices:
            raise WrongUsage(f"{name} cannot be sent with --when {fields['when']}", f"use --when {choices}")
        raise WrongUsage(f"{name} has no option --when", "leave it out")
    for field, option in _CONTROL_OPTIONS.items():
        if field in fields and field not in spec.options:
            raise WrongUsage(f"{name} has no option --{option}", "leave it out")
    if spec.control is None and wait is not None:
        raise WrongUsage(f"{name} gets no answer from a worker", "leave out --wait")


def _read_arguments(
    session: str, name: str, arguments: Sequence[str], fields: Mapping[str, str]
) -> tuple[Control | None, UserMessage | None]:
    """Return the control message (None for a follow-up) and the user's message (None if the command has none)."""
    spec = COMMAND_SPECS[name]
    message = user_messages(arguments)[0] if spec.arguments == ("TEXT",) else None
    if spec.control is None:
        return None, message
    data: dict[str, JsonValue] = {**fields}
    if message is None and arguments:
        turn, data["tool_call_id"] = arguments
        data["turn_id"] = read_turn(turn, session).model_dump()
    return read_control(name, data), message


async def _control(
    session: Session, *, control: Control | None, message: UserMessage | None, key: str | None, wait: float | None
) -> tuple[Receipt, ControlAnswered | None]:
    if control is None:
        assert message is not None  # noqa: S101  # only for the type checker
        return await follow_up(session, message, key=key), None
    if isinstance(control, Approve | Deny):
        receipt = await decide_call(session, control, key=key)
    else:
        receipt = await send(session, control, message, key=key)
    if wait is None:
        return receipt, None
    try:
        return receipt, await answered(session, receipt, seconds=wait)
    except AnswerTimeout as error:
        raise NotAnswered(session.id, receipt.position, wait, error.delay) from None


@click.command("close", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.argument("messages", nargs=-1, metavar="[MESSAGE]…")
@click.option("--reason", default="", metavar="TEXT", help="Reason; recorded in the `session.closed` event.")
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat with the same key adds nothing.")
@click.option("--expected", type=CursorParameter(), metavar="CURSOR", help=EXPECTED_HELP)
@click.pass_context
def close_command(
    ctx: click.Context,
    session: str,
    messages: tuple[str, ...],
    *,
    reason: str,
    key: str | None,
    expected: Cursor | None,
) -> None:
    """Close a session: it accepts no further messages until `lanebus reopen`. Its entries stay readable.

    Each MESSAGE is appended as a last user message, then the event `session.closed` with the reason, all in one step.
    Without a MESSAGE, closing a closed session changes nothing.

    \b
    Example: lanebus close support-42 --reason solved "Thanks, that was it."
    """
    last = user_messages(messages)
    receipt = on_session(ctx, session, partial(_close, last, reason=reason, key=key, expected=expected))
    show_state(Output.of(ctx), session, receipt, is_closed=True)


async def _close(
    last: Sequence[UserMessage], session: Session, *, reason: str, key: str | None, expected: Cursor | None
) -> Receipt | None:
    """Close a session. Return None if the session was closed already and there is no message to append."""
    try:
        return await session.close(*last, reason=reason, key=key, expected=expected)
    except SessionClosed:
        if last:
            raise
        return None


@click.command("reopen", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.argument("messages", nargs=-1, metavar="[MESSAGE]…")
@click.option("--reason", default="", metavar="TEXT", help="Reason; recorded in the `session.reopened` event.")
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat with the same key adds nothing.")
@click.pass_context
def reopen_command(
    ctx: click.Context, session: str, messages: tuple[str, ...], *, reason: str, key: str | None
) -> None:
    """Make a closed session accept messages again.

    The event `session.reopened` with the reason is appended, then each MESSAGE as a user message, all in one step.
    Without a MESSAGE, reopening an open session changes nothing.

    \b
    Example: lanebus reopen support-42 "It happens again."
    """
    first = user_messages(messages)
    receipt = on_session(ctx, session, partial(_reopen, first, reason=reason, key=key))
    show_state(Output.of(ctx), session, receipt, is_closed=False)


async def _reopen(first: Sequence[UserMessage], session: Session, *, reason: str, key: str | None) -> Receipt | None:
    """Reopen a session. Return None if the session is open already and there is no message to append."""
    if (await session.head()).is_closed:
        return await session.reopen(*first, reason=reason, key=key)
    if key is not None:
        with suppress(Conflict):  # only a repeat is answered: the session has entries
            return await session.publish(UserMessage.text(reason or "-"), key=key, expected=0)
    if first:
        raise SessionOpen(session.id)
    return None


@click.command("hand-over", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.argument("agent", shell_complete=complete_agent)
@click.option("--by", metavar="NAME", help="Name of the person or program; recorded in the log.")
@click.option("--reason", metavar="TEXT", help="Reason; recorded in the log.")
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat with the same key changes nothing.")
@click.option("--expected", type=CursorParameter(), metavar="CURSOR", help=EXPECTED_HELP)
@click.pass_context
def hand_over_command(
    ctx: click.Context,
    session: str,
    agent: str,
    *,
    by: str | None,
    reason: str | None,
    key: str | None,
    expected: Cursor | None,
) -> None:
    """Hand SESSION over to the agent named AGENT. A worker that serves AGENT continues its loop from the log. The
    worker that runs the session now stops, and can append nothing more to it.

    If the session belongs to AGENT already, nothing changes. A repeat after another handover takes the session back,
    unless it has the same --key. The answer names the agent that the session belongs to now.

    \b
    Example: lanebus hand-over support-42 billing --by anna
    """
    handing = partial(_hand_over, session, agent, by=by, reason=reason, key=key, expected=expected)
    receipt, owner, is_served = on_bus(ctx, handing)
    what = f"handed over to {owner} at position {receipt.position}"
    if receipt.is_duplicate:
        earlier = f"was handed over to {agent} at position {receipt.position}, and " if owner != agent else ""
        what = f"{earlier}belongs to {owner}{' now' if earlier else ''}, nothing changed"
    Output.of(ctx).answer({**receipt_json(session, receipt), "agent": owner}, f"{session}: {what}")
    if not is_served:
        tell_unserved(owner, can_hand_over=owner != agent)


async def _hand_over(
    name: str,
    agent: str,
    bus: Bus,
    *,
    by: str | None,
    reason: str | None,
    key: str | None,
    expected: Cursor | None,
) -> tuple[Receipt, str, bool]:
    """Hand a session over. Return the receipt, the session's agent now, and whether a live worker serves it."""
    session = await existing(bus, name)
    receipt = await session.hand_over(agent, by=by, reason=reason, key=key, expected=expected)
    owner = (await session.head()).agent or agent if receipt.is_duplicate else agent
    return receipt, owner, await is_served(bus, owner)


@click.command("fork", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="POSITION",
    help="Last shared entry; default: the last entry of SESSION.",
)
@click.option("--id", "name", metavar="ID", help="Id of the new session; default: a random id.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Agent that the new session belongs to; default: that of SESSION.",
)
@click.pass_context
def fork_command(ctx: click.Context, session: str, *, at: int | None, name: str | None, agent: str | None) -> None:
    """Start a session that shares the entries of SESSION up to a position. After this position, the two sessions
    continue independently. Entries are not copied.

    Prints the new session's id. If the command is repeated with the same --id and --at, it prints the same id and
    starts no second fork.

    \b
    Example: lanebus fork support-42 --at 12 --id support-42-again
    """
    head = on_session(ctx, session, partial(_fork, at=at, name=name, agent=agent))
    shared = head.origin.position if head.origin else 0
    Output.of(ctx).answer({"session": head.session, "parent": session, "position": shared}, head.session)


async def _fork(session: Session, *, at: int | None, name: str | None, agent: str | None) -> SessionHead:
    return await (await session.fork(at, id=name, agent=agent)).head()


# Print the result of a publish, for people and for programs.


def receipt_json(session: str, receipt: Receipt) -> dict[str, object]:
    """Return the JSON object that every publishing command prints for a receipt."""
    return {"session": session, "positions": receipt.positions, "is_duplicate": receipt.is_duplicate}


def show_state(output: Output, session: str, receipt: Receipt | None, *, is_closed: bool) -> None:
    """Print that a session is closed or open.

    Args:
        output: prints the text or JSON.
        session: id of the session.
        receipt: receipt of the close or reopen. None means that nothing was appended, because the session was already
            closed or open.
        is_closed: whether the session is closed.
    """
    what = "closed" if is_closed else "open"
    again = ", already done under this key" if receipt is not None and receipt.is_duplicate else ""
    output.answer(
        {**receipt_json(session, receipt or Receipt((), is_duplicate=True)), "is_closed": is_closed},
        f"{session}: {what} at position {receipt.position}{again}" if receipt else f"{session}: already {what}",
    )
