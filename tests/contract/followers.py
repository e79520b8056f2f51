"""Followers and workers that record what they get."""

from collections.abc import Callable
from contextlib import suppress

from anyio.abc import TaskGroup

from lanebus import ALL_LANES, START, Cursor, Delta, Envelope, Lane, Session, Unavailable
from lanebus.groups import Consumer
from tests.support.log.groups import works
from tests.support.log.said import word


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
