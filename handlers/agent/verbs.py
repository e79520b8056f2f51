"""The verbs in which a running agent is told something: the command line and the page read commands by this table."""

from collections.abc import Mapping
from typing import NamedTuple, get_args

from pydantic import JsonValue

from lanebus.bus.errors import UnknownKind
from lanebus.bus.messages.control import CONTROLS, Control, Steer

__all__ = ("UNPLACED", "VERBS", "Verb", "read_control")

UNPLACED = 1
"""stands for the position of a `Steer` until `send` has published it"""


class Verb(NamedTuple):
    """One verb: what it does, and what it takes."""

    help: str
    control: type[Control] | None
    """the command that it sends; None for `follow-up`, a message that no worker answers as a command"""
    words: tuple[str, ...] = ()
    """what has to be given: TEXT is what the user says, TURN and CALL name the tool call"""

    @property
    def options(self) -> frozenset[str]:
        """The fields that may be given."""
        fields = {} if self.control is None else self.control.model_fields
        return frozenset(name for name, field in fields.items() if not field.is_required())

    @property
    def times(self) -> tuple[str, ...]:
        """What `when` may be, the default first; empty if there is no choice."""
        field = None if self.control is None else self.control.model_fields.get("when")
        return () if field is None else tuple(map(str, get_args(field.annotation)))


_ABOUT_A_CALL = ("TURN", "CALL")

_TEXTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "abort": ("end what the agent does, and answer nothing that was said before", ()),
    "steer": ("say something to the loop that is running", ("TEXT",)),
    "follow-up": ("say something that waits until the loop is over", ("TEXT",)),
    "approve": ("let a tool run that waits for a person", _ABOUT_A_CALL),
    "deny": ("do not let it run", _ABOUT_A_CALL),
    "pause": ("stop after the turn that is under way", ()),
    "handoff": ("the same, and the session is a person's", ()),
    "resume": ("go on after pause or handoff", ()),
    "compact": ("tell the context shorter before the next turn", ()),
}

VERBS: Mapping[str, Verb] = {name: Verb(text, CONTROLS.get(name), words) for name, (text, words) in _TEXTS.items()}
"""verb → what it is, in the order of the help"""


def read_control(verb: str, data: Mapping[str, JsonValue]) -> Control:
    """Return the command of a verb, with these fields. A `Steer` needs no position: `send` gives it one.

    Raises:
        UnknownKind: no command has this verb.
        DecodeError: the fields do not fit the command.
    """
    control = CONTROLS.get(verb)
    if control is None:
        raise UnknownKind(f"control.{verb}")
    return control.read({**data, "position": UNPLACED} if control is Steer else dict(data))
