"""Faults to plant in a worker process, which the tests that kill workers must find."""

from collections.abc import Callable, Sequence

import anyio

from lanebus.agent import FunctionTool
from lanebus.bus import Consumer, Work
from lanebus.bus.messages import Publishable
from lanebus.bus.publishing.outbox import PUBLISH
from lanebus.bus.wire import Receipt
from lanebus.handlers.agent import Run
from lanebus.handlers.agent.tools.parameters import Function
from lanebus.handlers.agent.worker.services import Heartbeat

__all__ = ("MUTANTS",)

_CHECK = "if plan.epoch and plan.epoch ~= tonumber(epoch) then return 'f' .. epoch end"


def _nothing() -> None:
    """Plant no fault."""


def _no_heed() -> None:
    """Let a worker not check its lease, also not by its own clock."""

    async def run(self: Heartbeat) -> None:
        await anyio.sleep_forever()

    Heartbeat.run = run  # type: ignore[method-assign]  # a fault


def _no_fence() -> None:
    """Let the server not check the epoch."""
    _no_heed()
    assert _CHECK in PUBLISH.text
    PUBLISH.text = PUBLISH.text.replace(_CHECK, "")


def _no_epoch_no_key() -> None:
    """Append without the lease's epoch and without the step's key."""
    _no_heed()

    async def publish(self: Run, *messages: Publishable, key: str | None = None) -> Receipt:
        return await self.session.publish(*messages, wake=False)

    async def publish_at(self: Run, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        return await self.session.publish(*build((await self.session.head()).position + 1), wake=False)

    Run.publish, Run.publish_at = publish, publish_at  # type: ignore[method-assign]  # a fault


def _acks_first() -> None:
    """Acknowledge work when it is fetched."""
    take = Consumer.fetch

    async def acked(self: Consumer, free: int) -> list[Work]:
        works = await take(self, free)
        await self.ack(*works)
        return works

    Consumer.fetch = acked  # type: ignore[method-assign]  # a fault


def _charges_again() -> None:
    """Let a tool that must not run twice claim that it may."""
    make = FunctionTool.__init__

    def made(self: FunctionTool, function: Function, **options: object) -> None:
        make(self, function, **{**options, "idempotent": True})  # type: ignore[arg-type]  # a fault

    FunctionTool.__init__ = made  # type: ignore[method-assign]  # a fault


MUTANTS: dict[str, Callable[[], None]] = {
    "": _nothing,
    "no heed": _no_heed,
    "no fence": _no_fence,
    "no epoch, no key": _no_epoch_no_key,
    "acks first": _acks_first,
    "charges again": _charges_again,
}
"""name → function that plants the fault"""
