"""Work that failed: when to try it again, the sessions whose work is tried again, and the dead letters of a group."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal, cast, get_args

from lanebus.bus.concurrency import resumable
from lanebus.bus.errors import (
    BusError,
    Closed,
    InvalidLetterId,
    InvalidSessionId,
    MessageError,
    Refused,
    SetupError,
    StreamError,
    WrongAgent,
    is_of_session,
    require_instance,
    require_text,
)
from lanebus.bus.groups.status import all_parts, parts_of
from lanebus.bus.log.log import Script, batched, count_in, send_scripts
from lanebus.bus.log.reading import stream_pages
from lanebus.bus.servers.calls import answered
from lanebus.bus.wire.keys import AgentBucket, check_agent, check_session_id, is_session_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.calls import Argument
    from lanebus.bus.wire.codec import Entry


_FAILED = Script("group_failed", shares=("damage", "work"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedWork:
    """A session's work that failed at least once: a dead letter, or work that is tried again."""

    session: str
    group: str
    position: int
    """position up to which the session had work"""
    attempts: int
    """number of attempts that failed. 0 after a redrive, or if the agent only asked for a delay"""
    reason: str
    """why the last attempt failed, in words for people, cut to `WorkBounds.error_length` bytes"""
    is_dead: bool
    """whether the work is a dead letter: workers try it again only after a redrive"""
    is_held: bool = False
    """whether a consumer tries the work again now"""
    delay: float = 0.0
    """the last pause before another attempt, in seconds"""
    time: float = 0.0
    """when a dead letter was given up: seconds since 1970 UTC, by the server's clock; 0 for other work"""


class FailedWorks:
    """Reads the failed work of one bus, as `Bus.failed_work` returns it. Dead letters are read again only if a bucket
    has others than before."""

    def __init__(self, log: Log) -> None:
        self._log, self._keys = log, log.keys
        self._letters: dict[tuple[int, str], tuple[bytes, tuple[FailedWork, ...]]] = {}

    async def read(self, session: str | None = None) -> dict[str, FailedWork]:
        """Return the failed work by session. If several groups have some of a session, a dead letter comes first.

        Args:
            session: the session whose work to read; None means all.

        Raises:
            InvalidSessionId: `session` does not match `[A-Za-z0-9_-]{1,64}`.
            Unavailable: the server did not answer.
        """
        places = await self._places(None if session is None else check_session_id(session))
        calls = [self._command(place, group, session, with_letters=first) for place, group, first in places]
        replies = await send_scripts(self._log, calls) if calls else []
        tried, letters = list[FailedWork](), list[FailedWork]()
        for (place, group, with_letters), reply in zip(places, replies, strict=True):
            if isinstance(reply, Refused) and is_of_session(reply):
                continue  # a foreign client has replaced a key of this bucket
            again, version, dead = cast("tuple[list[bytes], bytes, list[bytes]]", answered(reply))
            tried += _tried(group, again)
            if with_letters and session is not None:
                letters += _dead(group, dead)
            elif with_letters:
                known = self._letters.get((place.bucket, group))
                if known is None or known[0] != version:
                    known = self._letters[place.bucket, group] = version, tuple(_dead(group, dead))
                letters += known[1]
        if session is None:
            groups = {(place.bucket, group) for place, group, _ in places}
            self._letters = {name: known for name, known in self._letters.items() if name in groups}
        again_in = {(work.session, work.group) for work in tried}
        found = {work.session: work for work in tried}
        newest = sorted(letters, key=lambda letter: letter.time)
        found.update((each.session, each) for each in newest if (each.session, each.group) not in again_in)
        return found

    async def _places(self, session: str | None) -> list[tuple[AgentBucket, str, bool]]:
        """Return the places of each group's work, with the group, and whether it is the group's first in its bucket."""
        if session is None:
            parts: Iterable[tuple[int, Sequence[tuple[str, str]]]] = enumerate(await all_parts(self._log))
        else:
            bucket = self._keys.bucket(session)
            parts = [(bucket, parts_of(await self._log.call("HKEYS", self._keys.groups(bucket))))]
        places: list[tuple[AgentBucket, str, bool]] = []
        for bucket, pairs in parts:
            seen = set[str]()
            for agent, group in pairs:
                places.append((AgentBucket(bucket, agent), group, group not in seen))
                seen.add(group)
        return places

    def _command(
        self, place: AgentBucket, group: str, session: str | None, *, with_letters: bool
    ) -> tuple[Script, tuple[Argument, ...]]:
        work, keys = self._log.work, self._keys.group_work(*place, group)
        known = self._letters.get((place.bucket, group)) if session is None else None
        names = (*keys, self._keys.dead(place.bucket, group)) if with_letters else keys
        bounds = (work.error_length, work.lag_sessions)
        version = b"" if known is None else known[0]
        words = (f"{place.agent}:{group}", "", *work.wake_up_trim, session or "", *bounds, version)
        return _FAILED, _FAILED.command(names, words)


