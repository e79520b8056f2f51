"""Fetch sessions that have work, finish them, or give them back.

A session has work if its newest waking entry comes after the position that the group has handled. Wake-ups only
shorten the wait. A worker reads the session's log to decide what to do. It is harmless if the log has nothing to do.
Consumer groups are for workers; a UI follows sessions instead.

    async with bus.consumer("agents", "worker-1", heartbeat=15) as consumer:
        works = await consumer.fetch(free)      at most as many as the worker has room for
        await consumer.heartbeat()              every third of `heartbeat`
        await consumer.ack(*works)              finished
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Self

import anyio

from lanebus.bus.errors import (
    InvalidArgument,
    Refused,
    SetupError,
    require_choice,
    require_count,
    require_instance,
    require_text,
)
from lanebus.bus.groups.fetcher import Fetcher
from lanebus.bus.groups.group_log import GroupLog, InFlight, Start, Work
from lanebus.bus.hooks import NO_REDACTION, NO_TRACING, Redaction

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from types import TracebackType

    from lanebus.bus.errors import Unavailable
    from lanebus.bus.hooks import Settlement, Tracing
    from lanebus.bus.log.log import FirstPage, WorkBounds
    from lanebus.bus.servers.connection import Pool
    from lanebus.bus.servers.topology import Topology
    from lanebus.bus.wire.keys import Keys


HEARTBEAT_SECONDS = 15.0
"""The default heartbeat timeout of a consumer."""


_HEARTBEAT = "pass seconds, as a number above 0"


class Consumer:
    """One worker in a consumer group. `Bus.consumer` creates a consumer.

    `fetch` delivers this consumer's own unfinished work first, then the work of silent consumers, delayed work that is
    due, and new work. Only one task at a time may call `fetch`; any task may call the other methods.

    A fetched session belongs to this consumer until `ack`, `nack` or `dead_letter`. If this consumer sends no heartbeat
    for `heartbeat` seconds, another consumer claims the session. If further entries wake the session in the meantime,
    it is delivered again afterwards, unless `ack` reports these entries as seen.
    """

    def __init__(
        self,
        topology: Topology,
        pool: Pool,
        keys: Keys,
        *,
        group: str,
        name: str,
        agents: Sequence[str],
        heartbeat: float,
        bounds: WorkBounds,
        start: Start = "beginning",
        owner: str = "",
        first_page: Callable[[str], FirstPage | None] | None = None,
        tracing: Tracing = NO_TRACING,
        redaction: Redaction = NO_REDACTION,
    ) -> None:
        """See `Bus.consumer`."""
        require_instance("heartbeat", heartbeat, (int, float), _HEARTBEAT)
        if isinstance(heartbeat, bool):
            raise InvalidArgument("heartbeat", heartbeat, _HEARTBEAT)
        require_text("owner", owner)
        require_choice("start", start, ("beginning", "now"))
        if not isfinite(heartbeat) or heartbeat <= 0:
            raise SetupError(f"consumer: heartbeat is {heartbeat}", "use more than 0 seconds")
        if not agents:
            raise SetupError("consumer: agents is empty", "pass the name of at least one agent to fetch work for")
        self.group, self.name, self.heartbeat_seconds = group, name, heartbeat
        self.agents = tuple(dict.fromkeys(agents))
        """the agents whose sessions are fetched"""
        self._log = GroupLog(
            *(pool, keys, group, name),
            agents=self.agents,
            heartbeat=heartbeat,
            bounds=bounds,
            start=start,
            owner=owner,
            first_page=first_page,
            redaction=redaction,
        )
        self._in_flight, self._tracing = InFlight(), tracing
        self._fetcher = Fetcher(topology, keys, self._log, self._in_flight, name=name, heartbeat=heartbeat)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def fetch(self, free: int) -> list[Work]:
        """Wait until sessions have work, and fetch the work items. Keep trying while the server is unreachable.

        Nothing is fetched ahead, so this consumer holds only work items that `fetch` returned. If a call is cancelled,
        the server may already have assigned work items to this consumer; the next call returns these work items first.

        Args:
            free: maximum number of work items to return; 1 or more.

        Returns:
            1 to `free` work items, each of a different session. This consumer may still hold an earlier work item of
            the same session. The server has already ended the earlier work item: another consumer claimed it, or a call
            such as `ack` finished it and is about to return.

        Raises:
            SetupError: `free` is less than 1.
            Closed: the bus is closed.
        """
        require_instance("free", free, int, "pass an integer of 1 or more")
        if free < 1:
            raise SetupError(f"fetch: free is {free}", "use 1 or more")
        began_ns = time.time_ns()
        while not (works := await self._fetcher.poll(free)):
            began_ns = time.time_ns()
        self._tracing.received(self.group, self.name, [work.session for work in works], began_ns)
        return works

    async def ack(
        self,
        *works: Work,
        seen: Mapping[str, int] | None = None,
        traces: Mapping[str, str] | None = None,
        is_repeated: bool = False,
    ) -> None:
        """Finish work items. The group gets the session again only after a later entry wakes the workers.

        Args:
            works: work items from `fetch`. A work item that another consumer has claimed is ignored.
            seen: session id → the last position that the caller read. Pass it if the caller read past `Work.position`.
                Only an entry after this position makes the session available again.
            traces: session id → the trace context of the work, from the context manager that `Tracing.processing`
                returned.
            is_repeated: True promises that the caller will call `ack` again if the server refuses. So `fetch` does not
                return the work items if the server refuses other sessions too (`Refused.is_of_server`).

        Raises:
            Refused: the server refused. The work items may be delivered again, unless `is_repeated` prevents this.
            Unavailable: the server did not answer. The work items may be delivered again.
        """
        if works:
            with self._releasing("ack", works, traces, is_repeated=is_repeated):
                await self._log.ack(works, seen or {})

    async def heartbeat(self, *works: Work) -> list[Work]:
        """Report that this consumer is alive, and return the work items that it has lost.

        For another `heartbeat` seconds no other consumer claims this consumer's work items. Call this method at least
        three times in this period. `fetch` also sends heartbeats while it waits.

        Args:
            works: work items to check. By default, all work items that were fetched and not finished.

        Returns:
            The lost work items: this consumer was silent for too long, and another consumer claimed them.

        Raises:
            Unavailable: the server did not answer.
        """
        checked = works or tuple(self._in_flight.works())
        lost = await self._log.lost(checked) if checked else []
        self._in_flight.drop(lost)
        await self._fetcher.beat()
        return lost

    @property
    def is_answered(self) -> bool:
        """Whether the server answered the latest heartbeat, not counting one in flight. True if none was sent yet."""
        return self._fetcher.is_answered

    @property
    def fetch_fault(self) -> Unavailable | None:
        """The error of the last request of `fetch`; None if the server answered the request, or if no request was
        sent."""
        return self._fetcher.fetch_fault

    async def nack(
        self,
        *works: Work,
        delay: float | None = None,
        error: str = "",
        attempts: int | None = None,
        traces: Mapping[str, str] | None = None,
    ) -> None:
        """Give work items back to the group. A session that is woken before the delay is over is delivered at once.

        Args:
            works: work items from `fetch`. A work item that another consumer has claimed is ignored.
            delay: seconds until a consumer of the group gets the work items. None delivers the work items at once, as
                if they had not been fetched: the attempt is not counted, and `Work.error` does not change.
            error: what went wrong. The next delivery has it in `Work.error`, cut to `WorkBounds.error_length`
                characters. Used only with a delay.
            attempts: number of attempts so far; None means `Work.attempt`. Used only with a delay.
            traces: as for `ack`.

        Raises:
            SetupError: `delay` is negative or not finite.
            Unavailable: the server did not answer. The work items are delivered again after `heartbeat` seconds of
                silence, or when a consumer with this name starts again.
        """
        require_text("error", error)
        require_count("attempts", attempts, is_optional=True)
        if delay is None:
            for work in works:
                await self._retry((work,), 0.0, work.error, work.attempt - 1, traces)
            return
        require_instance("delay", delay, (int, float), "pass seconds, as a number of 0 or more")
        if not isfinite(delay) or delay < 0:
            raise SetupError(f"nack: delay is {delay}", "use 0 seconds or more")
        await self._retry(works, delay, error, attempts, traces)

    async def _retry(
        self,
        works: Sequence[Work],
        delay: float,
        error: str,
        attempts: int | None,
        traces: Mapping[str, str] | None,
    ) -> None:
        tried = [(work, work.attempt if attempts is None else attempts) for work in works]
        if tried:
            with self._releasing("nack", works, traces):
                await self._log.nack(tried, delay, error)
        self._fetcher.sweep_by(anyio.current_time() + delay, {work.place for work in works})

    async def dead_letter(
        self,
        work: Work,
        *,
        reason: str,
        attempts: int | None = None,
        raw: bytes = b"",
        seen: int = 0,
        traces: Mapping[str, str] | None = None,
    ) -> str:
        """Turn a work item into a dead letter. The work item is not delivered again unless the letter is redriven.

        Args:
            work: a work item from `fetch`.
            reason: why the work item is given up, in words for people; cut to `WorkBounds.reason_length` characters.
            attempts: number of attempts so far; None means `Work.attempt`.
            raw: the data that caused the failure, such as an entry; cut to `WorkBounds.raw_bytes` bytes.
            seen: the last position read in the session, if it is above `Work.position`.
            traces: as for `ack`.

        Returns:
            The id of the letter for `Bus.dead_letters`. "" if another consumer has claimed the work item, or if the
            session was erased.

        Raises:
            Unavailable: as for `nack`.
        """
        require_text("reason", reason)
        require_count("attempts", attempts, is_optional=True)
        require_instance("raw", raw, bytes, "pass bytes")
        require_count("seen", seen)
        with self._releasing("dead_letter", (work,), traces):
            return await self._log.dead_letter(work, reason, work.attempt if attempts is None else attempts, raw, seen)

    async def deregister(self) -> int:
        """Close this consumer, give back all work items that are assigned to its name, and forget the name.

        Call `deregister` if the name will not be used again. A worker that will restart under the same name only needs
        `close`; it continues its own work after the restart.

        Returns:
            The number of work items that were given back.

        Raises:
            Unavailable: the server did not answer. Other consumers claim the work items after `heartbeat` seconds.
        """
        await self.close()
        self._in_flight.drop(self._in_flight.works())
        return await self._log.deregister()

    async def close(self) -> None:
        """Close the connections. Unfinished work items stay assigned to this consumer's name."""
        await self._fetcher.close()

    @contextmanager
    def _releasing(
        self,
        settlement: Settlement,
        works: Sequence[Work],
        traces: Mapping[str, str] | None,
        *,
        is_repeated: bool = False,
    ) -> Generator[None, None, None]:
        """Hold work items until the block ends, so that a concurrent sweep does not fetch the same work items again.

        If the block raises, its outcome is unknown. The next fetch then asks the server which work items this consumer
        has. If the server refused and the caller repeats the block, the work items are held on.
        """
        sessions, is_held = [work.session for work in works], False
        try:
            with self._tracing.settling(settlement, self.group, sessions, traces or {}):
                yield
        except BaseException as error:
            is_held = is_repeated and isinstance(error, Refused) and error.is_of_server
            if not is_held:
                self._fetcher.recover()
            raise
        finally:
            if not is_held:
                self._in_flight.drop(works)
