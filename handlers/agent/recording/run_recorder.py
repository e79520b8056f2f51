"""Record a loop within a worker: under the lease of the worker's run."""

from types import TracebackType
from typing import Self

import anyio

from lanebus.handlers.agent.limits import LoopLimits
from lanebus.handlers.agent.recording.recorded_loop import RecordedLoop
from lanebus.handlers.agent.recording.recorder import Recorder
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.turn.recover_partial import record_lost

__all__ = ("RunRecorder",)


class RunRecorder(Recorder):
    """A recorder for an agent that a worker calls. The worker has the session's lease, renews it and ends the run."""

    def __init__(self, run: Run, *, agent: str, config: str, limits: LoopLimits) -> None:
        """
        Args:
            run: the worker's run.
            agent: the agent's name in events.
            config: middle part of the loops' ids.
            limits: limits of one loop.

        Raises:
            InvalidArgument: an argument has a wrong type.
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        super().__init__(run.session, agent=agent, config=config, limits=limits, bounds=run.bounds)
        self.run = run
        """the worker's run"""

    async def __aenter__(self) -> Self:
        """Record the partial answers of lost processes. Raises the errors of `Run.publish`."""
        await record_lost(self.run)
        self._loop, self._next = RecordedLoop(self.run, _RunLease(self.run), self._settings), None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave an open loop open."""
        self._loop = None

    async def _check_agent(self) -> None:
        """Do nothing: the worker serves the session's agent."""


class _RunLease:
    """The lease of a run. The worker cancels the run when the lease is lost."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def is_lost(self) -> bool:
        """Whether an append was refused because the lease was lost."""
        return self._run.is_lease_lost

    async def wait_lost(self) -> None:
        """Wait to be cancelled."""
        await anyio.sleep_forever()
