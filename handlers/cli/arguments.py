"""Parse arguments of the command line: turn ids and messages of the user."""

from collections.abc import Sequence

import click

from lanebus.bus.errors import DecodeError, InvalidCursor
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.cli.usage import WrongUsage

__all__ = ("EXPECTED_HELP", "CursorParameter", "read_turn", "user_messages")

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
