"""Check the head of a session and its entries; the problems that a verification finds, and its report."""

import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from lanebus.bus import Bus, Incarnation, Inspector, start_of
from lanebus.bus.errors import (
    CursorTrimmed,
    EntryDamaged,
    InvalidCursor,
    InvalidSessionId,
    Refused,
    StreamError,
    check_bounds,
)
from lanebus.bus.messages import Lane
from lanebus.bus.wire import START, Cursor, DecodeFailure, Entry, check_session_id, decode, token_of


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


# Check the head of a session and its entries: own, archived, of a fork's parent, or in shared streams.


# Read and check the stored fields of a session's head.

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
        numbers["bytes"],
        trimmed,
        numbers["archived"],
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


async def check_entries(bus: Bus, session: str, head_fields: HeadFields, findings: Findings) -> int:
    """Check that every position exists once and can be read, and that the head's byte count is right.

    Returns:
        The number of entries.

    Raises:
        Refused: the key of a lane has the wrong type.
        Unavailable: the server or the archive cannot be reached.
    """
    inspector, kept = bus.inspector, head_fields.first
    first = await _first_archived(bus, session, head_fields, findings)
    if first > head_fields.fork.position + 1:
        findings.note(f"it begins at {first}: earlier entries were trimmed")
    if findings.has("head"):  # the head's first position may be wrong
        check = EntryCheck(findings, 0)
    else:
        check = EntryCheck(findings, first, head_fields.incarnations, head_fields.fork.position)
    if first < kept:
        head = await bus.session(session).head()
        async with aclosing(inspector.archived_pages(head, first - 1, head_fields.trimmed)) as pages:
            async for page in pages:
                for lane, entry in page:
                    check.take(lane, entry)
    check.begin(kept)
    async with aclosing(merged_entries(inspector, session, kept, head_fields.position)) as entries:
        async for lane, entry in entries:
            check.take(lane, entry)
    check.end(head_fields.position)
    if check.size_bytes != head_fields.size_bytes and not findings.has("hole", "double", "head"):
        findings.add("bytes", 0, f"the head counts {head_fields.size_bytes} bytes, its entries have {check.size_bytes}")
    return check.entries


async def _first_archived(bus: Bus, session: str, head_fields: HeadFields, findings: Findings) -> int:
    """Check the archive. Return the first position that can be read from the archive, or else from the log."""
    inspector, begin = bus.inspector, head_fields.fork.position
    if head_fields.archived and not inspector.has_archive:
        archived = head_fields.archived
        findings.note(f"entries up to {archived} are archived; they were not checked, as no archive was given")
    if not inspector.has_archive or findings.has("head"):
        return head_fields.first
    async with aclosing(bus.session(session).check_archive()) as problems:
        async for problem in problems:
            segment = f"segment {problem.segment}: " if problem.segment else ""
            findings.add("archive", 0, f"{problem.kind}: {segment}{problem.text}")
    if findings.has("archive"):
        findings.note("trimmed entries were not checked, as the archive is damaged")
        return head_fields.first
    if head_fields.trimmed <= begin:
        return head_fields.first
    head = await bus.session(session).head()
    try:
        async with aclosing(inspector.archived_pages(head, begin, begin + 1)) as pages:
            await anext(pages)
    except CursorTrimmed as error:
        return min(error.first_kept, head_fields.first)
    return begin + 1


async def check_lineage(bus: Bus, session: str, head_fields: HeadFields, findings: Findings) -> None:
    """Check that a fork's parent exists, did not lose the shared entries, and has a checkpoint that trims respect.
    Check also that the fork can read these entries. Do nothing if the session shares no entries.

    Raises:
        Unavailable: the server cannot be reached.
    """
    name, shared = head_fields.parent, head_fields.fork.position
    if not name or not shared:
        return  # no entry is shared, so the parent need not exist
    inspector = bus.inspector
    parent = await look_at_head(inspector, name)
    if parent.is_erased or not parent.is_there:
        findings.add("fork", shared, f"its parent {name!r} {'was erased' if parent.is_erased else 'does not exist'}")
        return
    writer = parent.incarnation_of(shared)
    forked_from = head_fields.fork.incarnation
    if parent.position < shared or (forked_from and writer not in {None, forked_from}):
        findings.add("fork", shared, f"its parent {name!r} lost shared entries, and may have grown again")
        return
    if not await inspector.fields(inspector.keys.checkpoints(name), (f"f:{session}",)):
        findings.add("fork", shared, f"its parent {name!r} has no checkpoint for it: trims may remove shared entries")
    await _read_shared(bus, session, head_fields, findings)


async def _read_shared(bus: Bus, session: str, head_fields: HeadFields, findings: Findings) -> None:
    """Check that the shared entries can be read through the fork, without a gap."""
    position = await _trimmed_before(bus, session, min(head_fields.trimmed, head_fields.fork.position))
    if position:
        findings.note(f"of the shared entries, those up to {position} were trimmed before the fork")
    try:
        reading = bus.session(session).read(after=Cursor(position), until=head_fields.fork.position)
        async with aclosing(reading) as envelopes:
            async for envelope in envelopes:
                position = max(position, envelope.position)
    except StreamError as error:
        findings.add("fork", position + 1, f"the shared entries cannot be read: {error}")
        return
    if position < head_fields.fork.position:
        findings.add("fork", position + 1, f"the shared entries end before {head_fields.fork.position}")


