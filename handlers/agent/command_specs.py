"""The commands to a running agent by name, for the command line and the web page, which read commands as text."""

from collections.abc import Mapping
from typing import NamedTuple, get_args

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, UnknownKind
from lanebus.bus.messages.control import CONTROLS, Control, Steer

__all__ = ("COMMAND_SPECS", "UNKNOWN_POSITION", "CommandSpec", "read_control")

UNKNOWN_POSITION = 1
"""the position of a `Steer` until `send` has published its message"""


class CommandSpec(NamedTuple):
    """What one command does, and which arguments it takes."""

    help: str
    control: type[Control] | None
    """class of the command's message; None for `follow-up`, which sends a user message instead of a command"""
    arguments: tuple[str, ...] = ()
    """required arguments: TEXT is the user's message, TURN and CALL name a tool call"""

    @property
    def options(self) -> frozenset[str]:
        """Names of the optional fields of the command's message."""
        fields = {} if self.control is None else self.control.model_fields
        return frozenset(name for name, field in fields.items() if not field.is_required())

    @property
    def when_choices(self) -> tuple[str, ...]:
        """Values of the field `when`, the default first; empty if the command has no such field."""
        field = None if self.control is None else self.control.model_fields.get("when")
        return () if field is None else tuple(map(str, get_args(field.annotation)))


_TOOL_CALL = ("TURN", "CALL")

_SPECS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "abort": ("end the running loop; earlier messages are not answered", ()),
    "steer": ("send a message to the running loop", ("TEXT",)),
    "follow-up": ("send a message that waits until the loop has ended", ("TEXT",)),
    "approve": ("run a tool call that waits for approval", _TOOL_CALL),
    "deny": ("refuse a tool call that waits for approval", _TOOL_CALL),
    "pause": ("stop after the current turn", ()),
    "handoff": ("stop after the current turn and hand the session to a person", ()),
    "resume": ("continue after pause or handoff", ()),
    "compact": ("summarize the context before the next turn", ()),
}

COMMAND_SPECS: Mapping[str, CommandSpec] = {
    name: CommandSpec(text, CONTROLS.get(name), arguments) for name, (text, arguments) in _SPECS.items()
}
"""specs by command name, in the order in which `lanebus control --help` lists them"""


def read_control(name: str, data: Mapping[str, JsonValue]) -> Control:
    """Return the message of a command.

    Args:
        name: the command's name, such as "abort". "follow-up" is not valid, because it sends a user message.
        data: the message's fields. A `Steer` needs no position: `send` sets it.

    Raises:
        UnknownKind: there is no command with this name.
        DecodeError: the fields do not fit the message.
    """
    control = CONTROLS.get(name)
    if control is None:
        raise UnknownKind(f"control.{name}", tuple(CONTROLS))
    try:
        return control.read({**data, "position": UNKNOWN_POSITION} if control is Steer else dict(data))
    except DecodeError as error:  # the caller wrote the fields without `data`
        raise DecodeError(error.path.removeprefix("data").removeprefix("."), error.reason) from None
