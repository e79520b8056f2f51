"""Faults that are planted in a worker process: what the tests that kill workers are there to find."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from bus.consumer import Consumer, Work
from bus.log import PUBLISH
from bus.messages.reading import Publishable
from bus.receipt import Receipt
from handlers.agent.run import Run

__all__ = ("MUTANTS",)

_CHECK = "if plan.epoch and plan.epoch ~= epoch then return 'f' .. epoch end"


def _nothing() -> None:
    """No fault."""


def _no_fence() -> None:
    """The server does not look at the epoch."""
    assert _CHECK in PUBLISH.text
    PUBLISH.text = PUBLISH.text.replace(_CHECK, "")


def _no_epoch_no_key() -> None:
    """What is appended carries neither the lease's epoch nor the name of its step."""

    async def publish(self: Run, *messages: Publishable, key: str | None = None) -> Receipt:
        return await self.session.publish(*messages, wake=False)

    async def publish_at(self: Run, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        return await self.session.publish(*build((await self.session.head()).position + 1), wake=False)

    Run.publish, Run.publish_at = publish, publish_at  # type: ignore[method-assign]  # a fault


def _acks_first() -> None:
    """A pointer is acknowledged as it is taken."""
    work = Consumer.work

    async def acked(self: Consumer) -> AsyncGenerator[Work, None]:
        async with aclosing(work(self)) as works:
            async for each in works:
                await self.ack(each)
                yield each

    Consumer.work = acked  # type: ignore[method-assign]  # a fault


MUTANTS: dict[str, Callable[[], None]] = {
    "": _nothing,
    "no fence": _no_fence,
    "no epoch, no key": _no_epoch_no_key,
    "acks first": _acks_first,
}
"""by their names"""
