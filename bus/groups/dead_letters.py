"""Read and redrive dead letters: work items that a group gave up."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import (
    InvalidLetterId,
    InvalidSessionId,
    Refused,
    is_of_session,
    require_all,
    require_instance,
    require_text,
)
from lanebus.bus.iteration import resumable
from lanebus.bus.log.batches import batched
from lanebus.bus.log.log import count_in
from lanebus.bus.log.script import Script
from lanebus.bus.reading.pages import stream_pages
from lanebus.bus.servers.replies import answered
from lanebus.bus.wire.keys import AgentBucket, check_session_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.replies import Argument
    from lanebus.bus.wire.codec import Entry

__all__ = ("DeadLetter", "DeadLetters")

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
        require_all("letters", letters, DeadLetter, "pass letters that `read` or `get` returned")
        shares: dict[int, list[DeadLetter]] = defaultdict(list)
        for letter in letters:
            bucket, _ = self._parse_id(letter.id)
            if bucket != self._keys.bucket(check_session_id(letter.session)):
                raise InvalidLetterId(letter.id)
            shares[bucket].append(letter)
        count = 0
        for bucket, share in shares.items():
            for batch in batched(share, self._log.work.redrive_page):
                count += await self._redrive(bucket, batch)
        return count

    async def redrive_all(self, session: str | None = None) -> int:
        """Redrive the letters of one session, or all letters (None). Return how many were redriven.

        Raises the errors of `read` and `redrive`.
        """
        count, page = 0, list[DeadLetter]()
        async with aclosing(self.read(session)) as letters:
            async for letter in letters:
                page.append(letter)
                if len(page) == self._log.work.redrive_page:
                    count += await self.redrive(page)
                    page.clear()
        return count + await self.redrive(page)

    async def _redrive(self, bucket: int, letters: Sequence[DeadLetter]) -> int:
        """Redrive letters of one bucket. Try again if a session was handed over after its agent was read."""
        count = 0
        while letters:
            heads = [("HGET", self._keys.head(letter.session), "agent") for letter in letters]
            agents = [  # a damaged head has no agent, and its letter is dropped
                None if isinstance(reply, Refused) and is_of_session(reply) else cast("bytes | None", answered(reply))
                for reply in await self._log.call_many(heads)
            ]
            shares: dict[str, list[DeadLetter]] = defaultdict(list)
            for letter, name in zip(letters, agents, strict=True):
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
