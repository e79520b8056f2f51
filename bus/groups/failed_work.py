"""Read which sessions have failed work: work that is tried again, and work that a group gave up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import Refused, is_of_session
from lanebus.bus.groups.names import all_parts, parts_of
from lanebus.bus.log.log import count_in
from lanebus.bus.log.script import Script, send_scripts
from lanebus.bus.servers.replies import answered
from lanebus.bus.wire.keys import AgentBucket, check_session_id, is_session_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.replies import Argument

__all__ = ("FailedWork", "FailedWorks")

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
