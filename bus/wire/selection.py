"""What a reader wants of a session: which lanes, and of them which kinds of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from lanebus.bus.errors import EntryDamaged, ForgedEntry, NoKinds, NoLanes, UnknownVersion
from lanebus.bus.messages.context_entry import ContextEntry
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.codec import is_whole
from lanebus.bus.wire.envelope import DecodeFailure, Envelope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lanebus.bus.messages.context_entry import AnyContextEntry
    from lanebus.bus.messages.delta import Delta
    from lanebus.bus.messages.json_reader import Publishable
    from lanebus.bus.messages.message import Message
    from lanebus.bus.wire.codec import Entry

__all__ = ("Selection", "kind_of")

# How the bus begins the JSON of a message. Where it begins otherwise, its kind is known only once it is decoded.
_KIND = {
    Lane.LLM: re.compile(rb'\{"role":"(?:context","kind":"(\w+)|(system|developer|user|assistant|toolResult))"'),
    Lane.EXTENSION: re.compile(rb'\{"role":"extension","kind":"([ !#-\[\]-~]*)"'),
}


class Selection(NamedTuple):
    """Lanes and kinds. An entry that nobody can read, or that was forged, is of every kind: it is never hidden."""

    lanes: frozenset[Lane]
    names: frozenset[str] | None = None
    """kinds as they are; None is every kind"""
    prefixes: tuple[str, ...] = ()
    """what wanted kinds begin with"""
    whole: frozenset[Lane] = frozenset()
    """lanes of which every kind is wanted, whatever the names say"""

    @classmethod
    def of(cls, lanes: Collection[Lane], kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None) -> Self:
        """Of kinds as a caller writes them: exact, or `agent.*` for all that begin so; None is every kind. Where they
        are given for lanes, of each other lane every kind is wanted.

        Raises:
            NoLanes: there are no lanes.
            NoKinds: there are no kinds, in any of the lanes.
        """
        if not lanes:
            raise NoLanes
        if kinds is None:
            return cls(frozenset(lanes))
        if isinstance(kinds, Mapping):
            by_lane = cast("Mapping[Lane, Collection[str]]", kinds)
            whole = frozenset(lanes) - by_lane.keys()
            if whole and not any(by_lane.values()):  # nothing of the lanes that kinds are given for
                return cls(frozenset(lanes), frozenset(), (), whole)
            named = cls.of(lanes, [kind for each in by_lane.values() for kind in each])
            return named._replace(whole=whole)
        if isinstance(kinds, str):  # one kind, and not each of its letters
            kinds = (kinds,)
        if not kinds:
            raise NoKinds
        prefixes = sorted({kind[:-1] for kind in kinds if kind.endswith("*")})
        return cls(frozenset(lanes), frozenset(kind for kind in kinds if not kind.endswith("*")), tuple(prefixes))

    @classmethod
    def union(cls, selections: Iterable[Selection]) -> Self:
        """What any of them wants, and perhaps more."""
        lanes, names, prefixes, whole, has_all = set[Lane](), set[str](), set[str](), set[Lane](), False
        for each in selections:
            lanes |= each.lanes
            has_all = has_all or each.names is None
            names |= each.names or frozenset()
            prefixes |= {*each.prefixes}
            whole |= each.whole
        if has_all:
            return cls(frozenset(lanes))
        return cls(frozenset(lanes), frozenset(names), tuple(sorted(prefixes)), frozenset(whole))

    @property
    def in_order(self) -> tuple[Lane, ...]:
        """Its lanes, always in the same order."""
        return tuple(lane for lane in Lane if lane in self.lanes)

    def takes(self, envelope: Envelope) -> bool:
        """Whether an envelope of a lane is wanted."""
        if envelope.lane not in self.lanes:
            return False
        if self.names is None or envelope.lane in self.whole:
            return True
        message = envelope.message
        if not isinstance(message, DecodeFailure):
            return self.takes_kind(kind_of(message))
        if isinstance(message.error, ForgedEntry | EntryDamaged | UnknownVersion):
            return True
        kind = _kind_in(envelope.lane, message.raw)
        return kind is None or self.takes_kind(kind)

    def takes_kind(self, kind: str) -> bool:
        """Whether messages of this kind are wanted."""
        return self.names is None or kind in self.names or kind.startswith(self.prefixes)

    def may_take(self, lane: Lane, entry: Entry) -> bool:
        """Whether an entry may be wanted, told from its first bytes: `takes` has the last word once it is decoded.

        A tenth of the work of decoding a short message, and as much for a long one.
        """
        if lane in self.whole:
            return True
        kind = _kind_in(lane, entry[1][-1])
        if kind is None or self.takes_kind(kind):
            return True
        # It is passed over only if it is an entry as the bus wrote it, as others are shown for what they are.
        return not is_whole(lane, entry)


def kind_of(message: Publishable | Delta) -> str:
    """The one word for what a message is: an extension's or a context entry's kind, else the role of who speaks."""
    if isinstance(message, ExtensionMessage | ContextEntry):
        return cast("ExtensionMessage | AnyContextEntry", message).kind
    return cast("Message | Delta", message).role


def _kind_in(lane: Lane, body: bytes) -> str | None:
    found = _KIND[lane].match(body)
    return found[found.lastindex or 0].decode() if found else None
