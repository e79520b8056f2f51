"""Every public call that waits, for the tests of cancellations and faults: one line each in `CALLS`.

A call runs at a `Point`: its own session with the words "a", "b" and "c", opened on the bus under test. It returns
whether its answer is right, and must end by itself. `MUTANTS` are calls with one fault each, which the tests must find.
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from lanebus import (
    START,
    Bus,
    Cursor,
    Delta,
    Envelope,
    ImageBlock,
    MediaRef,
    Outcome,
    Receipt,
    Session,
    SessionHead,
    UserMessage,
)
from lanebus.archive import ArchiveProblem, DirectoryArchive
from lanebus.bus.following.subscription import SubscriptionOptions
from lanebus.bus.servers import Connection, Endpoint
from lanebus.bus.wire import Selection
from lanebus.context import Context, WarmContext, build_context
from lanebus.groups import Consumer, Lease, Work
from lanebus.handlers.projections import USAGE
from lanebus.handlers.verify import Replayed, replay, verify_session
from lanebus.media import resolve_media
from lanebus.projections import project, rebuild
from tests.support.log.groups import works
from tests.support.log.said import said, told, word
from tests.support.servers.real import RealServer

T = TypeVar("T")

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)
"""large enough to be stored outside of its message"""


@dataclass
class Point:
    """The place of a call: its own session, and the words that the call and its repeat publish there."""

    server: RealServer
    bus: Bus
    author: Bus
    """another bus of the namespace, which is never cut"""
    number: int
    asked: list[str] = field(default_factory=list[str])
    """all words that a call tried to append, in order"""
    lease: Lease | None = None
    work: Work | None = None

    @property
    def session(self) -> Session:
        return self.bus.session(f"p{self.number}")

    @property
    def written(self) -> Session:
        """The same session, opened on the author's bus."""
        return self.author.session(f"p{self.number}")

    @property
    def consumer(self) -> Consumer:
        """The consumer that all points share. Work that it did not acknowledge is delivered again at the next point."""
        return self.bus.consumer("g", "c")

    def word(self) -> str:
        """Return a new word for a call to append."""
        self.asked.append(f"w{self.number}.{len(self.asked)}")
        return self.asked[-1]

    def same_word(self) -> str:
        """Return the word that a repeated call appends again."""
        self.asked.append(f"k{self.number}")
        return self.asked[-1]


def open_bus(server: RealServer) -> AbstractAsyncContextManager[Bus]:
    """Open a bus with an archive next to the server's file."""
    return Bus.open(server.url, archive=DirectoryArchive(server.directory / "archive"), bounds=server.bounds)


Run = Callable[[Point], Coroutine[object, None, bool]]


@dataclass(frozen=True)
class Call:
    """One call of the table."""

    run: Run
    """makes the call; returns whether its answer was right"""
    before: Callable[[Point], Awaitable[None]] | None = None
    """set-up of the call that must not be cut"""
    is_fed: bool = False
    """True if the call waits for new entries, so that another client publishes meanwhile"""
    is_of_all: bool = False
    """True if the call looks at all sessions, and so takes longer with each earlier point"""


def _call(
    make: Callable[[Point], Coroutine[object, None, T]],
    is_right: Callable[[Point, T], bool] = lambda _point, answer: answer is None,
    *,
    before: Callable[[Point], Awaitable[None]] | None = None,
    is_fed: bool = False,
    is_of_all: bool = False,
) -> Call:
    async def run(point: Point) -> bool:
        return is_right(point, await make(point))

    return Call(run, before, is_fed, is_of_all)


# --- what the calls need -----------------------------------------------------------------------------------------


async def _ring(point: Point) -> None:
    await point.written.publish(told("index"), wake=True)


async def _leased(point: Point) -> None:
    point.lease = await point.written.acquire_lease("me", 60)


async def _needed(point: Point) -> None:
    await point.written.save_checkpoint("r", Cursor(1))


async def _archived(point: Point) -> None:
    await point.written.archive()


async def _trimmed(point: Point) -> None:
    await _archived(point)
    await point.written.trim(3)


async def _at_work(point: Point) -> None:
    await _ring(point)
    point.work = await _next_work(point, point.author.consumer("g", "c"))


async def _set_aside(point: Point) -> None:
    await _at_work(point)
    await point.author.consumer("g", "c").dead_letter(_work(point), reason="r")


