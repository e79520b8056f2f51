"""What is wrong with a stored log, as data, and what was found of one session."""

from collections.abc import Awaitable
from typing import Literal, NamedTuple

from lanebus.bus.errors import Refused
from lanebus.handlers.verify.bounds import DEFAULT_VERIFY_BOUNDS, VerifyBounds

__all__ = ("Findings", "Problem", "ProblemKind", "Report", "look", "typed")

ProblemKind = Literal[
    "hole",  # a position is in no lane
    "double",  # a position is in both lanes
    "id",  # an entry whose id is no position
    "header",  # an entry that the bus would not have written so
    "checksum",  # an entry is not what was written
    "unreadable",  # an entry whose message cannot be read
    "above_head",  # an entry behind the last position that the head knows
    "head",  # the head is missing, or says what cannot be
    "bytes",  # the head counts other bytes than its entries have
    "bucket_bytes",  # a bucket counts other bytes than its sessions do
    "incarnation",  # the stretches of the log do not follow each other
    "producer",  # what is remembered of a producer cannot be
    "caller_key",  # a caller's key names entries that are not there
    "checkpoint",  # somebody is done with entries that are not there, or nobody knows of him
    "projection",  # a stored state is not what the log gives
    "pointer",  # the index names an entry that is not there
    "archive",  # a segment is missing or damaged, or they do not follow each other
    "fork",  # what a fork shares with its parent is not there any more
    "live",  # a live delta stands where none can
    "wrong_type",  # a key is of another type
    "orphan",  # a key is of no session
]
"""What is wrong, in a word."""

_LOOK = 80


class Problem(NamedTuple):
    """Something of a stored log that cannot be, or that nobody can read."""

    session: str
    """"" if it is of no session"""
    kind: ProblemKind
    position: int
    """where it is; 0 where it has no place"""
    text: str


class Report(NamedTuple):
    """What was found of one session, or of what is of none."""

    session: str
    """"" is what is of none"""
    entries: int
    """how many were read"""
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """what is no fault, and should be known: what could not be proven, what was set aside"""
    unlisted: int = 0
    """how many problems there are beyond those that are listed"""
    risk: str = ""
    """what its server may have lost without a trace, at a restart since the log began; "" is nothing"""
    unproven: tuple[str, ...] = ()
    """what is stored of it that this version of the package cannot prove"""

    @property
    def is_faultless(self) -> bool:
        """Nothing is wrong that can be seen."""
        return not self.problems

    @property
    def is_whole(self) -> bool:
        """Nothing is wrong, nothing can have been lost without a trace, and all that is stored was proven."""
        return not self.problems and not self.risk and not self.unproven


class Findings:
    """Collects what is found of one session.

    A log grows while it is looked at. So what seems to lie behind its end is only a suspicion, until the end is looked
    up again: whatever names a position was written in one step with the entry at it, or later.
    """

    def __init__(self, session: str, bounds: VerifyBounds = DEFAULT_VERIFY_BOUNDS) -> None:
        self.session, self.bounds = session, bounds
        self.risk = ""
        """see `Report`"""
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.unproven: list[str] = []
        """see `Report`"""
        self._suspected: list[Problem] = []
        self._unlisted = 0

    def add(self, kind: ProblemKind, position: int, text: str) -> None:
        """Note a problem."""
        if len(self.problems) < self.bounds.kept:
            self.problems.append(Problem(self.session, kind, position, text))
        else:
            self._unlisted += 1

    def suspect(self, kind: ProblemKind, position: int, text: str) -> None:
        """Note what is a problem if the log does not reach that position."""
        if len(self._suspected) < self.bounds.kept:
            self._suspected.append(Problem(self.session, kind, position, text))

    def settle(self, position: int) -> None:
        """The log reaches this position, and did so after all that is suspected was seen."""
        for problem in self._suspected:
            if problem.position > position:
                self.add(problem.kind, problem.position, f"{problem.text}; the last entry is {position}")
        self._suspected.clear()

    def forgive(self, trimmed: int) -> None:
        """What was trimmed away while it was looked at is no hole, and the bytes were counted at another time."""
        self.problems = [
            problem
            for problem in self.problems
            if problem.kind != "bytes" and not (problem.kind == "hole" and problem.position <= trimmed)
        ]

    def note(self, text: str) -> None:
        """Note what is no problem."""
        if len(self.notes) < self.bounds.kept:
            self.notes.append(text)

    def has(self, *kinds: ProblemKind) -> bool:
        """Whether a problem of one of these kinds was found."""
        return any(problem.kind in kinds for problem in self.problems)

    def report(self, entries: int) -> Report:
        """All that was found, in the order of the positions."""
        problems = tuple(sorted(self.problems, key=lambda problem: problem.position))
        notes, unproven = tuple(self.notes), tuple(self.unproven)
        return Report(self.session, entries, problems, notes, self._unlisted, self.risk, unproven)


def look(raw: bytes) -> str:
    """The beginning of bytes that nobody can read, for people."""
    text = raw[:_LOOK].decode(errors="backslashreplace")
    return f"{len(raw)} bytes: {text}{'…' if len(raw) > _LOOK else ''}"


async def typed(step: Awaitable[None], findings: Findings, what: str) -> None:
    """Do a step of a proof. A key that is not of its type ends this step alone, and is a problem of `what`."""
    try:
        await step
    except Refused as refusal:
        if refusal.code != "WRONGTYPE":
            raise
        text = f"{what}: a key is of another type than the bus gave it"
        if text not in {problem.text for problem in findings.problems}:  # two steps may look at one key
            findings.add("wrong_type", 0, text)
