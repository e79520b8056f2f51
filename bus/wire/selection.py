"""The selection of a reader: lanes, and kinds of messages in these lanes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from lanebus.bus.errors import (
    EntryDamaged,
    ForgedEntry,
    InvalidArgument,
    NoKinds,
    NoLanes,
    UnknownVersion,
    require_all,
)
from lanebus.bus.messages.context_entry import ContextEntry
from lanebus.bus.messages.extension import STORE, ExtensionMessage
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

_LANES = frozenset(Lane)

# The beginning of a message's JSON as the bus writes it. If JSON begins differently, its kind is known after decoding.
_KIND = {
    Lane.LLM: re.compile(rb'\{"role":"(?:context","kind":"(\w+)|(system|developer|user|assistant|toolResult))"'),
    Lane.EXTENSION: re.compile(rb'\{"role":"extension","kind":"([ !#-\[\]-~]*)"'),
}


class Selection(NamedTuple):
    """The lanes and kinds to read. An unreadable or forged entry matches every kind, so it is never hidden.

    What a framework stores (kinds `store.…` of the extension lane) may hold content of the LLM lane. It is selected
    only together with the LLM lane, so a reader of the extension lane alone never sees it.
    """

    lanes: frozenset[Lane]
    names: frozenset[str] | None = None
    """exact kinds to select; None selects every kind"""
    prefixes: tuple[str, ...] = ()
    """prefixes of kinds to select"""
    whole: frozenset[Lane] = frozenset()
    """lanes in which every kind is selected, regardless of `names` and `prefixes`"""

    @classmethod
    def of(cls, lanes: Collection[Lane], kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None) -> Self:
        """Return the selection for a caller's arguments.

        Args:
            lanes: the lanes to read.
            kinds: exact kinds, or prefixes such as `agent.*`; None selects every kind. A mapping selects kinds for some
                lanes; in the other lanes every kind is selected.

        Raises:
            NoLanes: `lanes` is empty.
            NoKinds: `kinds` is empty, or selects no kind in any of the lanes.
        """
        if isinstance(lanes, str):  # a single lane, not a collection of letters
            lanes = (Lane(lanes),) if lanes in _LANES else ()
        require_all("lanes", lanes, str, "pass lanes, such as {Lane.LLM}")
        if not lanes:
            raise NoLanes
        _require_lanes("lanes", lanes)
        if kinds is None:
            return cls(frozenset(lanes))
        if isinstance(kinds, Mapping):
            by_lane = cast("Mapping[Lane, Collection[str]]", kinds)
            _require_lanes("kinds", by_lane)
            whole = frozenset(lanes) - by_lane.keys()
            if whole and not any(by_lane.values()):  # no kind is selected in the lanes of the mapping
                return cls(frozenset(lanes), frozenset(), (), whole)
            named = cls.of(lanes, [kind for each in by_lane.values() for kind in each])
            return named._replace(whole=whole)
        if isinstance(kinds, str):  # a single kind, not a collection of letters
            kinds = (kinds,)
        require_all("kinds", kinds, str, 'pass texts, such as {"user", "agent.*"}')
        if not kinds:
            raise NoKinds
        prefixes = sorted({kind[:-1] for kind in kinds if kind.endswith("*")})
        return cls(frozenset(lanes), frozenset(kind for kind in kinds if not kind.endswith("*")), tuple(prefixes))

    @classmethod
    def union(cls, selections: Iterable[Selection]) -> Self:
        """Return a selection that includes all of `selections`, and possibly more."""
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
        """The lanes, always in the same order."""
        return tuple(lane for lane in Lane if lane in self.lanes)

    def takes(self, envelope: Envelope) -> bool:
        """Return whether an envelope is selected."""
        if envelope.lane not in self.lanes or (Lane.LLM not in self.lanes and _is_stored(envelope.message)):
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
        """Return whether messages of this kind are selected."""
        return self.names is None or kind in self.names or kind.startswith(self.prefixes)

    def may_take(self, lane: Lane, entry: Entry) -> bool:
        """Return whether an entry may be selected, judging by its first bytes.

        If True, the entry has to be decoded, and `takes` decides. For a short message, this call takes a tenth of the
        time of decoding. It takes no longer for a long message.
        """
        if lane in self.whole and Lane.LLM in self.lanes:
            return True
        kind = _kind_in(lane, entry[1][-1])
        if kind is not None and Lane.LLM not in self.lanes and kind.startswith(STORE):
            return False
        if kind is None or self.takes_kind(kind):
            return True
        # Only an intact entry of the bus may be skipped. Forged and damaged entries are shown.
        return not is_whole(lane, entry)


def _require_lanes(name: str, lanes: Collection[str]) -> None:
    for lane in lanes:
        if lane not in _LANES:
            raise InvalidArgument(name, lane, "name the lanes Lane.LLM and Lane.EXTENSION")


def _is_stored(message: Publishable | Delta | DecodeFailure) -> bool:
    """Return whether a message is what a framework stores, also if the entry is unreadable."""
    if isinstance(message, DecodeFailure):
        return (_kind_in(Lane.EXTENSION, message.raw) or "").startswith(STORE)
    return isinstance(message, ExtensionMessage) and message.is_stored_state


def kind_of(message: Publishable | Delta) -> str:
    """Return the kind of an extension message or context entry, or the role of any other message."""
    if isinstance(message, ExtensionMessage | ContextEntry):
        return cast("ExtensionMessage | AnyContextEntry", message).kind
    return cast("Message | Delta", message).role


def _kind_in(lane: Lane, body: bytes) -> str | None:
    found = _KIND[lane].match(body)
    return found[found.lastindex or 0].decode() if found else None
