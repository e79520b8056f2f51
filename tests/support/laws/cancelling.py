"""Cancels a call at one of the places where it waits, and tells what came of it.

    trial = await cut(lambda: session.head(), at=3, moment=Moment.LATE)

A coroutine gives control back wherever it waits: each such place is a suspension, counted from 1. A test cuts a call at
the first, the second, and so on, until a trial is not `is_cut` any more because the call came to its end before.

`is_deep` counts the places where the tasks wait that the call starts, too; it is the call that is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import coroutine
from typing import Generic, Protocol, TypeVar

import anyio

__all__ = ("Moment", "Trial", "counted", "cut", "watched")

T = TypeVar("T")

_Coroutine = Coroutine[object, None, T] | Generator["asyncio.Future[object] | None", None, T]

PATIENCE = 120.0
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


@dataclass
class Counter:
    """Counts suspensions, and strikes at one of them."""

    at: int
    """its number, from 1; 0 never"""
    strike: Callable[[object], None]
    """is given what is waited for there"""
    count: int = 0

    def add(self, waited: object) -> None:
        self.count += 1
        if self.count == self.at:
            self.strike(waited)


class _Looking(Counter, Generic[T]):
    """Strikes never, and looks at each suspension."""

    def __init__(self, note: Callable[[T], None], look: Callable[[], T]) -> None:
        super().__init__(at=0, strike=lambda _: None)
        self._note, self._look = note, look

    def add(self, waited: object) -> None:
        super().add(waited)
        self._note(self._look())


async def cut(
    call: Callable[[], Coroutine[object, None, T]], *, at: int, moment: Moment, is_deep: bool = False
) -> Trial[T]:
    """Run a call in a task of its own and cancel it at its suspension number `at`; 0 never.

    Raises:
        TimeoutError: it did not come to its end.
    """
    trial = Trial[T](moment)
    run = _scoped if moment is Moment.LEVEL else _run
    task = asyncio.create_task(run(call, at, trial, _deep if is_deep else _steps))
    with anyio.fail_after(PATIENCE):
        await asyncio.wait({task})
    if task.cancelled():
        trial.is_cancelled = True
    elif trial.error is None:
        trial.error = task.exception()
    return trial


async def counted(call: Coroutine[object, None, T], *, at: int, strike: Callable[[], None]) -> T:
    """Run a call, and strike at suspension number `at` of it and of the tasks that it starts."""
    return await _deep(call, Counter(at, lambda _: strike()))


async def watched(call: Coroutine[object, None, object], look: Callable[[], T]) -> list[T]:
    """Run a call, and return what `look` gives at each suspension of it and of the tasks that it starts."""
    found: list[T] = []
    await _deep(call, _Looking(found.append, look))
    return found


class _Stepping(Protocol):
    def __call__(self, inner: Coroutine[object, None, T], counter: Counter, /) -> Awaitable[T]: ...


async def _run(call: Callable[[], Coroutine[object, None, T]], at: int, trial: Trial[T], stepping: _Stepping) -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        if not task.done():
            trial.is_cut = True
            task.cancel()

    def strike(waited: object) -> None:
        if trial.moment is Moment.EARLY:
            cancel()
        elif isinstance(waited, asyncio.Future):
            # The task asks to be woken only after this, so it is cancelled first, with its wake-up on the way.
            waited.add_done_callback(lambda _: cancel())  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]  # whatever it holds
        else:
            loop.call_soon(cancel)

    counter = Counter(at, strike)
    try:
        trial.results.append(await stepping(call(), counter))
    finally:
        trial.suspensions = counter.count


async def _scoped(
    call: Callable[[], Coroutine[object, None, T]], at: int, trial: Trial[T], stepping: _Stepping
) -> None:
    counter: Counter | None = None
    with anyio.CancelScope() as scope:

        def strike(_: object) -> None:
            trial.is_cut = True
            scope.cancel()

        counter = Counter(at, strike)
        try:
            trial.results.append(await stepping(call(), counter))
        finally:
            trial.suspensions = counter.count
    trial.is_cancelled = scope.cancelled_caught


async def _deep(inner: Coroutine[object, None, T], counter: Counter) -> T:
    with _counting_tasks(asyncio.get_running_loop()):
        token = _counter.set(counter)
        try:
            return await _steps(inner, counter)
        finally:
            _counter.reset(token)


_counter: ContextVar[Counter | None] = ContextVar("counter", default=None)
"""of the call that the present task is a part of"""


@contextmanager
def _counting_tasks(loop: asyncio.AbstractEventLoop) -> Generator[None, None, None]:
    """Tasks that are started in the block count for the call that starts them."""

    def make(
        loop: asyncio.AbstractEventLoop, coroutine: _Coroutine[T], *, context: Context | None = None
    ) -> asyncio.Task[T]:
        counter = _counter.get()
        if counter is None:
            return asyncio.Task(coroutine, loop=loop, context=context)
        task = asyncio.Task(_steps_of(coroutine, counter), loop=loop, context=context)
        # Cancelled before its first step, it would leave the coroutine behind.
        task.add_done_callback(lambda _: coroutine.close())
        return task

    before = loop.get_task_factory()
    loop.set_task_factory(make)
    try:
        yield
    finally:
        loop.set_task_factory(before)


async def _steps_of(inner: _Coroutine[T], counter: Counter) -> T:
    return await _steps(inner, counter)


@coroutine
def _steps(inner: _Coroutine[T], counter: Counter) -> Generator[object, None, T]:
    """Run a coroutine, from one suspension to the next; the event loop sees what it would see without this."""
    step: Callable[[], object] = partial(inner.send, None)
    while True:
        try:
            waited = step()
        except StopIteration as end:
            result: T = end.value
            return result
        counter.add(waited)
        try:
            yield waited
        except BaseException as error:  # noqa: BLE001  thrown into the call
            step = partial(inner.throw, error)
        else:
            step = partial(inner.send, None)