def _tried(group: str, words: Sequence[bytes]) -> list[FailedWork]:
    return [
        FailedWork(
            session=session.decode(),
            group=group,
            position=count_in(position),
            attempts=count_in(attempts),
            reason=reason.decode(errors="replace"),
            is_dead=False,
            is_held=bool(held),
            delay=count_in(delay) / 1000,
        )
        for session, held, position, attempts, delay, reason in zip(*(words[at::6] for at in range(6)), strict=True)
        if is_session_id(session)
    ]


def _dead(group: str, words: Sequence[bytes]) -> list[FailedWork]:
    return [
        FailedWork(
            session=session.decode(),
            group=group,
            position=count_in(position),
            attempts=count_in(attempts),
            reason=reason.decode(errors="replace"),
            is_dead=True,
            time=count_in(time) / 1000,
        )
        for session, position, attempts, time, reason in zip(*(words[at::5] for at in range(5)), strict=True)
        if is_session_id(session)
    ]


# Read and redrive dead letters: work items that a group gave up.

_REDRIVE = Script("group_redrive", shares=("damage", "work"))
_ID = re.compile(r"([0-9]{1,5}):([0-9]{1,18}-[0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A work item that a consumer gave up with `Consumer.dead_letter`, and the reason."""

    id: str
    """`<bucket>:<id>`, with the id of the letter's entry in the bucket's stream of dead letters"""
    session: str
    position: int
    """position up to which the session had work"""
    reason: str
    """why the work was given up, in words for people"""
    attempts: int
    """how often the work was tried"""
    time: float
    """when the work was given up: seconds since 1970 UTC, by the server's clock"""
    worker: str
    """name of the consumer that gave up the work"""
    raw: bytes
    """the data that caused the failure, cut to `WorkBounds.raw_bytes`"""
    size_bytes: int
    """size of the data before it was cut"""


class DeadLetters:
    """The dead letters of one group, as `Bus.dead_letters` returns them.

    A dead letter does not block trims, so the session's unhandled entries may be trimmed. A redriven work item blocks
    trims again.
    """

    def __init__(self, log: Log, group: str) -> None:
        self.group = group
        self._log, self._keys = log, log.keys

    async def count(self, session: str | None = None) -> int:
        """Return the number of letters of one session, or of all sessions (None). Raises Unavailable."""
        if session is None:
            commands = [("XLEN", self._keys.dead(bucket, self.group)) for bucket in range(self._keys.buckets)]
            return sum(count or 0 for count in cast("list[int | None]", await self._log.call_shared(commands)))
        return len([letter async for letter in self.read(session)])

    async def dropped(self) -> int:
        """Return how many letters were dropped because a bucket was full (`WorkBounds.dead_letters`).

        Raises:
            Unavailable: the server did not answer.
        """
        buckets = range(self._keys.buckets)
        commands = [("HGET", self._keys.groups(bucket), f":dropped:{self.group}") for bucket in buckets]
        return sum(map(count_in, cast("list[bytes | None]", await self._log.call_shared(commands))))

    @resumable
    async def read(self, session: str | None = None) -> AsyncGenerator[DeadLetter, None]:
        """Yield letters, bucket by bucket. Within a bucket, older letters come first.

        Args:
            session: the session whose letters to yield; None means all.

        Raises:
            InvalidSessionId: `session` does not match `[A-Za-z0-9_-]{1,64}`.
            Unavailable: the server did not answer.
        """
        buckets = range(self._keys.buckets) if session is None else (self._keys.bucket(check_session_id(session)),)
        for bucket in buckets:
            async with aclosing(stream_pages(self._log, self._keys.dead(bucket, self.group))) as pages:
                async for page in pages:
                    for entry in page:
                        letter = self._read(bucket, entry)
                        if letter is not None and session in {None, letter.session}:
                            yield letter

    async def get(self, letter_id: str) -> DeadLetter | None:
        """Return one letter; None if no letter has this id.

        Raises:
            InvalidLetterId: `letter_id` is not the id of a letter.
            Unavailable: the server did not answer.
        """
        bucket, entry_id = self._parse_id(letter_id)
        reply = await self._log.call("XRANGE", self._keys.dead(bucket, self.group), entry_id, entry_id)
        found = cast("list[Entry]", reply)
        return self._read(bucket, found[0]) if found else None

    async def redrive(self, letters: Iterable[DeadLetter]) -> int:
        """Remove letters, and deliver their work items again with no attempt counted.

        Letters of one session become one work item. Nothing is added to a log, and no cursor moves. A letter is
        redriven once: a repeat with the same letters changes nothing.

        Args:
            letters: letters read from this group.

        Returns:
            The number of letters that were redriven. A letter that was already removed, or whose session was erased, is
            not counted.

        Raises:
            InvalidLetterId: a letter does not belong to this bus. Nothing was redriven.
            Unavailable: the server did not answer. Some letters may have been redriven.
        """
        require_instance("letters", letters, Iterable, "pass letters that `read` or `get` returned")
        letters = tuple(letters)
        return await self._redrive_from(letters, None)

    async def _redrive_from(self, letters: Iterable[DeadLetter], agent: str | None) -> int:
        shares: dict[int, list[DeadLetter]] = defaultdict(list)
        for letter in letters:
            bucket, _ = self._parse_id(letter.id)
            if bucket != self._keys.bucket(check_session_id(letter.session)):
                raise InvalidLetterId(letter.id)
            shares[bucket].append(letter)
        count = 0
        for bucket, share in shares.items():
            for batch in batched(share, self._log.work.redrive_page):
                count += await self._redrive(bucket, batch, agent)
        return count

    async def redrive_all(self, session: str | None = None, *, agent: str | None = None) -> int:
        """Redrive the letters of one session, or all letters (None). Return how many were redriven.

        With `agent`, letters are redriven only as long as their sessions belong to this agent.

        Raises the errors of `read` and `redrive`, InvalidName if `agent` does not match `[A-Za-z0-9_.-]{1,64}`, and
        WrongAgent if a session belongs to another agent; some letters may have been redriven before.
        """
        named = None if agent is None else check_agent(agent)
        count, page = 0, list[DeadLetter]()
        async with aclosing(self.read(session)) as letters:
            async for letter in letters:
                page.append(letter)
                if len(page) == self._log.work.redrive_page:
                    count += await self._redrive_from(page, named)
                    page.clear()
        return count + await self._redrive_from(page, named)

    async def _redrive(self, bucket: int, letters: Sequence[DeadLetter], only: str | None) -> int:
        """Redrive letters of one bucket. Try again if a session was handed over after its agent was read.

        If `only` names an agent, raise WrongAgent for a session of another agent.
        """
        count = 0
        while letters:
            heads = [("HGET", self._keys.head(letter.session), "agent") for letter in letters]
            agents = [  # a damaged head has no agent, and its letter is dropped
                None if isinstance(reply, Refused) and is_of_session(reply) else cast("bytes | None", answered(reply))
                for reply in await self._log.call_many(heads)
            ]
            shares: dict[str, list[DeadLetter]] = defaultdict(list)
            for letter, name in zip(letters, agents, strict=True):
                if only is not None and name is not None and name != only.encode():
                    raise WrongAgent(letter.session, only, name.decode(errors="replace"))
                shares[(name or b"").decode(errors="replace")].append(letter)
            missed: set[str] = set()
            for agent, share in shares.items():
                redriven, others = await self._redrive_share(AgentBucket(bucket, agent), share)
                count += redriven
                missed.update(others)
            letters = [letter for letter in letters if self._parse_id(letter.id)[1] in missed]
        return count

    async def _redrive_share(self, place: AgentBucket, letters: Sequence[DeadLetter]) -> tuple[int, set[str]]:
        """Redrive letters of sessions of one agent. Return their number, and the ids of letters of other agents."""
        keys, work = self._keys, self._log.work
        names = (*keys.group_work(*place, self.group), keys.dead(place.bucket, self.group))
        heads = (keys.head(letter.session) for letter in letters)
        arguments = [word for letter in letters for word in (self._parse_id(letter.id)[1], letter.session)]
        words: list[Argument] = [f"{place.agent}:{self.group}", "", *work.wake_up_trim, work.error_length, *arguments]
        count, *others = cast("list[int | bytes]", await self._log.run(_REDRIVE, (*names, *heads), words))
        return cast("int", count), {cast("bytes", each).decode() for each in others}

    def _parse_id(self, letter_id: str) -> tuple[int, str]:
        require_text("letter_id", letter_id)
        match = _ID.fullmatch(letter_id)
        if match is None or int(match[1]) >= self._keys.buckets:
            raise InvalidLetterId(letter_id)
        return int(match[1]), match[2]

    def _read(self, bucket: int, entry: Entry) -> DeadLetter | None:
        letter = _letter(bucket, entry)
        return letter if letter is not None and self._keys.bucket(letter.session) == bucket else None


def _letter(bucket: int, entry: Entry) -> DeadLetter | None:
    """Return the letter that an entry holds; None if a foreign client wrote the entry. Pure."""
    fields = entry[1]
    values = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        return DeadLetter(
            id=f"{bucket}:{entry[0].decode()}",
            session=check_session_id(values[b"s"].decode()),
            position=int(values[b"z"]),
            reason=values[b"r"].decode(errors="replace"),
            attempts=int(values[b"n"]),
            time=int(values[b"t"]) / 1000,
            worker=values[b"w"].decode(errors="replace"),
            raw=values[b"b"],
            size_bytes=int(values[b"l"]),
        )
    except (KeyError, ValueError, InvalidSessionId):
        return None


# Decide whether and when to retry after a failure. Pure: the caller passes in the random number.

Jitter = Literal["full", "equal", "none"]
"""which part of a delay is random: "full" all of it, "equal" its second half, "none" no part"""


@dataclass(frozen=True, slots=True)
class Retry:
    """Decision to try again after `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Decision not to try again, and why."""

    reason: Literal["attempts", "error"]
    """"attempts": no attempt is left; "error": the policy does not retry this error"""


def passes_by_itself(error: Exception) -> bool:
    """Return whether a retry after `error` may succeed.

    False for `MessageError`, `SetupError`, `StreamError` and `Closed`; True for any other error.
    """
    if isinstance(error, BusError):
        return not isinstance(error, (MessageError, SetupError, StreamError, Closed))
    return True


def _is_number(value: object, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often to try, how long to pause, and after which errors.

    The pause after attempt n is `base` × `factor`ⁿ⁻¹ seconds, at most `longest`, then randomised by `jitter`. Jitter
    keeps workers that failed at the same time from retrying at the same time.

    Raises:
        SetupError: `attempts` or `factor` is below 1, a number of seconds is negative or not finite, `jitter` is
            unknown, or a field has a wrong type.
    """

    attempts: int = 5
    """maximum number of attempts, including the first attempt"""
    base: float = 1.0
    """seconds to pause after the first attempt, before jitter"""
    factor: float = 2.0
    """number by which a pause is multiplied to get the next pause"""
    longest: float = 300.0
    """longest pause, in seconds"""
    jitter: Jitter = "full"
    """part of each pause that is random: "full" all of it, "equal" its second half, "none" no part"""
    retried: tuple[type[Exception], ...] | None = None
    """error types to retry, subclasses included; None means any"""
    is_retried: Callable[[Exception], bool] = passes_by_itself
    """called with the error. If it returns False, the error is not retried, even if `retried` lists its type"""

    def __post_init__(self) -> None:
        """Check the numbers. Raises SetupError, as the class says."""
        if not _is_number(self.attempts, int) or self.attempts < 1:
            raise SetupError(f"retry policy: attempts is {self.attempts!r}", "use 1 or more")
        for name, value, least in (("base", self.base, 0), ("factor", self.factor, 1), ("longest", self.longest, 0)):
            if not _is_number(value, (int, float)) or not isfinite(value) or value < least:
                raise SetupError(f"retry policy: {name} is {value!r}", f"use {least} or more")
        if self.jitter not in get_args(Jitter):
            raise SetupError(f"retry policy: jitter is {self.jitter!r}", 'use "full", "equal" or "none"')
        retried = cast("object", self.retried)
        if retried is not None and not (
            isinstance(retried, tuple) and all(map(_is_error, cast("tuple[object]", retried)))
        ):
            raise SetupError("retry policy: retried is no tuple of exception types", "use (TimeoutError,) or None")
        if not callable(self.is_retried):
            raise SetupError("retry policy: is_retried is no function", "use a function of the error")

    def delay(self, attempt: int, chance: float) -> float:
        """Return the seconds to pause after an attempt.

        Args:
            attempt: number of the attempt that failed, from 1.
            chance: a random number from 0 up to 1, such as `random.random()`.
        """
        try:
            whole = min(self.base * self.factor ** max(attempt - 1, 0), self.longest)
        except OverflowError:
            whole = self.longest if self.base else 0.0
        match self.jitter:
            case "full":
                return whole * chance
            case "equal":
                return whole / 2 + whole / 2 * chance
            case "none":
                return whole

    def decide(self, error: Exception, attempt: int, chance: float = 1.0, *, least: float = 0.0) -> Retry | GiveUp:
        """Return whether to retry after a failed attempt, and when.

        Args:
            error: the error that the attempt raised.
            attempt: number of the attempt, from 1.
            chance: a random number from 0 up to 1; the default 1.0 makes the pause as long as possible.
            least: shortest pause in seconds, for example a provider's `retry-after`. It may exceed `longest`.
        """
        is_wanted = self.retried is None or isinstance(error, self.retried)
        if not is_wanted or not self.is_retried(error):
            return GiveUp("error")
        if attempt >= self.attempts:
            return GiveUp("attempts")
        return Retry(max(self.delay(attempt, chance), least))
