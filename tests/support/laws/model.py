"""A session in plain Python: the log's laws as lists and dicts, to compare real servers with.

Outcomes are tuples that begin with a word, as `outcome_of` makes them from the bus's outcomes.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Required, TypedDict, Unpack

from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    Conflict,
    Envelope,
    ExtensionMessage,
    Fenced,
    Lane,
    Outcome,
    Receipt,
    SessionClosed,
    UserMessage,
)
from lanebus.bus.messages import Publishable
from lanebus.bus.wire import encode
from lanebus.errors import OverLimit, SessionErased

TRIMMED = "session.trimmed"
"""kind of the message that a forced trim appends"""

Outcomes = tuple[str, ...] | tuple[str, tuple[int, ...]] | tuple[str, int]


class Said(NamedTuple):
    """A message in the model."""

    lane: Lane
    text: str
    size_bytes: int
    is_control: bool

    @classmethod
    def of(cls, message: Publishable) -> "Said":
        is_control = isinstance(message, ExtensionMessage) and message.is_control
        return cls(message.lane, text_of(message), len(encode(message)), is_control)


class Shown(NamedTuple):
    """An entry as a reader sees it."""

    position: int
    lane: Lane
    text: str


def text_of(message: object) -> str:
    match message:
        case UserMessage() | AssistantMessage():
            return message.text_content()
        case ExtensionMessage(kind=kind, data=data):
            return f"{kind} {json.dumps(data, sort_keys=True)}"
        case _:
            raise AssertionError(message)


def shown(entries: Sequence[Envelope]) -> list[Shown]:
    return [Shown(entry.position, entry.lane, text_of(entry.message)) for entry in entries]


def outcome_of(outcome: Outcome) -> Outcomes:
    """Return the outcome of a publish in the model's form."""
    match outcome:
        case Receipt(positions=positions, is_duplicate=is_duplicate):
            return ("duplicate" if is_duplicate else "appended", positions)
        case Conflict(found=found):
            return ("conflict", found)
        case Fenced(found=found):
            return ("fenced", found)
        case SessionClosed():
            return ("closed",)
        case SessionErased():
            return ("erased",)
        case OverLimit(scope=scope):
            return ("over limit", scope)
        case _:
            raise AssertionError(outcome)


class Terms(TypedDict, total=False):
    """The conditions of a publish."""

    run: Required[int]
    """the server process that writes"""
    key: str | None
    expected: int | None
    epoch: int | None
    limits: tuple[int, int] | None
    """largest bytes of a session, and the extra bytes for control messages and the end"""
    becomes: Literal["open", "closed"] | None
    """the state of the session after this publish"""


class Writer(NamedTuple):
    """A server process, as the writer of one session."""

    session: str
    run: int


