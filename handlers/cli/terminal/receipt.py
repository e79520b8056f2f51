"""Print the result of a publish, for people and for programs."""

from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.cli.terminal.output import Output

__all__ = ("receipt_json", "show_state")


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
