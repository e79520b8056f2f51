"""Subscribers, followers and workers that record what they get."""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from threading import Thread

import anyio
from anyio.abc import TaskGroup

from lanebus import ALL_LANES, START, Cursor, Delta, Envelope, ExtensionMessage, Lane, Notice, Session, Unavailable
from lanebus.bus import Consumer
from lanebus.bus.errors import BusError
from tests.support.log.groups import works
from tests.support.log.said import word


def stalled(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` in a thread with its own event loop, while this event loop stands still."""
    thread = Thread(target=anyio.run, args=(work,))
    thread.start()
    thread.join()


class Subscriber:
    """Takes every item. `story` is a short form: the words of envelopes, and the kinds of notices in brackets."""

    def __init__(
        self,
        session: Session,
        *,
        lanes: Collection[Lane] = ALL_LANES,
        kinds: Collection[str] | None = None,
        after: Cursor = START,
    ) -> None:
        self._items = session.subscribe(lanes=lanes, kinds=kinds, after=after)
        self.items: list[Envelope | Notice] = []
        self.error: BusError | None = None

    async def run(self) -> None:
        try:
            async for item in self._items:
                self.items.append(item)
        except BusError as error:
            self.error = error

    def start(self, tasks: TaskGroup) -> "Subscriber":
        tasks.start_soon(self.run)
        return self

    @property
    def story(self) -> list[str]:
        return [f"[{item.kind}]" if isinstance(item, Notice) else _word(item) for item in self.items]

    @property
    def envelopes(self) -> list[Envelope]:
        return [item for item in self.items if isinstance(item, Envelope)]

    @property
    def cursor(self) -> Cursor:
        """The cursor of the last item that it received."""
        return self.items[-1].cursor

    def has(self, *story: str) -> Callable[[], bool]:
        return lambda: self.story == [*story] or self.error is not None

    def has_taken(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.envelopes) >= count or self.error is not None

    def has_failed(self) -> bool:
        return self.error is not None

    def has_been_told(self, kind: str, times: int = 1) -> Callable[[], bool]:
        return lambda: self.story.count(f"[{kind}]") >= times or self.error is not None


def _word(envelope: Envelope) -> str:
    match envelope.message:
        case ExtensionMessage(kind="session.closed" | "session.reopened" as kind):
            return kind
        case _:
            return word(envelope)


class Follower:
    """Follows a session in a task of a group. `seen` has its envelopes, `error` the error that ended it."""

    def __init__(
        self, session: Session, *, after: Cursor = START, live: bool = False, lanes: frozenset[Lane] = ALL_LANES
    ):
        self.session, self.after, self.live, self.lanes = session, after, live, lanes
        self.seen: list[Envelope] = []
        self.error: Exception | None = None

    async def run(self) -> None:
        try:
            async for envelope in self.session.follow(after=self.after, live=self.live, lanes=self.lanes):
                self.seen.append(envelope)
        except Exception as error:  # noqa: BLE001  the outcome is what is looked at
            self.error = error

    def start(self, tasks: TaskGroup) -> "Follower":
        tasks.start_soon(self.run)
        return self

    @property
    def words(self) -> list[str]:
        return [e.message.delta if isinstance(e.message, Delta) else word(e) for e in self.seen]

    def has(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.seen) >= count or self.error is not None

    @property
    def positions(self) -> list[int]:
        return [envelope.position for envelope in self.seen]


def piece(text: str) -> Delta:
    return Delta(kind="text", message_id="m", delta=text)


def serve(consumer: Consumer, tasks: TaskGroup) -> list[str]:
    """Acknowledge all work of a consumer in a task. Return the list of its sessions, which grows."""
    heard: list[str] = []

    async def run() -> None:
        async for work in works(consumer):
            heard.append(work.session)
            with suppress(Unavailable):  # it comes again
                await consumer.ack(work)

    tasks.start_soon(run)
    return heard
