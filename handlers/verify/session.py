"""Verify one session: the head, the entries, and all records that refer to the session or its positions."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from copy import deepcopy
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from lanebus.bus import Bus, Checkpoint, Inspector, Session
from lanebus.bus.errors import StreamError
from lanebus.bus.messages import Lane
from lanebus.bus.text import number_in
from lanebus.bus.wire import ALL_AGENTS, Cursor, DecodeFailure, Envelope, decode_delta
from lanebus.handlers.projections import (
    SESSIONS,
    STATUS,
    TIMELINE,
    TURNS,
    USAGE,
    Projected,
    Projection,
    folded,
    start_of,
)
from lanebus.handlers.verify.entries import (
    DEFAULT_VERIFY_BOUNDS,
    HIGHEST,
    Findings,
    HeadFields,
    Pointers,
    Report,
    VerifyBounds,
    check_entries,
    check_lineage,
    look,
    look_at_head,
    place_of,
    read_pointers,
    typed,
)


async def verify_session(
    bus: Bus,
    session: str,
    pointers: Pointers | None = None,
    *,
    risks: Sequence[str] | None = None,
    bounds: VerifyBounds = DEFAULT_VERIFY_BOUNDS,
) -> Report | None:
    """Check a session, and report the session's problems. Producers may publish to the session during the check.

    The log is read up to twice: as raw entries, to check each, and through a reader, to fold the stored projections.

    Args:
        bus: the bus.
        session: id of the session.
        pointers: the pointers of the session's bucket, filled by `read_pointers`. None reads those of this session.
        risks: result of `Inspector.loss_risks`. None calls this method.
        bounds: bounds on the problems that are kept, and on attempts.

    Returns:
        The report, or None if the session does not exist.

    Raises:
        InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    inspector, id = bus.inspector, bus.session(session).id
    if pointers is None:
        pointers = Pointers()
        await read_pointers(inspector, inspector.keys.bucket(id), into=pointers, only=id)
    risk = "; ".join(await inspector.loss_risks() if risks is None else risks)
    attempt = _Attempt(bus, id, pointers, bounds)
    for _ in range(bounds.session_attempts):
        attempt = _Attempt(bus, id, pointers, bounds)
        await typed(attempt.run(), attempt.findings, "the session")
        if not attempt.was_disturbed:
            break
    if attempt.was_disturbed:
        attempt.findings.forgive(attempt.trimmed)
        attempt.findings.note("it was trimmed or rolled back during each attempt: its byte count was not checked")
    if attempt.was_restarted:
        attempt.findings.risk = risk
    return attempt.findings.report(attempt.entries) if attempt.is_there else None


