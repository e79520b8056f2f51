"""A turn as it is named at the command line: as `lanebus tail` shows it."""

import click

from bus.messages.turn import TurnId

__all__ = ("read_turn",)


def read_turn(text: str) -> TurnId:
    """The turn of that name; the type of an option that names one.

    Raises:
        click.BadParameter: it is none.
    """
    loop_id, _, index = text.rpartition("#")
    if not loop_id or not (index.isascii() and index.isdecimal()):
        raise click.BadParameter(f"{text!r} is no turn: want one such as support-42.main.3#0")
    return TurnId(loop_id=loop_id, turn_index=int(index))
