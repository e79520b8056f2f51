"""Sessions that are archived and trimmed, and the way past the bus to what their archive keeps."""

import gzip
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from lanebus import ALL_LANES, Bounds, Bus, Envelope, Lane, Session
from lanebus.archive import Archive, ArchiveProblem, DirectoryArchive
from lanebus.bus.archive.bounds import ArchiveBounds
from lanebus.bus.archive.names import SegmentName, file_of, folder_of
from lanebus.bus.log.log import Log
from lanebus.bus.servers.topology import topology_at
from lanebus.bus.wire.keys import Keys
from tests.support.log.said import said, told
from tests.support.servers.bounded import bound_servers
from tests.support.servers.real import AnyServer

__all__ = (
    "LANES",
    "archive_on",
    "archiving",
    "files",
    "fill",
    "kinds",
    "lines",
    "names",
    "place",
    "problems",
    "seen_until",
    "small",
    "stretches",
    "trim",
)

LANES = {"both": ALL_LANES, "llm": frozenset({Lane.LLM}), "extension": frozenset({Lane.EXTENSION})}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Where the archive is."""
    return tmp_path / "archive"


@pytest.fixture
def small(request: pytest.FixtureRequest) -> None:
    """Segments of few entries, so that a short log has many."""
    bound_servers(request, Bounds(archive=ArchiveBounds(entries=40)))


def archiving(server: AnyServer, files: Path) -> AbstractAsyncContextManager[Bus]:
    """A bus with an archive."""
    return Bus.open(server.url, archive=DirectoryArchive(files), bounds=server.bounds)


@asynccontextmanager
async def archive_on(server: AnyServer, files: Path) -> AsyncGenerator[Archive, None]:
    """The archive without its bus."""
    pool = topology_at(server.url).pool()
    try:
        yield Archive(Log(pool, Keys()), DirectoryArchive(files), "lanebus")
    finally:
        await pool.close()


async def fill(session: Session, count: int) -> None:
    """So many positions, in turn one of the LLM lane and two of the other."""
    for first in range(1, count + 1, 300):
        numbers = range(first, min(first + 300, count + 1))
        await session.publish(*[said(str(n)) if n % 3 == 1 else told(str(n)) for n in numbers])


def trim(server: AnyServer, position: int, session: str = "s") -> None:
    """Take positions up to this one away from both lanes."""
    for lane in Lane:
        server.do("XTRIM", Keys().lane(session, lane), "MINID", f"{position + 1}-0")
    server.do("HSET", Keys().head(session), "trimmed", str(position))


def names(files: Path, session: str = "s") -> list[str]:
    """The segments that are there, in the order of positions."""
    found = [path.name.removesuffix(".jsonl.gz") for path in files.joinpath(folder_of("lanebus", session)).glob("*")]
    return sorted(found, key=lambda name: int(name.partition("-")[0]))


def stretches(segments: list[str] | tuple[str, ...]) -> list[tuple[int, int]]:
    """The first and last position of each segment."""
    return [(name.first, name.last) for name in map(SegmentName.parse, segments)]


def place(files: Path, name: str, session: str = "s") -> Path:
    """The file of a segment."""
    return files / file_of("lanebus", session, SegmentName.parse(name))


def lines(files: Path, name: str) -> list[dict[str, object]]:
    """A segment as a reader of JSON lines sees it."""
    text = gzip.decompress(place(files, name).read_bytes()).decode()
    return [cast("dict[str, object]", json.loads(line)) for line in text.split("\n")[:-1]]


async def problems(session: Session) -> list[ArchiveProblem]:
    """What is wrong with a session's archive."""
    return [problem async for problem in session.check_archive()]


async def kinds(session: Session) -> list[str]:
    """What kinds of problems a session's archive has."""
    return [problem.kind for problem in await problems(session)]


async def seen_until(envelopes: AsyncIterator[Envelope], seen: list[Envelope]) -> None:
    """Note each as it comes; an error leaves what came before it."""
    async for envelope in envelopes:
        seen.append(envelope)  # noqa: PERF401  a comprehension would lose them