class _Attempt:
    """One attempt to check a session."""

    def __init__(self, bus: Bus, session: str, pointers: Pointers, bounds: VerifyBounds) -> None:
        self._bus, self._inspector, self._session, self._pointers = bus, bus.inspector, session, pointers
        self.findings = Findings(session, bounds)
        self.entries = 0
        self.is_there = True
        self.was_disturbed = False
        """whether the log was trimmed, erased or rolled back during the attempt"""
        self.was_restarted = False
        """whether several server processes have written the log: the server was restarted or replaced"""
        self.trimmed = 0
        """highest trimmed position at the end of the attempt"""

    async def run(self) -> None:
        """Run all checks."""
        before = await self._head()
        is_listed = await _is_listed(self._inspector, self._session)
        if before.is_erased:
            await self._erased()
            return
        if not before.position and not is_listed:  # the session has no entries; its head holds at most a lease
            self.is_there = False
            return
        if not before.is_there:
            self.findings.add("head", 0, "it is listed, but has no head")
            return
        if before.position and not is_listed:
            self.findings.add("head", 0, "it has a head, but is not listed among the sessions")
        await typed(check_agent(self._inspector, self._session, self.findings), self.findings, "agent")
        self._pointers.add_to(self.findings)
        for name, claim in CLAIMS.items():
            await typed(claim(Claimant(self._inspector, self._session, before, self.findings)), self.findings, name)
        head_fields = await self._head(self.findings)
        if not head_fields.position:
            return  # the head's last position is invalid, or nothing was ever published
        self.was_restarted = len(head_fields.incarnations) > 1
        self.findings.settle(head_fields.position)
        await typed(self._entries(head_fields), self.findings, "lanes")
        await typed(check_lineage(self._bus, self._session, head_fields, self.findings), self.findings, "parent")
        await typed(self._projections(head_fields), self.findings, "projections")
        after = await self._head()
        self.trimmed, self.was_disturbed = after.trimmed, not head_fields.has_grown_to(after)

    async def _erased(self) -> None:
        """Check that an erased session has no key left except its tombstone."""
        keys = self._inspector.keys
        rest = [keys.lane(self._session, lane) for lane in Lane]
        rest += [part(self._session) for part in (keys.live, keys.caller_keys, keys.checkpoints, keys.archive)]
        for name in await self._inspector.existing(rest):
            self.findings.add("orphan", 0, f"key {name} is left of the erased session: erase it again")
        self.findings.note("it was erased")

    async def _entries(self, head_fields: HeadFields) -> None:
        try:
            self.entries = await check_entries(self._bus, self._session, head_fields, self.findings)
        except StreamError as error:
            self.findings.add("archive", 0, f"it ends before the first kept entry: {error}")

    async def _projections(self, head_fields: HeadFields) -> None:
        """Check that each stored projection equals a fold of the log."""
        checkpoints = await self._bus.session(self._session).checkpoints()
        stored = {name.removeprefix("p:") for name in checkpoints if name.startswith("p:")}
        for name in sorted(stored - PROJECTION_KEYS):
            self.findings.unproven.append(name)
            self.findings.note(f"projection {name} was not checked, as this version of the package does not have it")
        if self.findings.has("hole", "double", "head", "fork", "wrong_type", "checksum", "unreadable"):
            self.findings.note("stored projections were not checked, as the log has problems")
            return
        session = self._bus.session(self._session)
        try:
            replayed = await replay(session, until=head_fields.position, stored_only=True)
        except StreamError as error:
            self.findings.note(f"stored projections were not checked: {error}")
            return
        except ValueError:
            self.findings.note("stored projections were not checked: a stored number is invalid")
            return
        for each in replayed:
            if each.agrees is False:
                self.findings.add("projection", each.stored or 0, differs(self._session, each.key))

    async def _head(self, findings: Findings | None = None) -> HeadFields:
        return await look_at_head(self._inspector, self._session, findings)


async def _is_listed(inspector: Inspector, session: str) -> bool:
    key = inspector.keys.sessions(inspector.keys.bucket(session))
    return bool(await inspector.fields(key, (session,)))


# Check the records that refer to a session's positions: producers, publish keys, checkpoints and live deltas.
#
# The records are read between two reads of the head. So at the second read, every entry that a record refers to must
# exist.

_ANSWER_FORM = re.compile(r"([0-9]{1,18}) ([0-9]{1,18}) (\S{0,32}) .*", re.DOTALL)
_PLACES_FORM = re.compile(r"([0-9]{1,18})\+([0-9]{1,18})(?:\+(\S{0,32}))?")
_CHECKPOINT_FORM = re.compile(r"([0-9]{1,18})(?:-[0-9]{1,18}(?:\.\S{1,32})?)?")


class Claimant(NamedTuple):
    """The arguments of the functions in `CLAIMS`."""

    inspector: Inspector
    session: str
    head_fields: HeadFields
    """the head, read before the check"""
    findings: Findings
    """receives the problems"""


async def _producers(at: Claimant) -> None:
    """Check that the stored answers to a producer have numbers without gaps, and refer to entries that exist."""
    inspector, findings = at.inspector, at.findings
    async for page in inspector.hash_pages(inspector.keys.head(at.session), "p:*"):
        for field, value in page.items():
            name = field.decode(errors="replace").removeprefix("p:")
            _, _, kept = value.decode(errors="replace").partition(" ")
            answers = [_ANSWER_FORM.fullmatch(answer) for answer in kept.split("|")]
            numbers = [int(answer[1]) for answer in answers if answer]
            if len(numbers) < len(answers) or [numbers[0] - index for index in range(len(numbers))] != numbers:
                findings.add("producer", 0, f"{name}: {look(value)}")
                continue
            for answer in answers:
                if answer:
                    findings.suspect("producer", int(answer[2]), f"{name}: its append {answer[1]} begins after it")


