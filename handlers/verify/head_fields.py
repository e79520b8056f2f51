"""A session's head as it is stored, field by field."""

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

__all__ = ("HeadFields", "look_at_head", "read_standing")

_NUMBERS = ("position", "bytes", "created", "updated", "trimmed", "archived", "epoch")
_FIELDS = (*_NUMBERS, "state", "incarnation", "incarnations", "parent", "fork")
_STATES = frozenset({b"closed", b"erased"})
_NUMBER = re.compile(rb"[0-9]{1,18}")
_INCARNATION = re.compile(r"([0-9]{1,18})_[A-Za-z0-9_-]{1,13}")


class HeadFields(NamedTuple):
    """What a head says, as far as it can be read."""

    is_there: bool
    position: int
    size_bytes: int
    trimmed: int
    archived: int
    is_erased: bool
    incarnations: tuple[Incarnation, ...]
    parent: str = ""
    """whose beginning it shares; "" if it is no fork"""
    fork: Cursor = START
    """of the last entry that it shares"""

    @property
    def first(self) -> int:
        """The first position that its own lanes have."""
        return max(self.trimmed, self.fork.position) + 1

    def incarnation_of(self, position: int) -> str | None:
        """Which incarnation wrote an entry; None where that is not known any more."""
        for token, start in reversed(self.incarnations):
            if start < position:
                return token
        return None

    def went_on_as(self, later: "HeadFields") -> bool:
        """Whether the later one is of the same log, which at most has grown."""
        return (
            (later.trimmed, later.is_erased) == (self.trimmed, self.is_erased)
            and later.position >= self.position
            and later.incarnation_of(self.position) == self.incarnation_of(self.position)
        )


async def look_at_head(inspector: Inspector, session: str, findings: Findings | None = None) -> HeadFields:
    """The head as it stands now; what is wrong with it goes into the findings.

    Raises:
        Refused: the key is of another type.
    """
    fields = await inspector.fields(inspector.keys.head(session), _FIELDS)
    return read_standing(fields, Findings(session) if findings is None else findings)


def read_standing(fields: Mapping[str, bytes], findings: Findings) -> HeadFields:
    """What the fields of a head say. Pure."""
    numbers = {name: _number(fields, name, findings) for name in _NUMBERS}
    position, trimmed = numbers["position"], numbers["trimmed"]
    state = fields.get("state", b"")
    if state and state not in _STATES:
        findings.add("head", 0, f"its state is {state[:40]!r}")
    if trimmed > position:
        findings.add("head", trimmed, f"entries up to {trimmed} were trimmed, and the last one is {position}")
    if numbers["archived"] > position:
        findings.add("head", numbers["archived"], f"archived up to there, and the last entry is {position}")
    if numbers["created"] > numbers["updated"]:
        findings.add("head", 0, "its last append is older than its first one")
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
    """The parent, and the cursor of the last entry that is shared."""
    parent = fields.get("parent", b"").decode(errors="replace")
    if not parent or fields.get("state") == b"erased":
        return "", START
    try:
        fork = Cursor.parse(fields.get("fork", b"").decode(errors="replace"))
        check_session_id(parent)
    except (InvalidCursor, InvalidSessionId) as error:
        findings.add("head", 0, f"what it says of its parent: {error}")
        return "", START
    if fork.position > position:
        findings.add("head", fork.position, f"it shares entries up to there, and its last one is {position}")
    return parent, fork


def _number(fields: Mapping[str, bytes], name: str, findings: Findings) -> int:
    value = fields.get(name, b"0")
    if _NUMBER.fullmatch(value) is None:
        findings.add("head", 0, f"its {name} is {value[:40]!r}")
        return 0
    return int(value)


def _incarnations(fields: Mapping[str, bytes], position: int, findings: Findings) -> tuple[Incarnation, ...]:
    """The newest stretches of the log: each has a token of its own, and begins behind the previous one."""
    text = fields.get("incarnations", b"").decode(errors="replace")
    found: list[Incarnation] = []
    for word in text.split():
        match = _INCARNATION.fullmatch(word)
        if match is None:
            findings.add("incarnation", 0, f"{word[:40]!r} is none")
            return ()
        found.append(Incarnation(word, int(match[1])))
    for before, after in pairwise(found):
        if after.start <= before.start:
            findings.add(
                "incarnation", after.start, f"{after.token} begins behind {after.start}, as or before {before.token}"
            )
    if len({token for token, _ in found}) < len(found):
        findings.add("incarnation", 0, "two have the same token")
    if position and found and found[-1].start >= position:
        findings.add("incarnation", found[-1].start, f"{found[-1].token} begins behind the last entry, {position}")
    newest = fields.get("incarnation", b"").decode(errors="replace")
    if newest != (found[-1].token if found else ""):
        findings.add("incarnation", 0, f"the newest one is {newest[:40]!r}, which is not the last of the list")
    return tuple(found)
