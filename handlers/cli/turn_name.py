"""A turn as it is named at the command line: as `lanebus tail` shows it."""

import click

from bus.messages.turn import TurnId

__all__ = ("TURN", "read_turn")


def read_turn(text: str) -> TurnId:
    """The turn of that name.

    Raises:
        click.BadParameter: it is none.
    """
    loop_id, _, index = text.rpartition("#")
    if not loop_id or not (index.isascii() and index.isdecimal()):
        raise click.BadParameter(f"{text!r} is no turn: want one such as support-42.main.3#0")
    return TurnId(loop_id=loop_id, turn_index=int(index))


class _Turn(click.ParamType):
    name = "turn"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> TurnId:
        del param, ctx
        return value if isinstance(value, TurnId) else read_turn(str(value))


TURN = _Turn()
"""the type of an option that names a turn"""