async def _caller_keys(at: Claimant) -> None:
    """Check that the entries published under a caller's key exist."""
    inspector, findings = at.inspector, at.findings
    async for page in inspector.hash_pages(inspector.keys.caller_keys(at.session)):
        for field, value in page.items():
            name = field.decode(errors="replace")[:80]
            if value == b"0+1+":  # a handover to the agent that the session had from its first message on
                continue
            places = _PLACES_FORM.fullmatch(value.decode(errors="replace"))
            if places is None or not int(places[1]) or not int(places[2]):
                findings.add("caller_key", 0, f"{name!r}: {look(value)}")
                continue
            first, last = int(places[1]), int(places[1]) + int(places[2]) - 1
            written_by = at.head_fields.incarnation_of(first)
            if last <= at.head_fields.position and places[3] and written_by not in {None, places[3]}:
                text = f"{name!r}: published in incarnation {places[3]}, but the entry is from {written_by}"
                findings.add("caller_key", first, text)
            findings.suspect("caller_key", last, f"{name!r}: published at positions {first} to {last}")


async def _checkpoints(at: Claimant) -> None:
    """Check that every checkpoint is at an entry that exists, and that every stored projection has a checkpoint."""
    inspector, findings = at.inspector, at.findings
    listed: set[str] = set()
    async for page in inspector.hash_pages(inspector.keys.checkpoints(at.session)):
        for field, value in page.items():
            name = field.decode(errors="replace")
            listed.add(name)
            place = _CHECKPOINT_FORM.fullmatch(value.decode(errors="replace"))
            if place is None:
                findings.add("checkpoint", 0, f"{name[:80]}: {look(value)}")
                continue
            findings.suspect("checkpoint", int(place[1]), f"{name[:80]}: its checkpoint is here")
    for name in sorted({name.removeprefix("p:") for name in listed if name.startswith("p:")} | PROJECTION_KEYS):
        await _stored_state(at, name)


async def _stored_state(at: Claimant, name: str) -> None:
    """Check that a projection's checkpoint equals the checkpoint stored with its state. Retry if they differ.

    Both are written in one step but read in two steps.
    """
    keys, listed, stored = at.inspector.keys, None, None
    plain, _, digits = name.rpartition("@")
    version = number_in(digits)
    if version is None:
        at.findings.add("checkpoint", 0, f"p:{name[:80]}: not a name of a projection")
        return
    for _ in range(at.findings.bounds.state_attempts):
        listed = (await at.inspector.fields(keys.checkpoints(at.session), (f"p:{name}",))).get(f"p:{name}")
        fields = await at.inspector.fields(keys.projection(at.session, plain, version), ("position",))
        stored = fields.get("position")
        if listed == stored:
            return
    checkpoint = "is stored without a checkpoint" if listed is None else f"its checkpoint is {look(listed)}"
    at.findings.add("checkpoint", 0, f"projection {name}: {checkpoint}, the state has {look(stored or b'')}")


async def _live_deltas(at: Claimant) -> None:
    """Check that live deltas can be decoded, and belong to positions that exist."""
    async for page in at.inspector.stream_pages(at.inspector.keys.live(at.session)):
        for entry in page:
            position, delta = place_of(entry)
            if not delta:
                at.findings.add("live", position, "a live delta has the id of an entry")
            elif isinstance(message := decode_delta(at.session, entry).message, DecodeFailure):
                at.findings.add("live", position, f"delta {delta}: {message.error}; {look(message.raw)}")
            at.findings.suspect("live", position, f"live delta {delta} belongs to it")


async def _entries_above(at: Claimant) -> None:
    """Check that no lane has entries after the head's last position."""
    for lane in Lane:
        key = at.inspector.keys.lane(at.session, lane)
        async for page in at.inspector.stream_pages(key, f"({at.head_fields.position}-{HIGHEST}"):
            for entry in page:
                text = f"entry {entry[0].decode()} of the {lane} lane is after the head: {look(b' '.join(entry[1]))}"
                at.findings.suspect("above_head", place_of(entry)[0], text)


CLAIMS: Mapping[str, Callable[[Claimant], Awaitable[None]]] = {
    "producers": _producers,
    "caller's keys": _caller_keys,
    "checkpoints": _checkpoints,
    "live deltas": _live_deltas,
    "lanes": _entries_above,
}
"""function that checks all records of a kind, by the kind's name"""


# Check the records of which agent a session belongs to: its head, the list of sessions, and the bucket's counts.


