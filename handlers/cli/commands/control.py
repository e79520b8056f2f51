"""`lanebus control`: tell the agent that works on a session to stop, to listen, to wait or to go on."""

from collections.abc import Mapping, Sequence
from functools import partial

import anyio
import click
from pydantic import JsonValue

from lanebus.bus.messages.control import Control
from lanebus.bus.messages.events import ControlAnswered
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.agent.command_specs import COMMAND_SPECS, read_control
from lanebus.handlers.agent.commands import answered, follow_up, send
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import read_turn, user_messages
from lanebus.handlers.cli.errors import NotAnswered
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.receipt import receipt_json

__all__ = ("command",)

_OPTIONS = {"reason": "reason", "to": "to", "loop_id": "loop", "by": "by"}
"""field of a command → its option"""

_WIDEST = max(map(len, COMMAND_SPECS))
_LIST = "\n".join(f"{name:<{_WIDEST}}  {spec.help}" for name, spec in COMMAND_SPECS.items())

_HELP = f"""Tell the agent of a session something: VERB, with the text to steer or follow up with, or with the turn and
the call to approve or deny. The session's worker answers it when it takes effect, and --wait shows the answer.

\b
{_LIST}

\b
Example: lanebus control support-42 abort --when turn --wait 10
Example: lanebus control support-42 steer "In French, please"
Example: lanebus control support-42 approve support-42.main.3#0 call-1
"""


@click.command("control", cls=BusCommand, help=_HELP)
@click.argument("session")
@click.argument("verb", type=click.Choice(list(COMMAND_SPECS)))
@click.argument("words", nargs=-1, metavar="[WORD]…")
@click.option("--when", type=click.Choice(["now", "turn", "next"]), help="abort: now or turn. steer: now or next.")
@click.option("--reason", metavar="TEXT", help="Why.")
@click.option("--to", metavar="NAME", help="Whom a handoff is to.")
@click.option("--loop", "loop_id", metavar="ID", help="Abort only this loop.")
@click.option("--by", metavar="NAME", help="Who asks, for those who read the log.")
@click.option("--key", help="Your own name for this; sent again under it, nothing is added.")
@click.option(
    "--wait", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait until a worker has answered, at most so long."
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    session: str,
    verb: str,
    words: tuple[str, ...],
    *,
    key: str | None,
    wait: float | None,
    **options: str | None,
) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    _check(verb, words, given, wait)
    control, said = _read(verb, words, given)
    receipt, answer = on_session(ctx, session, partial(_control, control=control, said=said, key=key, wait=wait))
    what = "is there already, under this key:" if receipt.is_duplicate else "told at"
    told = f": {answer.outcome}" if answer else ""
    why = f" ({answer.reason})" if answer and answer.reason else ""
    Output.of(ctx).answer(
        {**receipt_json(session, receipt), "outcome": answer and answer.outcome, "reason": answer and answer.reason},
        f"{session}: {what} position {receipt.position}{told}{why}",
    )


def _check(verb: str, words: Sequence[str], given: Mapping[str, str], wait: float | None) -> None:
    """Refuse what the verb does not take."""
    takes = COMMAND_SPECS[verb]
    if len(words) != len(takes.arguments):
        raise click.UsageError(f"{verb} takes {' '.join(takes.arguments) or 'no words'}")
    if "when" in given and given["when"] not in takes.when_choices:
        raise click.UsageError(f"{verb} takes {' or '.join(takes.when_choices) or 'no'} --when")
    for field, option in _OPTIONS.items():
        if field in given and field not in takes.options:
            raise click.UsageError(f"{verb} takes no --{option}")
    if takes.control is None and wait is not None:
        raise click.UsageError(f"{verb} is no command that a worker answers: it takes no --wait")


def _read(verb: str, words: Sequence[str], given: Mapping[str, str]) -> tuple[Control | None, UserMessage | None]:
    """The command, None for a follow-up, and what the user says."""
    takes = COMMAND_SPECS[verb]
    said = user_messages(words)[0] if takes.arguments == ("TEXT",) else None
    if takes.control is None:
        return None, said
    data: dict[str, JsonValue] = {**given}
    if said is None and words:
        turn, data["tool_call_id"] = words
        data["turn_id"] = read_turn(turn).model_dump()
    return read_control(verb, data), said


async def _control(
    session: Session, *, control: Control | None, said: UserMessage | None, key: str | None, wait: float | None
) -> tuple[Receipt, ControlAnswered | None]:
    if control is None:
        assert said is not None  # noqa: S101  # only for the type checker
        return await follow_up(session, said, key=key), None
    receipt = await send(session, control, said, key=key)
    if wait is None:
        return receipt, None
    with anyio.move_on_after(wait):
        return receipt, await answered(session, receipt)
    raise NotAnswered(session.id, receipt.position, wait)
