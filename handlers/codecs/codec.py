"""The interface of a codec: the JSON of another system's messages, read as ours and written from ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.json_reader import Publishable

__all__ = ("ORIGIN", "Codec", "Unsayable", "Written", "written")

ORIGIN = "origin"
"""Key in a message's metadata for what the other system's JSON says and our messages have no field for.

Its value is an object with the codec's name as `codec`. The same codec writes it back. No other codec and no provider
sees it.
"""


class Unsayable(MessageError):
    """The other system's JSON cannot represent something in the messages. Nothing was written.

    Fields: `codec`; `losses`, one text for each thing, with its path such as "2.content.0.altText".
    """

    def __init__(self, codec: str, losses: tuple[str, ...]) -> None:
        super().__init__(f"{codec} cannot represent {'; '.join(losses)}. Change the messages, or write them lossy")
        self.codec, self.losses = codec, losses


@dataclass(frozen=True, slots=True)
class Written:
    """Messages as the other system's JSON."""

    values: tuple[JsonValue, ...]
    """One per message of theirs. Several of our tool results can become one message."""
    losses: tuple[str, ...] = ()
    """What was left out or changed, each with its path; empty unless `lossy` was True."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """One system's JSON. Both functions are pure."""

    name: str
    """The seed's number, such as "000". It is stored in each origin, so it never changes."""
    about: str
    """One line about the system."""
    read: Callable[[JsonValue], Sequence[Publishable]]
    """Reads one of their messages; several are returned if it holds several tool results. Raises MessageError, with the
    path to the fault, if the message does not have their form.
    """
    write: Callable[[Sequence[Publishable], bool], Written]
    """Writes our messages, in order. The second argument is `lossy`: True leaves out what they cannot represent and
    lists it, False raises Unsayable.
    """

    def read_all(self, values: Sequence[JsonValue]) -> tuple[Publishable, ...]:
        """Read a history, message by message.

        Args:
            values: their messages, in order.

        Raises:
            DecodeError: a message does not have their form. The path starts with its index.
        """
        messages = list[Publishable]()
        for index, value in enumerate(values):
            try:
                messages += self.read(value)
            except DecodeError as error:
                raise DecodeError(f"{index}.{error.path}" if error.path else str(index), error.reason) from None
        return tuple(messages)


def written(codec: str, values: Sequence[JsonValue], losses: Sequence[str], *, lossy: bool) -> Written:
    """Return what a codec has written.

    Args:
        codec: the codec's name.
        values: what was written.
        losses: what was left out or changed.
        lossy: whether the caller accepts losses.

    Raises:
        Unsayable: there are losses, and `lossy` is False.
    """
    if losses and not lossy:
        raise Unsayable(codec, tuple(losses))
    return Written(tuple(values), tuple(losses))