async def _trimmed_before(bus: Bus, session: str, trimmed: int) -> int:
    """Return the last position that the parent had trimmed when the fork was made.

    Args:
        bus: the bus.
        session: id of the fork.
        trimmed: the fork's trimmed position, at most the last shared position. It is higher than the result if the fork
            itself was trimmed.
    """
    last = 0
    while last < trimmed:
        try:
            async with aclosing(bus.session(session).read(after=Cursor(last), until=last + 1)) as envelopes:
                await anext(envelopes, None)
        except CursorTrimmed as gap:
            last = min(gap.first_kept - 1, trimmed)
        except StreamError:
            break  # the caller reads from this position on, and reports the error
        else:
            break
    return last


HIGHEST = 2**64 - 1
"""highest possible number after the dash in an entry id"""

_HEADER = re.compile(rb"[0-9]{1,9} [0-9]{1,15} [^ ]+ [^ ]+ i?[0-9]{1,10}")


class EntryCheck:
    """Checks the entries of both lanes, which are passed in the order of their ids. Pure."""

    def __init__(
        self, findings: Findings, first: int, incarnations: Sequence[Incarnation] = (), begin: int = 0
    ) -> None:
        """Start a check.

        Args:
            findings: receives the problems.
            first: expected first position; 0 accepts any position.
            incarnations: the incarnations that the head lists.
            begin: position before the session's first own entry. The session's first incarnation starts after it.
        """
        self._findings, self._next = findings, first
        self._token, self._reported, self._begin, self._previous = "", "", begin, begin
        self._begins = {each.start + 1: each.token for each in incarnations}
        self._listed = frozenset(each.token for each in incarnations)
        self._oldest_listed = min((each.start for each in incarnations), default=None)
        self.entries = 0
        """number of checked entries that have a position"""
        self.size_bytes = 0
        """size in bytes of these entries' JSON messages, counted since `begin` was called"""

    def begin(self, first: int) -> None:
        """Begin with the entries in the lanes: report missing positions before `first`, and count bytes from 0."""
        self._require_up_to(first - 1)
        self.size_bytes = 0

    def take(self, lane: Lane, entry: Entry) -> None:
        """Check the next entry."""
        entry_id, fields = entry
        position, rest = place_of(entry)
        if rest:
            text = f"entry {entry_id.decode()} of the {lane} lane was not written by the bus: {look(_body(fields))}"
            self._findings.add("id", position, text)
            return
        self._next = self._next or position
        if position < self._next:
            self._findings.add("double", position, "it is in both lanes")
        else:
            self._require_up_to(position - 1)
            self._next = position + 1
        self.entries += 1
        self.size_bytes += len(_body(fields))
        self._read(lane, entry, position)

    def end(self, last: int) -> None:
        """End the check. Report missing positions up to `last`, the expected last position."""
        self._require_up_to(last)

    def _require_up_to(self, position: int) -> None:
        if not self._next:
            return
        if position >= self._next:
            is_single = position == self._next
            text = "it is in no lane" if is_single else f"positions {self._next} to {position} are in no lane"
            self._findings.add("hole", self._next, text)
        self._next = max(self._next, position + 1)

    def _read(self, lane: Lane, entry: Entry, position: int) -> None:
        names, header, body = entry[1][::2], entry[1][1:2], _body(entry[1])
        if list(names) != [b"h", b"m"] or _HEADER.fullmatch(header[0]) is None:
            raw = b" ".join(entry[1])
            self._findings.add("header", position, f"in the {lane} lane, not written by the bus: {look(raw)}")
            return
        self._check_token(token_of(entry), position)
        message = decode(self._findings.session, lane, entry).message
        if not isinstance(message, DecodeFailure):
            return
        kind: ProblemKind = "checksum" if isinstance(message.error, EntryDamaged) else "unreadable"
        self._findings.add(kind, position, f"in the {lane} lane: {message.error}; {look(body)}")

    def _check_token(self, token: str, position: int) -> None:
        """Check the incarnation `token` that the entry at `position` names.

        A new incarnation must start right after the previous entry, and the head must list it at that position. This
        check finds a batch that was cut off: the incarnation of the next entry then starts at another position.
        """
        start, previous = start_of(token), self._previous
        if position == previous:
            return  # the position is in both lanes, which is already reported
        follows = previous == position - 1
        is_possible = 0 <= start < position
        is_new = token not in {self._token, self._reported}
        if is_new and follows and (self._token or previous == self._begin):
            is_possible = start == previous
        elif is_new:  # the previous entry is missing, and the first entry of the new incarnation may be missing too
            is_possible = is_possible and start > start_of(self._token)
        if not is_possible:
            text = f"the entry is from incarnation {token}, the previous one from {self._token}"
            self._findings.add("incarnation", position, text)
            self._reported, self._previous = token, position  # report each incarnation once
            return
        if self._begins.get(position, token) != token:
            text = f"the entry is from incarnation {token}; by the head, {self._begins[position]} starts with it"
            self._findings.add("incarnation", position, text)
            self._reported, token = token, self._begins[position]
        elif self._oldest_listed is not None and start > self._oldest_listed and token not in self._listed:
            text = f"the entry is from incarnation {token}, which the head does not list"
            self._findings.add("incarnation", position, text)
        self._token, self._previous = token, position