def _lease(point: Point) -> Lease:
    assert point.lease is not None
    return point.lease


def _work(point: Point) -> Work:
    assert point.work is not None
    return point.work


def _picture(text: str) -> UserMessage:
    media = MediaRef(kind="data", data=b64encode(PICTURE).decode(), mime_type="image/png")
    return UserMessage(content=(*said(text).content, ImageBlock(media=media)))


# --- calls that are more than one await --------------------------------------------------------------------------


async def _read(point: Point, after: Cursor = START) -> list[str]:
    async with aclosing(point.session.read(after=after)) as entries:
        return [word(envelope) async for envelope in entries]


async def _follow(point: Point, *, live: bool = False) -> list[Envelope]:
    """Return whether the follower yields the existing entries and the next one."""
    end = (await point.session.head()).position
    found: list[Envelope] = []
    async with aclosing(point.session.follow(live=live)) as entries:
        async for envelope in entries:
            found.append(envelope)
            if envelope.position > end:
                break
    return found


async def _subscribe(point: Point) -> list[Envelope]:
    """Like `_follow`, with notices in between. The first word that is not history ends it."""
    end = (await point.session.head()).position
    found: list[Envelope] = []
    async with aclosing(point.session.subscribe()) as items:
        async for item in items:
            if isinstance(item, Envelope):
                found.append(item)
                if item.position > end:
                    break
    return found


async def _replay(point: Point) -> list[Replayed]:
    return await replay(point.session, ("usage", "turns"), until=3)


async def _fork(point: Point) -> list[str]:
    fork = await point.session.fork(2, id=f"fork{point.number}")
    async with aclosing(fork.read()) as entries:
        return [word(envelope) async for envelope in entries]


async def _check_archive(point: Point) -> list[ArchiveProblem]:
    async with aclosing(point.session.check_archive()) as problems:
        return [problem async for problem in problems]


async def _next_work(point: Point, consumer: Consumer) -> Work:
    """Return the work of the point's session, after the work that other points left."""
    async with aclosing(works(consumer)) as given:
        async for work in given:
            if work.session == point.session.id:
                return work
            await consumer.ack(work)
    raise AssertionError("work has no end")


async def _take(point: Point) -> list[Work]:
    """Fetch until the point's session is among the work."""
    async with point.consumer as consumer:
        while True:
            works = await consumer.fetch(8)
            await consumer.ack(*(work for work in works if work.session != point.session.id))
            if point.session.id in {work.session for work in works}:
                return works


async def _letters(point: Point) -> list[str]:
    async with aclosing(point.bus.dead_letters("g").read(point.session.id)) as letters:
        return [letter.session async for letter in letters]


async def _show_letter(point: Point) -> str:
    dead = point.bus.dead_letters("g")
    async with aclosing(dead.read(point.session.id)) as letters:
        letter = await dead.get((await anext(letters)).id)
    return letter.session if letter is not None else ""


async def _redrive(point: Point) -> int:
    return await point.bus.dead_letters("g").redrive_all(point.session.id)


async def _resolve(point: Point) -> dict[str, MediaRef]:
    digest = await point.bus.media.put_if_absent(PICTURE)
    media = MediaRef(kind="sha256", sha256=digest, size_bytes=len(PICTURE), mime_type="image/png")
    return await resolve_media([UserMessage(content=(ImageBlock(media=media),))], point.bus.media)


async def _refresh(point: Point) -> Context:
    warm = WarmContext(point.session)
    await warm.refresh()
    return await warm.refresh()


def _appended(_: Point, receipt: Receipt) -> bool:
    return not receipt.is_duplicate and receipt.position > 3


def _went_in(point: Point, outcome: Outcome) -> bool:
    return isinstance(outcome, Receipt) and _appended(point, outcome)


def _kept(_: Point, receipt: Receipt) -> bool:
    return receipt.positions == (4, 5)


def _is_whole(point: Point, found: list[Envelope]) -> bool:
    entries = [envelope for envelope in found if not envelope.delta]
    return [envelope.position for envelope in entries] == list(range(1, len(entries) + 1)) and all(
        envelope.session == point.session.id for envelope in found
    )


def _says_what_it_said(point: Point, context: Context) -> bool:
    texts = [message.text_content() for message in context.messages]
    return texts[:2] == ["a", "c"] and context.position >= 3 and point.session.id == context.session