async def check_agent(inspector: Inspector, session: str, findings: Findings) -> None:
    """Check that the list of sessions and the session's head name the same agent. The bus writes both in one step.

    Workers and `lanebus agents` read the agent from the list; appends read it from the head. The check is repeated if
    the session is handed over meanwhile.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server cannot be reached.
    """
    keys = inspector.keys
    for _ in range(findings.bounds.session_attempts):
        before = await _agent_of_head(inspector, session)
        listed = (await inspector.fields(keys.sessions(keys.bucket(session)), (session,))).get(session)
        if before == await _agent_of_head(inspector, session):
            if listed is not None and _agent_listed(listed) != before:
                text = f"the list of sessions names the agent {_agent_listed(listed)!r}, its head {before!r}"
                findings.add("agent", 0, text)
            return
    findings.note("its agent was not checked, as it was handed over all the time")


async def check_agent_counts(inspector: Inspector, bucket: int, findings: Findings) -> None:
    """Check that a bucket's counts of sessions by agent agree with its list of sessions. Retry if either changes
    meanwhile.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server cannot be reached.
    """
    key = inspector.keys.sessions(bucket)
    for _ in range(findings.bounds.byte_attempts):
        before = (await inspector.fields(key, (ALL_AGENTS,))).get(ALL_AGENTS, b"{}")
        listed = await _listed_agents(inspector, key)
        if before == (await inspector.fields(key, (ALL_AGENTS,))).get(ALL_AGENTS, b"{}"):
            if (counted := _stored_counts(before)) != listed:
                shown = look(before) if counted is None else str(dict(sorted(counted.items())))
                text = f"bucket {bucket} counts sessions of agents {shown}, its list has {dict(sorted(listed.items()))}"
                findings.add("agent", 0, text)
            return
    findings.note(f"bucket {bucket}: its sessions of agents were not counted, as they changed all the time")


async def _agent_of_head(inspector: Inspector, session: str) -> str:
    fields = await inspector.fields(inspector.keys.head(session), ("agent",))
    return fields.get("agent", b"").decode(errors="replace")


def _agent_listed(value: bytes) -> str:
    return value.decode(errors="replace").partition(" ")[2]


async def _listed_agents(inspector: Inspector, key: str) -> dict[str, int]:
    agents = dict[str, str]()  # by session: a page may repeat one
    async for page in inspector.hash_pages(key):
        named = {name.decode(errors="replace"): value for name, value in page.items() if not name.startswith(b":")}
        agents.update((name, agent) for name, value in named.items() if (agent := _agent_listed(value)))
    return dict(Counter(agents.values()))


def _stored_counts(text: bytes) -> dict[str, int] | None:
    """Return the stored counts; None if they are invalid."""
    try:
        counts = cast("object", json.loads(text))
    except ValueError:
        return None
    return cast("dict[str, int]", counts) if isinstance(counts, dict) else None


# Fold projections from the first entry, all in one read of the log. Compare the results with the stored states.


S = TypeVar("S")


class Fold(Protocol):
    """A projection whose state is being folded."""

    name: str
    version: int
    start: Cursor
    """cursor after which the fold starts"""

    @property
    def unreadable(self) -> int:
        """Number of entries that were skipped because they could not be read."""
        ...

    def take(self, envelope: Envelope) -> None:
        """Fold the next entry."""
        ...

    def dump(self) -> bytes:
        """Return the state in its stored encoding."""
        ...

    def agrees(self, stored: bytes) -> bool:
        """Return whether a stored state equals the folded state."""
        ...


BeginFold = Callable[[Session], Awaitable[Fold]]
"""Begins the fold of one projection for a session."""


class _Folding(Generic[S]):
    """The `Fold` of one projection, from the projection's start."""

    def __init__(self, projection: Projection[S], start: Projected[S]) -> None:
        self.name, self.version, self.start = projection.name, projection.version, start.cursor
        self._projection, self._now = projection, start

    @property
    def unreadable(self) -> int:
        return self._now.unreadable

    def take(self, envelope: Envelope) -> None:
        self._now = folded(self._projection, self._now, envelope)

    def dump(self) -> bytes:
        return self._projection.dump(self._now.state)

    def agrees(self, stored: bytes) -> bool:
        return self._projection.agrees(stored, self._now.state, self._now.unreadable)


