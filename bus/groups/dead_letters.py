"""Dead letters: work that a group has set aside, to look at and to send on its way again."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import InvalidLetterId, InvalidSessionId
from lanebus.bus.log.batches import batched
from lanebus.bus.log.script import Script
from lanebus.bus.reading.pages import stream_pages
from lanebus.bus.servers.replies import call_all
from lanebus.bus.wire.keys import check_session_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.codec import Entry

__all__ = ("DeadLetter", "DeadLetters")

_REDRIVE = Script("group_redrive", shares=("work",))
_ID = re.compile(r"([0-9]{1,5}):([0-9]{1,18}-[0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Work that was set aside, and why."""

    id: str
    session: str
    position: int
    """up to which there was something to do"""
    reason: str
    attempts: int
    time: float
    """seconds UTC, by the server's clock"""
    worker: str
    """the consumer that set it aside"""
    raw: bytes
    """what was at fault, or its beginning"""
    size_bytes: int
    """of all that was at fault"""


class DeadLetters:
    """The dead letters of one group. They hold up no trim: what they ask for may be gone from the log by now. Once
    sent on their way again, it is held."""

    def __init__(self, log: Log, group: str) -> None:
        self.group = group
        self._log, self._keys = log, log.keys

    async def count(self, session: str | None = None) -> int:
        """How many there are, of one session or of all. Raises Unavailable."""
        if session is None:
            commands = [("XLEN", self._keys.dead(bucket, self.group)) for bucket in range(self._keys.buckets)]
            return sum(cast("list[int]", await call_all(self._log, commands)))
        return len([letter async for letter in self.read(session)])

    async def dropped(self) -> int:
        """How many are gone because there were too many in their bucket. Raises Unavailable."""
        buckets = range(self._keys.buckets)
        commands = [("HGET", self._keys.groups(bucket), f"{self.group}:dropped") for bucket in buckets]
        return sum(int(count or 0) for count in cast("list[bytes | None]", await call_all(self._log, commands)))

    async def read(self, session: str | None = None) -> AsyncGenerator[DeadLetter, None]:
        """All letters, or those of one session; bucket by bucket, in each the oldest first.

        Raises:
            InvalidSessionId: the session's id is none.
            Unavailable: the server cannot be reached.
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
        """One letter; None if there is none of that id (any more).

        Raises:
            InvalidLetterId: it is no id.
            Unavailable: the server cannot be reached.
        """
        bucket, entry_id = self._place(letter_id)
        reply = await self._log.call("XRANGE", self._keys.dead(bucket, self.group), entry_id, entry_id)
        found = cast("list[Entry]", reply)
        return self._read(bucket, found[0]) if found else None

    async def redrive(self, letters: Iterable[DeadLetter]) -> int:
        """Send letters on their way again: their work is given to a consumer of the group soon, as if never tried, and
        they are removed. Those of one session become one work. Nothing is added to a log, and no cursor is moved.
        Doing it twice does it once.

        Returns:
            How many were; one that is gone already is left out, and so is one whose session was erased.

        Raises:
            InvalidLetterId: one was not read here; nothing was sent.
            Unavailable: the server cannot be reached; some of them may be on their way.
        """
        shares: dict[int, list[DeadLetter]] = defaultdict(list)
        for letter in letters:
            bucket, _ = self._place(letter.id)
            if bucket != self._keys.bucket(check_session_id(letter.session)):
                raise InvalidLetterId(letter.id)
            shares[bucket].append(letter)
        count = 0
        for bucket, share in shares.items():
            for some in batched(share, self._log.work.redrive_page):
                count += await self._redrive(bucket, some)
        return count

    async def redrive_all(self, session: str | None = None) -> int:
        """The same for all letters that there are now, or those of one session."""
        count, page = 0, list[DeadLetter]()
        async with aclosing(self.read(session)) as letters:
            async for letter in letters:
                page.append(letter)
                if len(page) == self._log.work.redrive_page:
                    count += await self.redrive(page)
                    page.clear()
        return count + await self.redrive(page)

    async def _redrive(self, bucket: int, letters: Sequence[DeadLetter]) -> int:
        keys, work = self._keys, self._log.work
        names = (*keys.group_work(bucket, self.group), keys.dead(bucket, self.group))
        heads = (keys.head(letter.session) for letter in letters)
        arguments = [word for letter in letters for word in (self._place(letter.id)[1], letter.session)]
        return cast(
            "int",
            await self._log.run(
                _REDRIVE, (*names, *heads), (self.group, "", *work.wake_up_trim, work.error_length, *arguments)
            ),
        )

    def _place(self, letter_id: str) -> tuple[int, str]:
        match = _ID.fullmatch(letter_id)
        if match is None or int(match[1]) >= self._keys.buckets:
            raise InvalidLetterId(letter_id)
        return int(match[1]), match[2]

    def _read(self, bucket: int, entry: Entry) -> DeadLetter | None:
        letter = _letter(bucket, entry)
        return letter if letter is not None and self._keys.bucket(letter.session) == bucket else None


def _letter(bucket: int, entry: Entry) -> DeadLetter | None:
    """The letter of an entry; None if the bus did not write it. Pure."""
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