def place_of(entry: Entry) -> tuple[int, int]:
    """Return the two numbers of an entry's id: before and after the dash."""
    position, _, rest = entry[0].partition(b"-")
    return int(position), int(rest)


async def merged_entries(
    inspector: Inspector, session: str, first: int, last: int
) -> AsyncGenerator[tuple[Lane, Entry], None]:
    """Yield the entries of both lanes from position `first` to `last`, in the order of their ids.

    Holds one page of each lane in memory.

    Raises:
        Refused: the key of a lane has the wrong type.
        Unavailable: the server cannot be reached.
    """
    begin, end = f"{first}-0", f"{last}-{HIGHEST}"
    lanes = {lane: _single(inspector, inspector.keys.lane(session, lane), begin, end) for lane in Lane}
    try:
        waiting: dict[Lane, Entry] = {}
        for lane in Lane:
            await _refill(waiting, lanes, lane)
        while waiting:
            lane = min(waiting, key=lambda lane: place_of(waiting[lane]))
            yield lane, waiting.pop(lane)
            await _refill(waiting, lanes, lane)
    finally:
        for entries in lanes.values():
            await entries.aclose()


async def _refill(waiting: dict[Lane, Entry], lanes: dict[Lane, AsyncGenerator[Entry, None]], lane: Lane) -> None:
    entry = await anext(lanes[lane], None)
    if entry is not None:
        waiting[lane] = entry


async def _single(inspector: Inspector, key: str, first: str, last: str) -> AsyncGenerator[Entry, None]:
    async with aclosing(inspector.stream_pages(key, first, last)) as pages:
        async for page in pages:
            for entry in page:
                yield entry


def _body(fields: Sequence[bytes]) -> bytes:
    """Return the field that holds a message's JSON, or b"" if there is no such field."""
    return fields[3] if len(fields) > 3 else b""


# Read the two streams that a bucket's sessions share: the index of new entries, and the quarantined entries.

SHOWN = 20
"""maximum number of quarantined entries to report per session"""


@dataclass
class Pointers:
    """The contents of a bucket's index and of the bucket's stream of quarantined entries, by session."""

    highest: dict[str, int] = field(default_factory=dict[str, int])
    """the highest position that a pointer names, by session id"""
    quarantined: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """descriptions of quarantined entries, by session id"""
    bad: list[str] = field(default_factory=list[str])
    """descriptions of invalid pointers"""

    def add_to(self, findings: Findings) -> None:
        """Add to `findings` what concerns its session: a note for each quarantined entry, and the highest pointer as a
        suspected problem."""
        session = findings.session
        if session in self.highest:
            findings.suspect("pointer", self.highest[session], "a pointer of the index names it")
        for text in self.quarantined.get(session, []):
            findings.note(text)


async def read_pointers(inspector: Inspector, bucket: int, *, into: Pointers, only: str | None = None) -> None:
    """Read a bucket's index and its stream of quarantined entries.

    Args:
        inspector: the bus's inspector.
        bucket: number of the bucket.
        into: receives the contents.
        only: id of the session to read; None means all sessions.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server cannot be reached.
    """
    async for page in inspector.stream_pages(inspector.keys.index(bucket)):
        for entry in page:
            _take_pointer(into, entry, only)
    async for page in inspector.stream_pages(inspector.keys.forged(bucket)):
        for _, fields in page:
            named = dict(zip(fields[::2], fields[1::2], strict=False))
            session = named.get(b"s", b"").decode(errors="replace")
            if only in {None, session} and len(into.quarantined[session]) < SHOWN:
                lane, entry_id = (named.get(name, b"").decode(errors="replace") for name in (b"lane", b"id"))
                text = f"quarantined from the {lane} lane, not written by the bus: entry {entry_id}, "
                into.quarantined[session].append(text + look(b" ".join(fields[6:])))


def _take_pointer(pointers: Pointers, entry: Entry, only: str | None) -> None:
    fields = entry[1]
    named = dict(zip(fields[::2], fields[1::2], strict=False))
    session, position = named.get(b"s", b"").decode(errors="replace"), named.get(b"z", b"")
    try:
        check_session_id(session)
        number = int(position) if position.isdigit() and len(position) < 19 else None
    except InvalidSessionId:
        number = None
    if only not in {None, session}:
        return
    if number is not None:  # 0 is that of a fork without shared entries
        pointers.highest[session] = max(pointers.highest.get(session, 0), number)
    else:
        pointers.bad.append(f"pointer {entry[0].decode()} of the index is invalid: {look(b' '.join(fields))}")
