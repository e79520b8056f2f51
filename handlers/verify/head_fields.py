"""Read and check the stored fields of a session's head."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from lanebus.bus.errors import InvalidCursor, InvalidSessionId
from lanebus.bus.inspection import Inspector
from lanebus.bus.log.head import Incarnation
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.bus.wire.keys import check_session_id
from lanebus.handlers.verify.problem import Findings

__all__ = ("HeadFields", "look_at_head", "parse_head_fields")

_NUMBERS = ("position", "bytes", "created", "updated", "trimmed", "archived", "epoch")
_FIELDS = (*_NUMBERS, "state", "incarnation", "incarnations", "parent", "fork")
_STATES = frozenset({b"closed", b"erased"})
_NUMBER = re.compile(rb"[0-9]{1,18}")
_INCARNATION = re.compile(r"([0-9]{1,18})_[A-Za-z0-9_-]{1,13}")


class HeadFields(NamedTuple):
    """The fields of a session's head. A field whose stored value is invalid is 0 or empty."""

    is_there: bool
    position: int
    size_bytes: int
    trimmed: int
    archived: int
    is_erased: bool
    incarnations: tuple[Incarnation, ...]
    parent: str = ""
    """id of the session whose entries this session shares; "" if this session is not a fork"""
    fork: Cursor = START
    """cursor of the last shared entry"""

    @property
    def first(self) -> int:
        """The first position in the session's own lanes."""
        return max(self.trimmed, self.fork.position) + 1

    def incarnation_of(self, position: int) -> str | None:
        """Return the incarnation that wrote the entry at `position`; None if the head no longer lists it."""
        for token, start in reversed(self.incarnations):
            if start < position:
                return token
        return None

    def has_grown_to(self, later: "HeadFields") -> bool:
        """Whether the log has only gained entries until `later`: it was not trimmed, erased or rolled back."""
        return (
            (later.trimmed, later.is_erased) == (self.trimmed, self.is_erased)
            and later.position >= self.position
            and later.incarnation_of(self.position) == self.incarnation_of(self.position)
        )


async def look_at_head(inspector: Inspector, session: str, findings: Findings | None = None) -> HeadFields:
    """Read the head of a session, and add the head's problems to the findings.

    Raises:
        Refused: the key of the head has the wrong type.
    """
    fields = await inspector.fields(inspector.keys.head(session), _FIELDS)
    return parse_head_fields(fields, Findings(session) if findings is None else findings)


def parse_head_fields(fields: Mapping[str, bytes], findings: Findings) -> HeadFields:
    """Parse the fields of a session's head. Add a problem to `findings` for each invalid field. Pure."""
    numbers = {name: _number(fields, name, findings) for name in _NUMBERS}
    position, trimmed = numbers["position"], numbers["trimmed"]
    state = fields.get("state", b"")
    if state and state not in _STATES:
        findings.add("head", 0, f"its state is {state[:40]!r}")
    if trimmed > position:
        findings.add("head", trimmed, f"entries up to {trimmed} were trimmed, but the last entry is {position}")
    if numbers["archived"] > position:
        findings.add("head", numbers["archived"], f"archived up to here, but the last entry is {position}")
    if numbers["created"] > numbers["updated"]:
        findings.add("head", 0, "its last append is older than its first")
    incarnations = _incarnations(fields, position, findings)
    return HeadFields(
        bool(fields),
        position,
        *(numbers["bytes"], trimmed, numbers["archived"]),
        state == b"erased",
        incarnations,
        *_origin(fields, position, findings),
    )


def _origin(fields: Mapping[str, bytes], position: int, findings: Findings) -> tuple[str, Cursor]:
    """Return the id of the parent, and the cursor of the last shared entry. Without a parent, return ("", START)."""
    parent = fields.get("parent", b"").decode(errors="replace")
    if not parent or fields.get("state") == b"erased":
        return "", START
    try:
        fork = Cursor.parse(fields.get("fork", b"").decode(errors="replace"))
        check_session_id(parent)
    except (InvalidCursor, InvalidSessionId) as error:
        findings.add("head", 0, f"its reference to a parent is invalid: {error}")
        return "", START
    if fork.position > position:
        findings.add("head", fork.position, f"it shares entries up to here, but its last entry is {position}")
    return parent, fork


def _number(fields: Mapping[str, bytes], name: str, findings: Findings) -> int:
    value = fields.get(name, b"0")
    if _NUMBER.fullmatch(value) is None:
        findings.add("head", 0, f"its {name} is {value[:40]!r}")
        return 0
    return int(value)


def _incarnations(fields: Mapping[str, bytes], position: int, findings: Findings) -> tuple[Incarnation, ...]:
    """Return the listed incarnations. Each must have its own token, and start after the previous incarnation."""
    text = fields.get("incarnations", b"").decode(errors="replace")
    listed: list[Incarnation] = []
    for word in text.split():
        match = _INCARNATION.fullmatch(word)
        if match is None:
            findings.add("incarnation", 0, f"{word[:40]!r} is no incarnation")
            return ()
        listed.append(Incarnation(word, int(match[1])))
    for previous, each in pairwise(listed):
        if each.start <= previous.start:
            text = f"{each.token} starts after position {each.start}, not later than the previous {previous.token}"
            findings.add("incarnation", each.start, text)
    if len({token for token, _ in listed}) < len(listed):
        findings.add("incarnation", 0, "two have the same token")
    if position and listed and listed[-1].start >= position:
        findings.add("incarnation", listed[-1].start, f"{listed[-1].token} starts after the last entry, {position}")
    newest = fields.get("incarnation", b"").decode(errors="replace")
    if newest != (listed[-1].token if listed else ""):
        findings.add("incarnation", 0, f"the newest is {newest[:40]!r}, which is not the last in the list")
    return tuple(listed)
