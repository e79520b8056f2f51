"""Check the arguments of the functions that send commands."""

from typing import TypeVar

from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from lanebus.bus.errors import InvalidArgument, require_instance
from lanebus.bus.messages.control import Control
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.session.session import Session, require_session

__all__ = ("make_control", "read_turn_id")

_ControlT = TypeVar("_ControlT", bound=Control)


def make_control(kind: type[_ControlT], **fields: object) -> _ControlT:
    """Return a command. Raise InvalidArgument for a field of a wrong type."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = to_snake(str(first["loc"][0]))
        raise InvalidArgument(name, fields.get(name), first["msg"].replace("Input", "it", 1)) from None


def read_turn_id(session: Session, turn_id: TurnId | str) -> TurnId:
    """Return a turn id that a caller passed, either as a `TurnId` or as text. Raise DecodeError for another text."""
    require_session(session)
    require_instance("turn_id", turn_id, (TurnId, str), "pass a TurnId, or its text such as 'main.3#0'")
    return TurnId.from_text(turn_id, session.id) if isinstance(turn_id, str) else turn_id
