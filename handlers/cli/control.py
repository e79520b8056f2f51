"""`lanebus control`: tell the agent that works on a session to stop, to listen, to wait or to go on."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import anyio
import click

from bus.messages.events import ControlAnswered
from bus.messages.message import UserMessage
from bus.messages.turn import TurnId
from bus.receipt import Receipt
from bus.session import Session
from handlers.agent import commands
from handlers.cli.closing import spoken
from handlers.cli.errors import NotAnswered
from handlers.cli.opening import open_session
from handlers.cli.options import BusCommand, Settings
from handlers.cli.output import Output
from handlers.cli.run import run
from handlers.cli.turn_name import read_turn

__all__ = ("command",)


class _Given(NamedTuple):
    """What was given beside the verb."""

    words: Sequence[str]
    when: str | None
    reason: str | None
    to: str | None
    loop: str | None
    by: str | None
    key: str | None

    @property
    def text(self) -> UserMessage:
        """What the user says."""
        return spoken(self.words)[0]

    @property
    def call(self) -> tuple[TurnId, str]:
        """The turn and the call, as `lanebus tail` shows them."""
        turn, call = self.words
        return read_turn(turn), call


class _Verb(NamedTuple):
    """How a command is sent, and what it takes."""

    send: Callable[[Session, _Given], Awaitable[Receipt]]
    options: frozenset[str] = frozenset({"by"})
    words: tuple[str, ...] = ()
    when: tuple[str, ...] = ()


async def _abort(session: Session, given: _Given) -> Receipt:
    when: Literal["now", "turn"] = "turn" if given.when == "turn" else "now"
    return await commands.abort(session, loop_id=given.loop, when=when, reason=given.reason, by=given.by, key=given.key)


async def _steer(session: Session, given: _Given) -> Receipt:
    when: Literal["next", "now"] = "now" if given.when == "now" else "next"
    return await commands.steer(session, given.text, when=when, by=given.by, key=given.key)


async def _follow_up(session: Session, given: _Given) -> Receipt:
    return await commands.follow_up(session, given.text, key=given.key)


async def _approve(session: Session, given: _Given) -> Receipt:
    return await commands.approve(session, *given.call, by=given.by, key=given.key)


async def _deny(session: Session, given: _Given) -> Receipt:
    return await commands.deny(session, *given.call, reason=given.reason, by=given.by, key=given.key)


async def _pause(session: Session, given: _Given) -> Receipt:
    return await commands.pause(session, reason=given.reason, by=given.by, key=given.key)


async def _handoff(session: Session, given: _Given) -> Receipt:
    return await commands.handoff(session, to=given.to, reason=given.reason, by=given.by, key=given.key)


async def _resume(session: Session, given: _Given) -> Receipt:
    return await commands.resume(session, by=given.by, key=given.key)


async def _compact(session: Session, given: _Given) -> Receipt:
    return await commands.compact_now(session, by=given.by, key=given.key)


_VERBS: Mapping[str, _Verb] = {
    "abort": _Verb(_abort, frozenset({"by", "reason", "loop"}), when=("now", "turn")),
    "steer": _Verb(_steer, words=("TEXT",), when=("now", "next")),
    "follow-up": _Verb(_follow_up, frozenset(), words=("TEXT",)),
    "approve": _Verb(_approve, words=("TURN", "CALL")),
    "deny": _Verb(_deny, frozenset({"by", "reason"}), words=("TURN", "CALL")),
    "pause": _Verb(_pause, frozenset({"by", "reason"})),
    "handoff": _Verb(_handoff, frozenset({"by", "reason", "to"})),
    "resume": _Verb(_resume),
    "compact": _Verb(_compact, frozenset({"by"})),
}


@click.command("control", cls=BusCommand)
@click.argument("session")
@click.argument(
    "verb",
    type=click.Choice(list(_VERBS)),
)
@click.argument("words", nargs=-1, metavar="[WORD]…")
@click.option("--when", type=click.Choice(["now", "turn", "next"]), help="abort: now or turn. steer: now or next.")
@click.option("--reason", metavar="TEXT", help="Why.")
@click.option("--to", metavar="NAME", help="Whom a handoff is to.")
@click.option("--loop", metavar="ID", help="Abort only this loop.")
@click.option("--by", metavar="NAME", help="Who asks, for those who read the log.")
@click.option("--key", help="Your own name for this; sent again under it, nothing is added.")
@click.option(
    "--wait", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait until a worker has answered, at most so long."
)
@click.pass_context
def command(
    ctx: click.Context,
    session: str,
    verb: str,
    words: tuple[str, ...],
    *,
    when: str | None,
    reason: str | None,
    to: str | None,
    loop: str | None,
    by: str | None,
    key: str | None,
    wait: float | None,
) -> None:
    """Tell the agent of a session something: VERB, with the text to steer or follow up with, or with the turn and the
    call to approve or deny. The session's worker answers it when it takes effect, and --wait shows the answer.

    \b
    abort      end what the agent does, and answer nothing that was said before
    steer      say something to the loop that is running
    follow-up  say something that waits until the loop is over
    approve    let a tool run that waits for a person
    deny       do not let it run
    pause      stop after the turn that is under way
    handoff    the same, and the session is a person's
    resume     go on after pause or handoff
    compact    tell the context shorter before the next turn

    \b
    Example: lanebus control support-42 abort --when turn --wait 10
    Example: lanebus control support-42 steer "In French, please"
    Example: lanebus control support-42 approve support-42.main.3#0 call-1
    """
    given = _Given(words, when, reason, to, loop, by, key)
    _check(verb, given, wait)
    receipt, answer = run(partial(_control, Settings.of(ctx), session, verb, given, wait))
    _show(Output.of(ctx), session, receipt, answer)


def _check(verb: str, given: _Given, wait: float | None) -> None:
    """Refuse what the verb does not take."""
    takes = _VERBS[verb]
    if len(given.words) != len(takes.words):
        raise click.UsageError(f"{verb} takes {' '.join(takes.words) or 'no words'}")
    if given.when is not None and given.when not in takes.when:
        raise click.UsageError(f"{verb} takes {' or '.join(takes.when) or 'no'} --when")
    for name in ("reason", "to", "loop", "by"):
        if getattr(given, name) is not None and name not in takes.options:
            raise click.UsageError(f"{verb} takes no --{name}")
    if verb == "follow-up" and wait is not None:
        raise click.UsageError("follow-up is no command that a worker answers: it takes no --wait")
    if takes.words:
        _ = given.text if takes.words == ("TEXT",) else given.call


async def _control(
    settings: Settings, session_id: str, verb: str, given: _Given, wait: float | None
) -> tuple[Receipt, ControlAnswered | None]:
    async with open_session(settings, session_id) as session:
        receipt = await _VERBS[verb].send(session, given)
        if wait is None:
            return receipt, None
        with anyio.move_on_after(wait):
            return receipt, await commands.answered(session, receipt)
        raise NotAnswered(session_id, receipt.position, wait)


def _show(output: Output, session: str, receipt: Receipt, answer: ControlAnswered | None) -> None:
    if output.is_json:
        output.json(
            {
                "session": session,
                "positions": receipt.positions,
                "is_duplicate": receipt.is_duplicate,
                "outcome": answer and answer.outcome,
                "reason": answer and answer.reason,
            }
        )
        return
    what = "is there already, under this key:" if receipt.is_duplicate else "told at"
    told = f": {answer.outcome}" if answer else ""
    why = f" ({answer.reason})" if answer and answer.reason else ""
    output.line(f"{session}: {what} position {receipt.position}{told}{why}")
