"""What a codec is: the JSON of another system's messages, read into ours and written from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.json_reader import Publishable

__all__ = ("ORIGIN", "Codec", "Unsayable", "Written", "written")

ORIGIN = "origin"
"""Key of the metadata under which a codec keeps what its own system says and our messages have no field for: an object
with the codec's name as `codec`. The same codec writes it back; no other one, and no provider, ever sees it."""


class Unsayable(MessageError):
    """A message says what the other system's JSON has no way to say; nothing was written.

    Fields: `codec`; `losses`, one text for each thing, with its path such as "2.content.0.altText".
    """

    def __init__(self, codec: str, losses: tuple[str, ...]) -> None:
        super().__init__(f"{codec} cannot say {'; '.join(losses)}")
        self.codec, self.losses = codec, losses


@dataclass(frozen=True, slots=True)
class Written:
    """Messages as the other system's JSON."""

    values: tuple[JsonValue, ...]
    """one a message of theirs: several results of ours may have become one"""
    losses: tuple[str, ...] = ()
    """what was left out or changed, each with its path; only with `lossy`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """One system's JSON. Both functions are pure."""

    name: str
    """the seed's number, such as "000": stored in each origin, so it never changes"""
    about: str
    """whose messages these are, in a line"""
    read: Callable[[JsonValue], Sequence[Publishable]]
    """One of their messages as ours: several where it holds several tool results. Raises MessageError: it has not their
    shape; the path to the fault is named."""
    write: Callable[[Sequence[Publishable], bool], Written]
    """Our messages, in order, as theirs. The second argument is `lossy`: leave out what they cannot say, and tell it,
    rather than refuse. Raises Unsayable."""

    def read_all(self, values: Sequence[JsonValue]) -> tuple[Publishable, ...]:
        """A history of theirs as ours, message by message.

        Raises:
            DecodeError: one has not their shape; the path starts with its place among them, from 0.
        """
        messages = list[Publishable]()
        for index, value in enumerate(values):
            try:
                messages += self.read(value)
            except DecodeError as error:
                raise DecodeError(f"{index}.{error.path}" if error.path else str(index), error.reason) from None
        return tuple(messages)


def written(codec: str, values: Sequence[JsonValue], losses: Sequence[str], *, lossy: bool) -> Written:
    """What a codec has written.

    Raises:
        Unsayable: there are losses, and nobody has asked for them.
    """
    if losses and not lossy:
        raise Unsayable(codec, tuple(losses))
    return Written(tuple(values), tuple(losses))
