"""The lease of a worker's run, for a recorder within the worker's agent."""

from types import TracebackType
from typing import Self

import anyio

from lanebus.bus.log.lease import Lease
from lanebus.handlers.agent.run import Run

__all__ = ("RunLease",)


class RunLease:
    """The right to run a session, which a worker holds and renews. Pass it to a `Recorder` as the argument `lease`.

    The recorder then writes as the run does. The block neither acquires nor releases the lease. Once it is lost, the
    worker cancels the agent.
    """

    def __init__(self, run: Run) -> None:
        """
        Args:
            run: the argument of the worker's agent.
        """
        self.run = run

    @property
    def lease(self) -> Lease:
        """The lease."""
        return self.run.lease

    @property
    def is_held(self) -> bool:
        """Whether the run has not noticed a loss of the lease."""
        return not self.run.is_lease_lost

    @property
    def is_lost(self) -> bool:
        """Whether an append was refused because the lease was lost."""
        return self.run.is_lease_lost

    async def wait_lost(self) -> None:
        """Wait until the caller is cancelled, as the worker cancels the agent when the lease is lost."""
        await anyio.sleep_forever()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
