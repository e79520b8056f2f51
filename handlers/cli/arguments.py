"""What is typed at the command line, read: a turn by its name, and what the user says."""

from collections.abc import Sequence

import click

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId

__all__ = ("read_turn", "user_messages")


def read_turn(text: str) -> TurnId:
    """The turn of that name, as `lanebus tail` shows it; the type of an option that names one.

    Raises:
        click.BadParameter: it is none.
    """
    loop_id, _, index = text.rpartition("#")
    if not loop_id or not (index.isascii() and index.isdecimal()):
        raise click.BadParameter(f"{text!r} is no turn: want one such as support-42.main.3#0")
    return TurnId(loop_id=loop_id, turn_index=int(index))


def user_messages(texts: Sequence[str]) -> list[UserMessage]:
    """The messages of a user with these texts.

    Raises:
        click.UsageError: a text is empty.
        DecodeError: a text is not UTF-8.
    """
    for text in texts:
        if not text.strip():
            raise click.UsageError("there is nothing to publish: a text is empty")
        try:
            text.encode()
        except UnicodeError:
            raise DecodeError("", "the text is not UTF-8") from None
    return [UserMessage.text(text) for text in texts]
