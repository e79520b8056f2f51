"""Sessions that are archived and trimmed, and direct access to the archive's files."""

import gzip
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from lanebus import ALL_LANES, Bounds, Bus, Envelope, Lane, Session
from lanebus.archive import Archive, ArchiveProblem, DirectoryArchive
from lanebus.bounds import ArchiveBounds
from lanebus.bus import Log
from lanebus.bus.archive.segment import SegmentName, file_of, folder_of
from lanebus.bus.servers import topology_at
from lanebus.bus.wire import Keys
from tests.support.log.said import said, told
from tests.support.servers.bounded import bound_servers
from tests.support.servers.real import AnyServer

LANES = {"both": ALL_LANES, "llm": frozenset({Lane.LLM}), "extension": frozenset({Lane.EXTENSION})}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The directory of the archive."""
    return tmp_path / "archive"


@pytest.fixture
def small(request: pytest.FixtureRequest) -> None:
    """Make segments of few entries, so that a short log has many."""
    bound_servers(request, Bounds(archive=ArchiveBounds(entries=40)))


def archiving(server: AnyServer, files: Path) -> AbstractAsyncContextManager[Bus]:
    """Open a bus with an archive."""
    return Bus.open(server.url, archive=DirectoryArchive(files), bounds=server.bounds)


@asynccontextmanager
async def archive_on(server: AnyServer, files: Path) -> AsyncGenerator[Archive, None]:
    """Open the archive without its bus."""
    pool = topology_at(server.url).pool()
    try:
        yield Archive(Log(pool, Keys()), DirectoryArchive(files), "lanebus")
    finally:
        await pool.close()


async def fill(session: Session, count: int) -> None:
    """Publish `count` positions: in turn one in the LLM lane and two in the extension lane."""
    for first in range(1, count + 1, 300):
        numbers = range(first, min(first + 300, count + 1))
        await session.publish(*[said(str(n)) if n % 3 == 1 else told(str(n)) for n in numbers])


def trim(server: AnyServer, position: int, session: str = "s") -> None:
    """Trim the positions up to this one from both lanes."""
    for lane in Lane:
        server.do("XTRIM", Keys().lane(session, lane), "MINID", f"{position + 1}-0")
    server.do("HSET", Keys().head(session), "trimmed", str(position))


def names(files: Path, session: str = "s") -> list[str]:
    """Return the names of the stored segments, in order of position."""
    found = [path.name.removesuffix(".jsonl.gz") for path in files.joinpath(folder_of("lanebus", session)).glob("*")]
    return sorted(found, key=lambda name: int(name.partition("-")[0]))


def stretches(segments: list[str] | tuple[str, ...]) -> list[tuple[int, int]]:
    """Return the first and last position of each segment."""
    return [(name.first, name.last) for name in map(SegmentName.parse, segments)]


def place(files: Path, name: str, session: str = "s") -> Path:
    """Return the file of a segment."""
    return files / file_of("lanebus", session, SegmentName.parse(name))


def lines(files: Path, name: str) -> list[dict[str, object]]:
    """Return a segment's text as JSON lines."""
    text = gzip.decompress(place(files, name).read_bytes()).decode()
    return [cast("dict[str, object]", json.loads(line)) for line in text.split("\n")[:-1]]


async def problems(session: Session) -> list[ArchiveProblem]:
    """Return the problems of a session's archive."""
    return [problem async for problem in session.check_archive()]


async def kinds(session: Session) -> list[str]:
    """Return the kinds of problems of a session's archive."""
    return [problem.kind for problem in await problems(session)]


async def seen_until(envelopes: AsyncIterator[Envelope], seen: list[Envelope]) -> None:
    """Note each envelope as it arrives. An error leaves those that arrived before it."""
    async for envelope in envelopes:
        seen.append(envelope)  # noqa: PERF401  a comprehension would lose them
