"""Arguments that name sessions, groups, agents, turns and messages, their completion in a shell, and the user's consent
to a command that cannot be undone.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from lanebus.bus import Bus
from lanebus.bus.errors import BusError, DecodeError, InvalidCursor, check_bounds
from lanebus.bus.messages import TurnId, UserMessage
from lanebus.bus.wire import Cursor, check_group
from lanebus.handlers.cli.errors import Declined, NoSuchGroup
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.output import tell, visible

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from click.shell_completion import CompletionItem

    from lanebus.handlers.cli.options import Settings


# The type of arguments that name a session, and the completion of names in a shell.


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionBounds:
    """How long a completion may take, and how much it shows."""

    seconds: float = 1.0
    """longest time for one word; if the server is slower, nothing is completed"""
    ids: int = 100
    """maximum number of names to suggest"""

    def __post_init__(self) -> None:
        check_bounds(self)


_BOUNDS = CompletionBounds()


class SessionId(click.ParamType[str]):
    """A session id. Shells complete it with the ids of the bus that the command line names."""

    name = "session"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged. The bus checks the id later, and raises its own error."""
        del param, ctx
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[str]]":
        """Return the session ids that begin with `incomplete`, as suggestions for the shell."""
        del param
        return complete_session(ctx, incomplete)


def complete_session(ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
    """Return the session ids that begin with `incomplete`, in alphabetical order, at most 100."""
    return _complete(ctx, incomplete, lambda bus: bus.catalog.names(incomplete, _BOUNDS.ids))


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    """Return the consumer groups whose names begin with `incomplete`, at most 100."""
    del param
    return _complete(ctx, incomplete, lambda bus: bus.groups())


def complete_agent(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    """Return the agents whose names begin with `incomplete`, at most 100."""
    del param

    async def names(bus: "Bus") -> list[str]:
        return [agent.name for agent in await bus.agents()]

    return _complete(ctx, incomplete, names)


def _complete(
    ctx: click.Context, incomplete: str, ask: "Callable[[Bus], Awaitable[Sequence[str]]]"
) -> "list[CompletionItem[str]]":
    """Return the names that begin with a text. Errors and delays complete nothing, and nothing is printed."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  # only a completion needs these

    from lanebus.bus.errors import BusError  # noqa: PLC0415
    from lanebus.handlers.cli.options import Settings  # noqa: PLC0415
    from lanebus.handlers.cli.output import shell_word  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning would be printed into the prompt
            # A completion stores nothing, and a module that it imports could print into the prompt.
            names = _names(Settings.of(ctx)._replace(redact=None), ask)
    except (BusError, click.UsageError, OSError):
        return []
    # The shell puts the word into the prompt as it is: a name that it would read as a command is left out.
    safe = [name for name in names if name.startswith(incomplete) and shell_word(name) == name]
    return [CompletionItem(name) for name in safe][: _BOUNDS.ids]


def _names(
    settings: "Settings", ask: "Callable[[Bus], Awaitable[Sequence[str]]]", bounds: CompletionBounds = _BOUNDS
) -> "Sequence[str]":
    import anyio  # noqa: PLC0415

    from lanebus.handlers.cli.access import open_bus  # noqa: PLC0415

    async def main() -> "Sequence[str]":
        with anyio.move_on_after(bounds.seconds):
            async with open_bus(settings) as bus:
                return await ask(bus)
        return []

    return anyio.run(main)


EXPECTED_HELP = (
    'Refuse if the session ends elsewhere: the "cursor" of the last entry that you saw, 0 for an empty session. A '
    "position alone is also accepted; after a rollback it may name another entry."
)
"""help of the option --expected"""


class CursorParameter(click.ParamType[Cursor]):
    """A cursor, as `lanebus tail --json` prints it, or a position."""

    name = "cursor"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Cursor:
        """Return the cursor. Raises click.BadParameter if the text is none."""
        try:
            return value if isinstance(value, Cursor) else Cursor.parse(str(value))
        except InvalidCursor as error:
            self.fail(str(error), param, ctx)


def read_turn(text: str, session: str) -> TurnId:
    """Parse a turn id such as `support-42.main.3#0`, or its short form `main.3#0`.

    Raises:
        click.BadParameter: `text` is not a turn id.
    """
    try:
        return TurnId.from_text(text, session)
    except DecodeError as error:
        raise click.BadParameter(error.reason) from None


def user_messages(texts: Sequence[str]) -> list[UserMessage]:
    """Make a user message of each text.

    Raises:
        WrongUsage: a text is empty.
        DecodeError: a text is not UTF-8.
    """
    for text in texts:
        if not text.strip():
            raise WrongUsage("a message is empty", "write its text")
        try:
            text.encode()
        except UnicodeError:
            raise DecodeError("", "the text is not UTF-8") from None
    return [UserMessage.text(text) for text in texts]


# Check consumer groups and agents that a command names.


async def require_groups(bus: Bus, names: Sequence[str]) -> None:
    """Check that each of these groups exists.

    Raises:
        InvalidName: a name is not valid for a group.
        NoSuchGroup: a group does not exist; the error names the groups that exist.
    """
    for name in names:
        check_group(name)
    known = await bus.groups() if names else ()
    for name in names:
        if name not in known:
            raise NoSuchGroup(name, tuple(known))


async def is_served(bus: Bus, agent: str) -> bool:
    """Return whether a live worker serves an agent. Also return True if the server does not answer."""
    try:
        return agent in await bus.live_workers()
    except BusError:
        return True


def tell_unserved(agent: str, *, can_hand_over: bool = True) -> None:
    """Tell the user that no worker serves the agent of a session yet. A worker that is just starting is not known yet.

    Args:
        agent: the agent.
        can_hand_over: whether to advise a handover. False after one.
    """
    other = ", or hand the session over with `lanebus hand-over`" if can_hand_over else ""
    tell(
        f"no worker serves the agent {agent} yet: the session waits until one does. "
        f"Unless one is just starting, start it with `lanebus worker`{other}"
    )


# Ask for confirmation before a command that cannot be undone.

F = TypeVar("F", bound=Callable[..., object])


def yes_option(command: F) -> F:
    """Add the option `--yes` to a command that asks for confirmation."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")(
        command
    )


def require_consent(done: str, *, yes: bool) -> None:
    """Refuse to continue if the user cannot be asked: stdin is not a terminal, and `--yes` is not given.

    Args:
        done: participle of what the command does, as in "nothing was erased".
        yes: whether `--yes` was given.

    Raises:
        WrongUsage: stdin is not a terminal, and `yes` is false.
    """
    if not yes and not sys.stdin.isatty():
        raise WrongUsage(f"nothing was {done}: there is no terminal to ask on", "confirm with --yes")


def ask(question: str, done: str, *, yes: bool) -> None:
    """Ask a question on stderr. Return if the user agreed.

    Call `ask` outside of the event loop, so that Ctrl-C interrupts the wait for an answer.

    Args:
        question: the question, with its question mark.
        done: participle of what the command does, as in "nothing was erased".
        yes: whether `--yes` was given; if so, return without asking.

    Raises:
        Declined: the user did not agree.
    """
    if not yes and not click.confirm(visible(question), err=True):
        raise Declined(done)
