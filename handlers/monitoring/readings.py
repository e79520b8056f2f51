"""Read the state of a bus's server for one scrape: groups, memory and settings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError, Refused
from lanebus.bus.groups.status import AgentWork, GroupStatus
from lanebus.bus.servers.primary_status import PrimaryStatus
from lanebus.handlers.monitoring.bounds import MonitorBounds
from lanebus.handlers.monitoring.open_work import OpenWork, OpenWorkReader

__all__ = ("Reading", "ServerReader")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The state of the server at one moment; empty if the server did not answer."""

    groups: tuple[GroupStatus, ...] = ()
    unfetched: tuple[AgentWork, ...] = ()
    """waiting sessions of agents that no worker has ever served"""
    sessions: Mapping[str, int] = field(default_factory=dict[str, int])
    """number of sessions by agent, for the `MonitorBounds.agents` agents with the most sessions"""
    workers: Mapping[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])
    """number of live workers by group, then by agent"""
    servers: tuple[PrimaryStatus, ...] = ()
    open_work: OpenWork = field(default_factory=OpenWork)
    """runs and questions to people"""
    is_answered: bool = False


class ServerReader:
    """Reads the state of the server, at most once in `MonitorBounds.cached_seconds`.

    Calls within this time share one reading.
    """

    def __init__(self, bus: Bus, groups: Sequence[str], bounds: MonitorBounds) -> None:
        """
        Args:
            bus: the bus.
            groups: the groups to read; empty means all, at most `MonitorBounds.groups`.
            bounds: periods and limits.
        """
        self._bus, self._groups, self._bounds = bus, tuple(groups), bounds
        self._open_work = OpenWorkReader(bus, bounds)
        self._one_at_a_time = anyio.Lock()
        self._last = Reading()
        self._read_at: float | None = None

    async def read(self) -> Reading:
        """Return the newest reading. If the server does not answer, the reading is empty. Never raises."""
        async with self._one_at_a_time:
            if self._read_at is None or anyio.current_time() - self._read_at >= self._bounds.cached_seconds:
                self._last = await self._read()
                self._read_at = anyio.current_time()
        return self._last

    async def _read(self) -> Reading:
        try:
            with anyio.fail_after(self._bounds.read_seconds):
                names = self._groups or (await self._bus.groups())[: self._bounds.groups]
                groups = [await self._bus.group_status(name) for name in names]
                sessions = Counter(await self._bus.log.agents()).most_common(self._bounds.agents)
                workers = {name: Counter(await self._bus.live_workers(name)) for name in names}
                return Reading(
                    groups=tuple(groups),
                    unfetched=await self._bus.unfetched_work(self._bounds.agents),
                    sessions=dict(sessions),
                    workers=workers,
                    servers=await self._bus.monitor.servers(),
                    open_work=await self._read_open_work(),
                    is_answered=True,
                )
        except (BusError, TimeoutError):
            return Reading()

    async def _read_open_work(self) -> OpenWork:
        """Return the open work; nothing for a user who may not read the logs. All else does not need this right."""
        try:
            return await self._open_work.read()
        except Refused:
            return OpenWork()
