"""Power cuts that tear the server's file within an append: acknowledged entries are there, or a loss is reported."""

import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from random import Random

import pytest

from lanebus import Bus, ExtensionMessage, Session, UserMessage
from lanebus.errors import DurabilityWarning, HeadMissing, LogRolledBack, SessionDamaged, StreamError
from lanebus.handlers.verify import Report, verify_all
from tests.support.laws.tiny import is_tiny, shrink
from tests.support.servers.real import KINDS, RealServer, one_server, real_server
from tests.support.suite.needs import find
from tests.support.suite.scale import count, randomness

SESSIONS = ("s1", "s2", "s3")
MOST_ROUNDS = 60
"""rounds after which a server that lost nothing counts as one that loses nothing"""


class Cuts:
    """A server that loses power repeatedly, and the entries that it has acknowledged."""

    def __init__(self, server: RealServer, random: Random, refusals: tuple[type[StreamError], ...] = ()) -> None:
        self._server, self._random, self._refusals = server, random, refusals
        self._number = 0
        self.acknowledged: set[str] = set()

    async def round(self) -> None:
        """Publish, then cut the power while one more append is written, which is not acknowledged."""
        async with self._server.bus() as bus:
            for _ in range(self._random.randint(1, 3)):
                self.acknowledged.update(await self._publish(bus))
            before = self._size()
            is_written = bool(await self._publish(bus))
            self._server.kill()
        if is_written:
            os.truncate(self._file, self._random.randint(before + 1, self._size() - 1))

    @property
    def _file(self) -> Path:
        return max((self._server.directory / "appendonlydir").glob("*.incr.aof"))

    def _size(self) -> int:
        return self._file.stat().st_size

    async def _publish(self, bus: Bus) -> list[str]:
        texts: list[str] = []
        messages: list[UserMessage | ExtensionMessage] = []
        for _ in range(self._random.randint(1, 3)):
            self._number += 1
            texts.append(f"word {self._number}")
            if self._random.random() < 0.5:
                messages.append(UserMessage.text(texts[-1]))
            else:
                messages.append(ExtensionMessage.of("word", texts[-1]))
        try:
            await bus.session(self._random.choice(SESSIONS)).publish(*messages)
        except self._refusals:
            return []
        return texts


async def found(session: Session) -> AsyncGenerator[str, None]:
    async for envelope in session.read():
        match envelope.message:
            case UserMessage() as message:
                yield message.text_content()
            case ExtensionMessage() as message:
                yield str(message.data)
            case other:
                yield repr(other)


async def found_until_a_loss(session: Session) -> AsyncGenerator[str, None]:
    """Read until the bus reports that the log has lost something."""
    with suppress(HeadMissing, LogRolledBack):
        async for text in found(session):
            yield text


async def reports(bus: Bus) -> list[Report]:
    async with aclosing(verify_all(bus)) as every:
        return [report async for report in every]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_acknowledged_is_there_once_after_torn_power_cuts(kind: str) -> None:
    for seed in range(count(15)):
        with one_server(kind) as server:
            if is_tiny(seed):
                shrink(server)
            cuts = Cuts(server, randomness("torn", seed))
            for _ in range(4):
                await cuts.round()
                _mend(server)
                server.start()
            async with server.bus() as bus:
                there = [text for name in SESSIONS async for text in found(bus.session(name))]
                assert sorted(there) == sorted(cuts.acknowledged)
                assert all(report.is_whole for report in await reports(bus))


def _mend(server: RealServer) -> None:
    """Repair the file as an operator does when Redis, configured as here, does not start on a torn file."""
    if server.binary.name == "redis-server":
        checker = server.binary.with_name("redis-check-aof")
        manifest = server.directory / "appendonlydir" / "appendonly.aof.manifest"
        subprocess.run([checker, "--fix", manifest], input=b"y\n", capture_output=True, check=True)


@pytest.mark.needs("redis-server")
@pytest.mark.filterwarnings("ignore::lanebus.errors.DurabilityWarning")
async def test_a_log_that_a_server_went_on_with_that_may_lose_entries_is_not_called_whole() -> None:
    binary = find("redis-server")
    assert binary is not None
    lost = 0
    for seed in range(MOST_ROUNDS):
        if lost and seed >= count(15):
            break
        with real_server(binary, "--aof-load-truncated", "yes") as server:
            if is_tiny(seed):
                shrink(server)
            # What this server leaves of an append may be no log. The bus then refuses the session, which is a report.
            cuts = Cuts(server, randomness("torn", seed), refusals=(HeadMissing, SessionDamaged))
            async with server.bus() as bus:
                await bus.session(SESSIONS[0]).publish(UserMessage.text("word 0"))
                assert all(report.is_whole for report in await reports(bus)), "it was never restarted"
            for _ in range(4):
                await cuts.round()
                server.start()
            server.kill()
            server.start()
            async with server.bus() as bus:
                there = [text for name in SESSIONS async for text in found_until_a_loss(bus.session(name))]
                lost += len(cuts.acknowledged.difference(there))
                every = await reports(bus)
            assert not all(report.is_whole for report in every)
            risks = {report.risk for report in every} - {""}
            assert all("may lose acknowledged entries" in risk for risk in risks)
    # The reason for the warning. If this fails, the server was fixed: add its version to the table.
    assert lost, DurabilityWarning.__doc__