@dataclass
class ModelSession:
    """One session. A server's death loses nothing of it."""

    name: str = ""
    parent: "ModelSession | None" = None
    """the parent of a fork"""
    shared: int = 0
    """the last position shared with the parent"""
    entries: list[Said] = field(default_factory=list[Said])
    writers: list[Writer] = field(default_factory=list[Writer])
    """the writer of each entry"""
    keys: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    checkpoints: dict[str, int] = field(default_factory=dict[str, int])
    """holder → the position after which it still needs entries"""
    trimmed: int = 0
    """the last trimmed position"""
    archive: set[int] = field(default_factory=set[int])
    """the archived positions"""
    is_closed: bool = False
    is_erased: bool = False
    owner: str = ""
    epoch: int = 0

    @property
    def position(self) -> int:
        return len(self.entries)

    @property
    def size_bytes(self) -> int:
        """The size of its remaining own entries, in bytes."""
        return sum(said.size_bytes for said in self.entries[max(self.trimmed, self.shared) :])

    @property
    def is_there(self) -> bool:
        """Whether the session has been used, if only to be forked."""
        return self.position > 0 or self.parent is not None or bool(self.checkpoints)

    def restart(self) -> None:
        """Model a death and restart of the server: nothing is lost."""

    def publish(self, *batch: Said, **terms: Unpack[Terms]) -> Outcomes:
        """Publish all messages or none. The reasons to refuse are checked in the server's order."""
        key, epoch, expected = terms.get("key"), terms.get("epoch"), terms.get("expected")
        limits, becomes = terms.get("limits"), terms.get("becomes")
        if self.is_erased:
            return ("erased",)
        if key is not None and key in self.keys:
            return ("duplicate", self.keys[key])
        if self.is_closed and becomes != "open":
            return ("closed",)
        if epoch is not None and epoch != self.epoch:
            return ("fenced", self.epoch)
        if expected is not None and expected != self.position:
            return ("conflict", self.position)
        if limits is not None:
            may_use_reserve = becomes == "closed" or all(said.is_control for said in batch)
            if self.size_bytes + sum(said.size_bytes for said in batch) > limits[0] + may_use_reserve * limits[1]:
                return ("over limit", "session")
        positions = tuple(range(self.position + 1, self.position + len(batch) + 1))
        self.entries += batch
        self.writers += [Writer(self.name, terms["run"])] * len(batch)
        if key is not None:
            self.keys[key] = positions
        if becomes is not None:
            self.is_closed = becomes == "closed"
        return ("appended", positions)

    def read(self, lanes: Collection[Lane], after: int = 0, until: int | None = None) -> list[Shown]:
        """Return the entries after `after`, up to `until`."""
        return [
            Shown(position, said.lane, said.text)
            for position, said in enumerate(self.entries, 1)
            if said.lane in lanes and position > after and (until is None or position <= until)
        ]

    def lacks(self, lanes: Collection[Lane], after: int, until: int | None = None) -> bool:
        """Return whether an entry of these lanes after `after` was trimmed and is not in the archive."""
        if self.parent is not None and after < self.shared:
            if self.parent.lacks(lanes, after, self.shared if until is None else min(until, self.shared)):
                return True
            after = self.shared
        gone = range(after + 1, self.trimmed + 1)
        if not any(len(lanes) == len(Lane) or self.entries[position - 1].lane in lanes for position in gone):
            return False
        return any(position not in self.archive for position in gone if until is None or position <= until)

    def keep(self, before: int | None) -> int:
        """Archive the entries before a position. Return the last archived position."""
        last = self.position if before is None else min(before - 1, self.position)
        self.archive |= set(range(max(self.archived, self.trimmed, self.shared) + 1, last + 1))
        return self.archived

    @property
    def archived(self) -> int:
        return max(self.archive, default=0)

    def trim(self, before: int, *, run: int, force: bool, is_dry: bool) -> tuple[int, int, dict[str, int]] | None:
        """Return the number of trimmed entries and bytes, and the holders that needed some; None if they refuse it."""
        keep = min(max(before, 1), self.position + 1)
        needed = keep - 1 if keep - 1 > self.trimmed else 0
        holders = {name: at for name, at in self.checkpoints.items() if max(at, self.archived) < needed}
        if holders and not force and not is_dry:
            return None
        taken = self.entries[self.trimmed : keep - 1]
        if taken and not is_dry:
            self.trimmed = keep - 1
            if holders:
                self._note({"before": keep, "forced": True, "passed": dict[str, JsonValue](holders)}, run)
        return len(taken), sum(said.size_bytes for said in taken), holders

    def _note(self, data: JsonValue, run: int) -> None:
        body = {"role": "extension", "kind": TRIMMED, "data": data}
        size_bytes = len(json.dumps(body, separators=(",", ":")))
        self.entries.append(Said(Lane.EXTENSION, f"{TRIMMED} {json.dumps(data, sort_keys=True)}", size_bytes, False))
        self.writers.append(Writer(self.name, run))

    def fork(self, child: "ModelSession", at: int | None) -> str:
        """Start a session that shares this one's first entries. Return the outcome."""
        end = self.position if at is None else at
        if self.is_erased or child.is_erased:
            return "erased"
        if end > self.position:
            return "no such position"
        trimmed = 0 if self.archived >= min(self.trimmed, end) else self.trimmed
        if end < trimmed:
            return "trimmed"
        if child.parent is self and child.shared == end:
            return "forked"
        if child.is_there:
            return "exists"
        self.checkpoints[f"f:{child.name}"] = 0
        child.parent, child.shared = self, end
        child.entries, child.writers = self.entries[:end], self.writers[:end]
        child.trimmed = trimmed
        return "forked"

    def erase(self) -> None:
        self.is_erased = True

    def acquire(self, owner: str) -> int | None:
        """Return the epoch of a lease that does not expire; None if another owner holds it."""
        if self.owner not in {"", owner}:
            return None
        self.owner = owner
        self.epoch += 1
        return self.epoch

    def release(self, owner: str, epoch: int) -> None:
        if self.holds(owner, epoch):
            self.owner = ""

    def holds(self, owner: str, epoch: int) -> bool:
        return (owner, epoch) == (self.owner, self.epoch)
