"""Cancels a call at one of the places where it waits, and tells what came of it.

    trial = await cut(lambda: session.head(), at=3, moment=Moment.LATE)

A coroutine gives control back wherever it waits: each such place is a suspension, counted from 1. A test cuts a call at
the first, the second, and so on, until a trial is not `is_cut` any more because the call came to its end before.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import coroutine
from typing import Generic, TypeVar

import anyio

__all__ = ("Moment", "Trial", "cut")

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds after which a call that was cancelled counts as one that never ends."""


class Moment(StrEnum):
    """When in a suspension the cancellation comes, and whether it comes once."""

    EARLY = "early"
    """once, as the call begins to wait: what it waits for does not happen, or nobody looks at it"""
    LATE = "late"
    """once, when what it waits for has happened and the call has not gone on yet: its result is thrown away"""
    LEVEL = "level"
    """as a cancel scope of anyio does: at this suspension and at every one behind it"""


@dataclass
class Trial(Generic[T]):
    """What came of a call."""

    moment: Moment
    suspensions: int = 0
    is_cut: bool = False
    """the call was cancelled; else it came to its end before"""
    is_cancelled: bool = False
    """the call ended by it"""
    error: BaseException | None = None
    """the call ended by this instead"""
    results: list[T] = field(default_factory=list[T])
    """what the call gave, if it returned"""

    @property
    def is_honest(self) -> bool:
        """The call neither took a cancellation for something else, nor made something else of it.

        Where only what a scope of anyio shields was left to do, the call may return its result.
        """
        if self.moment is Moment.LEVEL and self.results:
            return self.error is None
        return self.error is None and self.is_cancelled == self.is_cut


async def cut(call: Callable[[], Coroutine[object, None, T]], *, at: int, moment: Moment) -> Trial[T]:
    """Run a call in a task of its own and cancel it at its suspension number `at`; 0 never.

    Raises:
        TimeoutError: it did not come to its end.
    """
    trial = Trial[T](moment)
    task = asyncio.create_task(_scoped(call, at, trial) if moment is Moment.LEVEL else _run(call, at, trial))
    with anyio.fail_after(PATIENCE):
        await asyncio.wait({task})
    if task.cancelled():
        trial.is_cancelled = True
    elif trial.error is None:
        trial.error = task.exception()
    return trial


async def _run(call: Callable[[], Coroutine[object, None, T]], at: int, trial: Trial[T]) -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        trial.is_cut = True
        task.cancel()

    def suspended(waited: object) -> None:
        if trial.moment is Moment.EARLY:
            cancel()
        elif isinstance(waited, asyncio.Future):
            # The task asks to be woken only after this, so it is cancelled first, with its wake-up on the way.
            waited.add_done_callback(lambda _: cancel())  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]  # whatever it holds
        else:
            loop.call_soon(cancel)

    trial.results.append(await _steps(call(), at, suspended, trial))


async def _scoped(call: Callable[[], Coroutine[object, None, T]], at: int, trial: Trial[T]) -> None:
    with anyio.CancelScope() as scope:

        def suspended(_: object) -> None:
            trial.is_cut = True
            scope.cancel()

        trial.results.append(await _steps(call(), at, suspended, trial))
    trial.is_cancelled = scope.cancelled_caught


@coroutine
def _steps(
    inner: Coroutine[object, None, T], at: int, suspended: Callable[[object], None], trial: Trial[T]
) -> Generator[object, None, T]:
    """Run a coroutine, from one suspension to the next; the event loop sees what it would see without this."""
    step: Callable[[], object] = partial(inner.send, None)
    while True:
        try:
            waited = step()
        except StopIteration as end:
            result: T = end.value
            return result
        trial.suspensions += 1
        if trial.suspensions == at:
            suspended(waited)
        try:
            yield waited
        except BaseException as error:  # noqa: BLE001  thrown into the call
            step = partial(inner.throw, error)
        else:
            step = partial(inner.send, None)
