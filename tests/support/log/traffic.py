"""Callers that publish without pause and followers that read, while a test harms the servers."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio

from lanebus import Bus, Session
from lanebus.errors import LogRolledBack
from tests.support.log.said import assert_gap_free, read, said, told, word
from tests.support.servers.real import eventually

CALLERS = 3
"""number of callers that publish to each session"""


class Traffic:
    """The acknowledged words, the words that were read, and the reported losses."""

    def __init__(self, bus: Bus, names: Sequence[str]) -> None:
        self._bus, self._names = bus, names
        self.acknowledged: dict[str, dict[str, int]] = {name: {} for name in names}
        """session → word → position"""
        self.seen: dict[str, list[tuple[int, str]]] = defaultdict(list)
        """session → positions and words, as its follower read them"""
        self.told: dict[str, set[str]] = defaultdict(set)
        """session → "publisher" and "follower", if a call of theirs reported that the log lost its end"""
        self.is_over = False

    @property
    def count(self) -> int:
        """The number of acknowledged publishes."""
        return sum(map(len, self.acknowledged.values()))

    async def more(self, count: int = 20) -> None:
        """Wait until each session has `count` more acknowledged publishes."""
        goals = {name: len(words) + count for name, words in self.acknowledged.items()}
        await eventually(lambda: all(len(self.acknowledged[name]) >= goal for name, goal in goals.items()))

    async def speak(self, session: Session, caller: int) -> None:
        """Publish one word after the other, to both lanes in turn."""
        turn = 0
        while not self.is_over:
            text = f"{caller}.{turn}"
            try:
                receipt = await session.publish(said(text) if turn % 2 else told(text), seconds=60)
            except LogRolledBack:
                self.told[session.id].add("publisher")
            else:
                self.acknowledged[session.id][text] = receipt.position
            turn += 1

    async def follow(self, session: Session) -> None:
        """Read all entries. Start again if the log was replaced."""
        while True:
            try:
                async for envelope in session.follow():
                    self.seen[session.id].append((envelope.position, word(envelope)))
            except LogRolledBack:
                self.told[session.id].add("follower")
                self.seen[session.id].clear()

    async def assert_whole(self) -> None:
        """Check that each acknowledged word is there once, at its position, and was read once."""
        for name in self._names:
            envelopes = await read(self._bus.session(name))
            assert_gap_free(envelopes)
            found = {word(envelope): envelope.position for envelope in envelopes}
            assert len(found) == len(envelopes)
            if not self.told[name]:
                assert found == self.acknowledged[name]

            expected = [(position, text) for text, position in found.items()]

            # A publisher may learn of a loss before the follower, who has read more than the log has then.
            def has_seen_all(name: str = name, expected: list[tuple[int, str]] = expected) -> bool:
                return self.seen[name] == expected

            await eventually(has_seen_all)

    async def lost(self, bus: Bus) -> dict[str, set[str]]:
        """Return session → acknowledged words that its log lacks. Needs a bus that is still open."""
        gone = dict[str, set[str]]()
        for name in self._names:
            here = {word(envelope) for envelope in await read(bus.session(name))}
            if missing := self.acknowledged[name].keys() - here:
                gone[name] = set(missing)
        return gone


@asynccontextmanager
async def traffic(bus: Bus, *names: str) -> AsyncGenerator[Traffic, None]:
    """Publish to and follow these sessions during the block. Afterwards check the logs."""
    running = Traffic(bus, names)
    async with anyio.create_task_group() as followers:
        async with anyio.create_task_group() as callers:
            for name in names:
                followers.start_soon(running.follow, bus.session(name))
                for caller in range(CALLERS):
                    callers.start_soon(running.speak, bus.session(name), caller)
            await running.more()
            yield running
            await running.more()
            running.is_over = True
        await running.assert_whole()
        followers.cancel_scope.cancel()
