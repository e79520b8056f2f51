"""Codecs: convert between another system's JSON messages and lanebus messages.

`Codec` is the interface. `CODECS` has all codecs by name, each imported on first use. `NATIVE` is the codec of
lanebus's own JSON.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import MappingProxyType

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages import Publishable, read_message
from lanebus.handlers.projections import Lazy

# The interface of a codec, which converts between another system's JSON messages and lanebus messages.

ORIGIN = "origin"
"""Key in a message's metadata for the parts of the other system's JSON that lanebus messages have no field for.

The value is an object with the codec's name as `codec`. The same codec writes those parts back. No other codec and no
provider sees the value.
"""


class Unsayable(MessageError):
    """The other system's JSON cannot represent a part of the messages. Nothing was written.

    Fields: `codec`, the codec's name; `losses`, one text per part, with the part's path such as "2.content.0.altText".
    """

    def __init__(self, codec: str, losses: tuple[str, ...]) -> None:
        super().__init__(f"{codec} cannot represent {'; '.join(losses)}", "change the messages, or write them lossy")
        self.codec, self.losses = codec, losses


@dataclass(frozen=True, slots=True)
class Written:
    """Messages as the other system's JSON."""

    values: tuple[JsonValue, ...]
    """One JSON value per message of the other system. Several lanebus tool results can become one such message."""
    losses: tuple[str, ...] = ()
    """One text per part that was left out or changed, with the part's path. Empty unless `lossy` was True."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Reads and writes the JSON of one other system. `read` and `write` are pure functions."""

    name: str
    """The codec's number, such as "000" for `coding-agent`. Metadata in logs contain the number, so it must never
    change."""
    about: str
    """One line about the system."""
    read: Callable[[JsonValue], Sequence[Publishable]]
    """Reads one message of the other system. Returns several lanebus messages if it holds several tool results.

    Raises MessageError, with the path to the fault, if the message does not have the other system's form.
    """
    write: Callable[[Sequence[Publishable], bool], Written]
    """Writes lanebus messages, in order. The second argument is `lossy`.

    If `lossy` is True, parts that the other system cannot represent are left out and listed in the result. If it is
    False, such parts raise Unsayable.
    """

    def read_all(self, values: Sequence[JsonValue]) -> tuple[Publishable, ...]:
        """Read a history, message by message.

        Args:
            values: the other system's messages, in order.

        Raises:
            DecodeError: a message does not have the other system's form. The path starts with the message's index.
        """
        messages = list[Publishable]()
        for index, value in enumerate(values):
            try:
                messages += self.read(value)
            except DecodeError as error:
                raise DecodeError(f"{index}.{error.path}" if error.path else str(index), error.reason) from None
        return tuple(messages)


def written(codec: str, values: Sequence[JsonValue], losses: Sequence[str], *, lossy: bool) -> Written:
    """Return the result of a codec's `write`.

    Args:
        codec: the codec's name.
        values: the JSON values that the codec wrote.
        losses: one text per part that was left out or changed.
        lossy: whether the caller accepts losses.

    Raises:
        Unsayable: there are losses, and `lossy` is False.
    """
    if losses and not lossy:
        raise Unsayable(codec, tuple(losses))
    return Written(tuple(values), tuple(losses))


_CODEC_MODULES = {
    "coding-agent": "coding_agent",
    "two-lane-agent": "two_lane_agent",
    "graph-v1": "graph.codec",
    "graph-v2": "graph.codec",
    "universal-client": "universal_client",
}

ALIASES: Mapping[str, str] = MappingProxyType({f"{number:03}": name for number, name in enumerate(_CODEC_MODULES)})
"""Number of a codec, "000" to "004" → name of the codec. Metadata in logs contain the number."""


def _load_codec(name: str) -> Codec:
    found: object = getattr(
        import_module(f"lanebus.handlers.formats.{_CODEC_MODULES[name]}"), name.replace("-", "_").upper()
    )
    assert isinstance(found, Codec)  # noqa: S101  # only for the type checker; a test loads them all
    return found


CODECS = Lazy({name: partial(_load_codec, ALIASES.get(name, name)) for name in (*_CODEC_MODULES, *ALIASES)})
"""Name, such as "universal-client", or number, such as "004" → the codec."""


def _read_native(value: JsonValue) -> Sequence[Publishable]:
    return (read_message(json.dumps(value, ensure_ascii=False)),)


def _write_native(messages: Sequence[Publishable], lossy: bool) -> Written:
    del lossy
    return Written(tuple(json.loads(message.to_json()) for message in messages))


NATIVE = Codec(name="native", about="messages of this bus, of both lanes", read=_read_native, write=_write_native)