CALLS: dict[str, Call] = {
    "publish": _call(lambda p: p.session.publish(said(p.word()), told(p.word())), _appended),
    "publish with a key": _call(lambda p: p.session.publish(said(p.same_word()), told("t"), key="k"), _kept),
    "publish media": _call(lambda p: p.session.publish(_picture(p.word())), _appended),
    "publish under a lease": _call(
        lambda p: p.session.publish(told(p.word()), epoch=_lease(p).epoch), _appended, before=_leased
    ),
    "try to publish": _call(lambda p: p.session.try_publish(said(p.word())), _went_in),
    "close": _call(lambda p: p.session.close(said(p.same_word()), key="k"), _kept),
    "reopen": _call(lambda p: p.session.reopen(said(p.same_word()), key="k"), _kept),
    "preview": _call(lambda p: p.session.preview(Delta(kind="text", message_id="m", delta="x"))),
    "read": _call(_read, lambda _, found: found[:3] == ["a", "b", "c"]),
    "read from a cursor": _call(lambda p: _read(p, Cursor(1)), lambda _, found: found[:2] == ["b", "c"]),
    "follow": _call(_follow, _is_whole, is_fed=True),
    "follow live": _call(lambda p: _follow(p, live=True), _is_whole, is_fed=True),
    "subscribe": _call(_subscribe, _is_whole, is_fed=True),
    "head": _call(lambda p: p.session.head(), lambda p, head: (head.session, head.position) == (p.session.id, 3)),
    "sessions": _call(
        lambda p: p.bus.sessions(), lambda p, heads: p.session.id in {head.session for head in heads}, is_of_all=True
    ),
    "load a projection": _call(lambda p: p.session.load_projection("none", 1)),
    "save a projection": _call(
        lambda p: p.session.save_projection("x", 1, b"state", cursor=Cursor(3), expected=0), lambda _, saved: saved
    ),
    "drop a projection": _call(lambda p: p.session.drop_projection("none", 1), lambda _, gone: not gone),
    "save a checkpoint": _call(lambda p: p.session.save_checkpoint("r", Cursor(2)), lambda _, saved: saved),
    "load a checkpoint": _call(lambda p: p.session.load_checkpoint("r")),
    "drop a checkpoint": _call(lambda p: p.session.drop_checkpoint("r"), lambda _, gone: not gone),
    "checkpoints": _call(lambda p: p.session.checkpoints(), lambda _, found: found == {}),
    "trim": _call(lambda p: p.session.trim(3), lambda _, trimmed: trimmed.first_kept == 3),
    "trim by force": _call(
        lambda p: p.session.trim(3, force=True), lambda _, trimmed: trimmed.first_kept == 3, before=_needed
    ),
    "erase": _call(lambda p: p.session.erase(media=True), lambda _, erased: erased.media == ()),
    "fork": _call(_fork, lambda _, found: found == ["a", "b"]),
    "archive": _call(lambda p: p.session.archive(), lambda _, archived: archived.position == 3),
    "check the archive": _call(_check_archive, lambda _, found: found == [], before=_archived),
    "read from the archive": _call(_read, lambda _, found: found[:3] == ["a", "b", "c"], before=_trimmed),
    "open messages": _call(lambda p: p.session.open_messages(), lambda _, found: found == []),
    "acquire a lease": _call(
        lambda p: p.session.acquire_lease("me", 60),
        lambda p, lease: lease is not None and lease.session == p.session.id,
    ),
    "renew a lease": _call(lambda p: p.session.renew_lease(_lease(p), 60), lambda _, held: held, before=_leased),
    "release a lease": _call(lambda p: p.session.release_lease(_lease(p)), before=_leased),
    "work": _call(lambda p: _next_work(p, p.consumer), lambda p, work: work.session == p.session.id, before=_ring),
    "ack": _call(lambda p: p.consumer.ack(_work(p)), before=_at_work),
    "keep": _call(lambda p: p.consumer.heartbeat(_work(p)), lambda _, lost: lost == [], before=_at_work),
    "take": _call(_take, lambda p, works: p.session.id in {work.session for work in works}, before=_ring),
    "keep all": _call(lambda p: p.consumer.heartbeat(), lambda _, lost: lost == []),
    "retry": _call(lambda p: p.consumer.nack(_work(p), delay=600), before=_at_work),
    "hand back": _call(lambda p: p.consumer.nack(_work(p)), before=_at_work),
    "set aside": _call(
        lambda p: p.consumer.dead_letter(_work(p), reason="r"),
        lambda _, letter: letter == "" or "-" in letter,
        before=_at_work,
    ),
    "leave": _call(lambda p: p.bus.consumer("g", "leaver").deregister(), lambda _, count: count == 0),
    "read dead letters": _call(_letters, lambda p, found: p.session.id in found, before=_set_aside),
    "show a dead letter": _call(_show_letter, lambda p, found: found == p.session.id, before=_set_aside),
    "redrive": _call(_redrive, lambda _, count: count in {0, 1}, before=_set_aside),
    "groups": _call(lambda p: p.bus.groups(), lambda _, names: names == ("g",), before=_at_work),
    "group status": _call(lambda p: p.bus.group_status("g"), lambda _, status: status.name == "g"),
    "remove a group": _call(lambda p: p.bus.remove_group("gone"), lambda _, was_there: not was_there),
    "put media": _call(lambda p: p.bus.media.put_if_absent(PICTURE), lambda _, digest: len(digest) == 64),
    "resolve media": _call(_resolve, lambda _, found: [media.kind for media in found.values()] == ["data"]),
    "project": _call(lambda p: project(p.session, USAGE), lambda _, now: now.position >= 3),
    "rebuild": _call(lambda p: rebuild(p.session, USAGE), lambda _, now: now.position >= 3),
    "verify a session": _call(
        lambda p: verify_session(p.bus, p.session.id),
        lambda p, report: report is not None and (report.session, report.problems) == (p.session.id, ()),
    ),
    "replay": _call(_replay, lambda _, found: [each.cursor.position for each in found] == [3, 3]),
    "build a context": _call(lambda p: build_context(p.session), _says_what_it_said),
    "refresh a context": _call(_refresh, _says_what_it_said),
}
"""calls on an open bus; add a new call as one line"""


