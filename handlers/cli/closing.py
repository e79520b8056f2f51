"""What `lanebus close` and `lanebus reopen` say and show."""

from collections.abc import Sequence

import click

from bus.errors import DecodeError
from bus.messages.message import UserMessage
from bus.receipt import Receipt
from handlers.cli.output import Output

__all__ = ("show_state", "spoken")


def spoken(texts: Sequence[str]) -> list[UserMessage]:
    """What the user says with it.

    Raises:
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


def show_state(output: Output, session: str, receipt: Receipt, *, is_closed: bool) -> None:
    """What became of the session."""
    if output.is_json:
        output.json(
            {
                "session": session,
                "is_closed": is_closed,
                "positions": receipt.positions,
                "is_duplicate": receipt.is_duplicate,
            }
        )
        return
    what = "closed" if is_closed else "open"
    again = ", as it was under this key" if receipt.is_duplicate else ""
    output.line(f"{session}: {what} at position {receipt.position}{again}")
