"""Print the result of a publish, for people and for programs."""

from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.cli.terminal.output import Output

__all__ = ("receipt_json", "show_state")


def receipt_json(session: str, receipt: Receipt) -> dict[str, object]:
    """Return a receipt as JSON, the same for every command that publishes."""
    return {"session": session, "positions": receipt.positions, "is_duplicate": receipt.is_duplicate}


def show_state(output: Output, session: str, receipt: Receipt | None, *, is_closed: bool) -> None:
    """Print that the session was closed or reopened. Without a receipt, the session was closed or open already, and
    nothing was appended."""
    what = "closed" if is_closed else "open"
    again = ", already done under this key" if receipt is not None and receipt.is_duplicate else ""
    output.answer(
        {**receipt_json(session, receipt or Receipt((), is_duplicate=True)), "is_closed": is_closed},
        f"{session}: {what} at position {receipt.position}{again}" if receipt else f"{session}: already {what}",
    )