async def _open(point: Point) -> bool:
    async with open_bus(point.server) as bus:
        head = await bus.session(point.session.id).head()
        receipt = await bus.session(point.session.id).publish(told(point.word()))
        return head.session == point.session.id and receipt.position > 3


BUSES: dict[str, Call] = {"open, use and close": Call(_open)}
"""calls that open their own bus"""


KEPT: list[Connection] = []
"""connections that a mutant leaked, for the test to close"""


async def _swallow(point: Point) -> bool:
    """Takes a cancellation for an answer."""
    try:
        await point.session.head()
    except asyncio.CancelledError:
        return True
    return True


async def _translate(point: Point) -> bool:
    """Turns a cancellation into another error."""
    try:
        await point.session.head()
    except asyncio.CancelledError:
        raise TimeoutError from None
    return True


async def _keep_link(point: Point) -> bool:
    """Closes its connection only on success."""
    link = await Endpoint(point.server.url).connect()
    KEPT.append(link)
    await point.session.head()
    await KEPT.pop().close()
    return True


async def _keep_task(point: Point) -> bool:
    """Ends the task that it started only on success."""
    task = asyncio.create_task(asyncio.Event().wait())
    await point.session.head()
    task.cancel()
    return True


async def _keep_following(point: Point) -> bool:
    """Leaves the hub only on success."""
    hub = point.bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]
    subscription = await hub.subscribe("s", SubscriptionOptions(Selection(frozenset())))
    await point.session.head()
    subscription.close()
    return True


async def _forget_key(point: Point) -> bool:
    """Repeats a publish without its key."""
    await point.session.publish(said(point.same_word()))
    return True


class _Mixed:
    """Answers in the order of the requests, even if a caller has stopped waiting for one."""

    def __init__(self) -> None:
        self._answers: list[asyncio.Task[SessionHead]] = []

    async def __call__(self, point: Point) -> bool:
        self._answers.append(asyncio.create_task(point.session.head()))
        head = await asyncio.shield(self._answers[0])
        del self._answers[0]
        return head.session == point.session.id


MUTANTS = {
    "swallows": Call(_swallow),
    "translates": Call(_translate),
    "leaves its link": Call(_keep_link),
    "leaves a task": Call(_keep_task),
    "goes on following": Call(_keep_following),
    "doubles": Call(_forget_key),
    "mixes answers up": Call(_Mixed()),
}
