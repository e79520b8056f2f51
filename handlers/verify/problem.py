"""The problems that a verification finds, the report on one session, and the bounds of a verification."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lanebus.bus.errors import Refused, check_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyBounds:
    """Limits on the problems in a report, and on the attempts to read values that change during the check."""

    problems: int = 1_000
    """maximum number of problems in a session's report, and of notes. Further problems are only counted"""
    session_attempts: int = 3
    """attempts to check a session that is trimmed, rolled back or handed over during the check"""
    byte_attempts: int = 5
    """attempts to read a bucket's counts while the bucket is published to"""
    state_attempts: int = 4
    """attempts to read a projection's checkpoint and state. They are written in one step but read in two steps"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("problems", "byte_attempts"))


DEFAULT_VERIFY_BOUNDS = VerifyBounds()


ProblemKind = Literal[
    "hole",  # a position is in no lane
    "double",  # a position is in both lanes
    "id",  # an entry id is no position
    "header",  # an entry was not written by the bus
    "checksum",  # an entry has changed since it was written
    "unreadable",  # an entry's message cannot be decoded
    "above_head",  # an entry is after the head's last position
    "head",  # the head is missing, or has invalid fields
    "agent",  # the records of which agent a session belongs to contradict each other
    "bytes",  # the head's byte count differs from its entries
    "bucket_bytes",  # a bucket's byte count differs from its sessions
    "incarnation",  # the log's incarnations contradict each other
    "producer",  # the stored state of a producer is invalid
    "caller_key",  # a publish key names entries that do not exist
    "checkpoint",  # a checkpoint is after the last entry, or a stored projection has no checkpoint
    "projection",  # a stored state differs from a fold of the log
    "pointer",  # the index, or a record of work, names an entry or a session that does not exist
    "archive",  # a segment is missing or damaged, or segments do not follow each other
    "fork",  # entries that a fork shares with its parent are missing
    "live",  # a live delta has an invalid id, or cannot be decoded
    "wrong_type",  # a key has another type
    "orphan",  # a key belongs to no session
    "emptied",  # the namespace's log was lost, and another one began
    "rolled_back",  # the namespace's log is an older copy
]
"""The kinds of problems."""

_LOOK = 80


class Problem(NamedTuple):
    """One problem of a stored log."""

    session: str
    """id of the session; "" if the problem belongs to no session"""
    kind: ProblemKind
    position: int
    """position in the session; 0 if the problem has no position"""
    text: str
    """description of the problem, for people"""


class Report(NamedTuple):
    """The result of verifying one session, or the keys that belong to no session."""

    session: str
    """id of the session; "" for the keys that belong to no session"""
    entries: int
    """number of entries read"""
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """facts that are not problems: checks that were not possible, quarantined entries"""
    unlisted: int = 0
    """number of further problems that are not in `problems`"""
    risk: str = ""
    """description of how a restart of the server may have lost entries unnoticed; "" means that there is no such
    risk"""
    unproven: tuple[str, ...] = ()
    """stored projections that this version of the package cannot check"""

    @property
    def is_faultless(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    @property
    def is_whole(self) -> bool:
        """Whether no problem was found, all stored projections were checked, and no undetected loss is possible."""
        return not self.problems and not self.risk and not self.unproven


class Findings:
    """Collects the problems of one session.

    The log may grow during the check, so a record may refer to an entry that is newer than the last position read. Such
    a problem is only suspected until the last position is read again. The entry exists by then, because records are
    written with their entry or later.
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
        """Add a problem."""
        if len(self.problems) < self.bounds.problems:
            self.problems.append(Problem(self.session, kind, position, text))
        else:
            self._unlisted += 1

    def suspect(self, kind: ProblemKind, position: int, text: str) -> None:
        """Add a suspected problem. `settle` keeps it only if the log ends before `position`."""
        if len(self._suspected) < self.bounds.problems:
            self._suspected.append(Problem(self.session, kind, position, text))

    def settle(self, position: int) -> None:
        """Turn the suspected problems after `position` into problems, and drop all other suspected problems.

        Args:
            position: last position of the log, read after the suspected problems were found.
        """
        for problem in self._suspected:
            if problem.position > position:
                self.add(problem.kind, problem.position, f"{problem.text}; the last entry is {position}")
        self._suspected.clear()

    def forgive(self, trimmed: int) -> None:
        """Drop the problems that a trim during the check can cause: holes up to `trimmed`, and wrong byte counts."""
        self.problems = [
            problem
            for problem in self.problems
            if problem.kind != "bytes" and not (problem.kind == "hole" and problem.position <= trimmed)
        ]

    def note(self, text: str) -> None:
        """Add a note. A note is not a problem."""
        if len(self.notes) < self.bounds.problems:
            self.notes.append(text)

    def has(self, *kinds: ProblemKind) -> bool:
        """Whether a problem of one of these kinds was found."""
        return any(problem.kind in kinds for problem in self.problems)

    def report(self, entries: int) -> Report:
        """Return the report, with problems sorted by position."""
        problems = tuple(sorted(self.problems, key=lambda problem: problem.position))
        notes, unproven = tuple(self.notes), tuple(self.unproven)
        return Report(self.session, entries, problems, notes, self._unlisted, self.risk, unproven)


def look(raw: bytes) -> str:
    """Describe undecodable bytes for people: the number of bytes, and the first 80 bytes as text."""
    text = raw[:_LOOK].decode(errors="backslashreplace")
    return f"{len(raw)} bytes: {text}{'…' if len(raw) > _LOOK else ''}"


async def typed(step: Awaitable[None], findings: Findings, what: str) -> None:
    """Run one check. If the check finds a key of the wrong type, add a problem that names `what`, and do not raise."""
    try:
        await step
    except Refused as refusal:
        if refusal.code != "WRONGTYPE":
            raise
        text = f"{what}: a key has another type than the bus gave it"
        if text not in {problem.text for problem in findings.problems}:  # two checks may read the same key
            findings.add("wrong_type", 0, text)
