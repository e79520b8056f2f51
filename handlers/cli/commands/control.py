"""`lanebus control`: send a command to the agent of a session."""

from collections.abc import Mapping, Sequence
from functools import partial

import click
from pydantic import JsonValue

from lanebus.bus.messages.control import Approve, Control, Deny
from lanebus.bus.messages.events import ControlAnswered
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.agent.command_answer import answered
from lanebus.handlers.agent.command_specs import COMMAND_SPECS, read_control
from lanebus.handlers.agent.commands import decide_call, follow_up, send
from lanebus.handlers.agent.errors import AnswerTimeout
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import read_turn, user_messages
from lanebus.handlers.cli.errors import CommandRefused, NotAnswered
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.receipt import receipt_json
from lanebus.handlers.cli.usage import WrongUsage

__all__ = ("command",)

_OPTIONS = {"reason": "reason", "to": "to", "loop_id": "loop", "by": "by"}
"""options of the command line by the field of the control message that they set"""

_DONE = frozenset({"applied", "repeated"})
"""outcomes of a command that has taken effect"""

_WIDEST = max(map(len, COMMAND_SPECS))
_LIST = "\n".join(f"{name:<{_WIDEST}}  {spec.help}" for name, spec in COMMAND_SPECS.items())

_HELP = f"""Send a command to the agent of a session. steer and follow-up need TEXT, the user's message. approve and
deny need TURN and CALL, the ids of the turn and the tool call; `lanebus turns` prints TURN without the session. A
worker answers each command but follow-up in the log.

\b
COMMAND is one of:
{_LIST}

\b
Example: lanebus control support-42 abort --when turn --wait 10
Example: lanebus control support-42 steer "In French, please"
Example: lanebus control support-42 approve support-42.main.3#0 call-1
"""


@click.command("control", cls=BusCommand, help=_HELP)
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
def command(
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
    _check(name, arguments, fields, wait)
    control, message = _read(session, name, arguments, fields)
    receipt, answer = on_session(ctx, session, partial(_control, control=control, message=message, key=key, wait=wait))
    what = "already sent under this key at" if receipt.is_duplicate else "sent at"
    outcome = f": {answer.outcome}" if answer else ""
    reason = f" ({answer.reason})" if answer and answer.reason else ""
    Output.of(ctx).answer(
        {**receipt_json(session, receipt), "outcome": answer and answer.outcome, "reason": answer and answer.reason},
        f"{session}: {what} position {receipt.position}{outcome}{reason}",
    )
    if answer is not None and answer.outcome not in _DONE:
        raise CommandRefused(session, name, answer.outcome, answer.reason)


def _check(name: str, arguments: Sequence[str], fields: Mapping[str, str], wait: float | None) -> None:
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
    for field, option in _OPTIONS.items():
        if field in fields and field not in spec.options:
            raise WrongUsage(f"{name} has no option --{option}", "leave it out")
    if spec.control is None and wait is not None:
        raise WrongUsage(f"{name} gets no answer from a worker", "leave out --wait")


def _read(
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