def fold_of(projection: Projection[S]) -> BeginFold:
    """Return a function that begins the fold of a projection. Pass the function to `replay`."""

    async def begin(session: Session) -> Fold:
        start = await start_of(session, projection)
        # A copy, because the fold may change its state in place.
        return _Folding(projection, replace(start, state=deepcopy(start.state)))

    return begin


_FOLDS: Mapping[str, BeginFold] = {
    USAGE.name: fold_of(USAGE),
    TURNS.name: fold_of(TURNS),
    SESSIONS.name: fold_of(SESSIONS),
    STATUS.name: fold_of(STATUS),
    TIMELINE.name: fold_of(TIMELINE),
}

PROJECTION_NAMES = tuple(_FOLDS)
"""names of lanebus's own projections, which `replay` accepts by name"""

PROJECTION_KEYS = frozenset(each.key for each in (USAGE, TURNS, SESSIONS, STATUS, TIMELINE))
"""name and version of each of lanebus's own projections, as `<name>@<version>`"""


class Replayed(NamedTuple):
    """The result of folding one projection from the log."""

    name: str
    version: int
    cursor: Cursor
    """cursor of the last folded entry"""
    state: bytes
    """the folded state in its stored encoding"""
    stored: int | None
    """position of the stored state's checkpoint; None if no state is stored"""
    agrees: bool | None
    """whether the stored state equals the state folded up to the stored state's checkpoint. None if no state is stored,
    or the checkpoint is after the last folded entry"""
    unreadable: int = 0
    """number of entries that were skipped because they could not be read"""

    @property
    def key(self) -> str:
        """The projection's name and version, as `<name>@<version>`."""
        return f"{self.name}@{self.version}"


class _Replay:
    """The fold of one projection, and the comparison with the stored state."""

    def __init__(self, fold: Fold, stored: Checkpoint | None) -> None:
        self.fold, self.stored, self.cursor = fold, stored, fold.start
        self._agrees: bool | None = None
        self._compare()

    def take(self, envelope: Envelope) -> None:
        """Fold the next entry."""
        if envelope.position > self.fold.start.position:
            self.fold.take(envelope)
            self.cursor = envelope.cursor
            self._compare()

    def end(self, until: int) -> Replayed:
        """Return the result. `until` is the last position that was read."""
        stored = None if self.stored is None else self.stored.position
        if stored is not None and self._agrees is None and stored <= until:
            self._agrees = False  # the log has no entry at the checkpoint
        fold = self.fold
        return Replayed(fold.name, fold.version, self.cursor, fold.dump(), stored, self._agrees, fold.unreadable)

    def _compare(self) -> None:
        if self.stored is not None and self.cursor.position == self.stored.position:
            cursor = self.stored.cursor
            is_here = not self.cursor.incarnation or cursor.incarnation in {"", self.cursor.incarnation}
            self._agrees = is_here and self.fold.agrees(self.stored.state)


async def replay(
    session: Session,
    names: Iterable[str] = PROJECTION_NAMES,
    *,
    others: Iterable[BeginFold] = (),
    until: int,
    stored_only: bool = False,
) -> list[Replayed]:
    """Fold projections from the first entry, and compare the results with the stored states. Nothing is stored.

    Args:
        session: the session.
        names: names of lanebus's own projections; each must be in `PROJECTION_NAMES`.
        others: further projections, as results of `fold_of`.
        until: last position to fold.
        stored_only: skip projections without a stored state.

    Returns:
        One result for each projection, in the order of the arguments.

    Raises:
        CursorTrimmed: the first entries were trimmed.
        BusError: the log could not be read.
    """
    replays: list[_Replay] = []
    for begin in (*(_FOLDS[name] for name in names), *others):
        fold = await begin(session)
        stored = await session.load_projection(fold.name, fold.version)
        if stored is not None or not stored_only:
            replays.append(_Replay(fold, stored))
    if not replays:
        return []
    start = min((each.fold.start for each in replays), key=lambda cursor: cursor.position)
    async with aclosing(session.read(after=start, until=until)) as entries:
        async for envelope in entries:
            for each in replays:
                each.take(envelope)
    return [each.end(until) for each in replays]


def differs(session: str, key: str) -> str:
    """Return the text and remedy of the problem that a stored state differs from a fold of the log."""
    return (
        f"the stored state of projection {key} differs from a fold of the log; "
        f"remove it with: lanebus projections remove {session} {shlex.quote(key)}"
    )
