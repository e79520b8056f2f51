"""Cancel a call at one of its suspensions, and report the outcome.

    trial = await cut(lambda: session.head(), at=3, moment=Moment.LATE)

A suspension is a place where a coroutine gives control back to the event loop. Suspensions are numbered from 1. A test
cuts a call at the first, the second, and so on, until a trial is not `is_cut` because the call ended before.

`is_deep` also counts the suspensions of the tasks that the call starts; the call itself is still what is cancelled.
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

T = TypeVar("T")

_Coroutine = Coroutine[object, None, T] | Generator["asyncio.Future[object] | None", None, T]

PATIENCE = 120.0
"""seconds after which a cancelled call counts as endless"""


class Moment(StrEnum):
    """When the cancellation arrives during a suspension, and whether it is repeated."""

    EARLY = "early"
    """once, as the call starts to wait: what it waits for does not happen, or its result is not used"""
    LATE = "late"
    """once, after the awaited event but before the call continues: its result is lost"""
    LEVEL = "level"
    """as an anyio cancel scope does: at this suspension and at every later one"""


@dataclass
class Trial(Generic[T]):
    """The outcome of a call."""

    moment: Moment
    suspensions: int = 0
    is_cut: bool = False
    """True if the call was cancelled, False if it ended before"""
    is_cancelled: bool = False
    """True if the call ended by the cancellation"""
    error: BaseException | None = None
    """another error that the call raised"""
    results: list[T] = field(default_factory=list[T])
    """the call's result, if it returned"""

    @property
    def is_honest(self) -> bool:
        """Whether the call neither swallowed the cancellation nor turned it into another error.

        If only shielded work was left, the call may return its result.
        """
        if self.moment is Moment.LEVEL and self.results:
            return self.error is None
        return self.error is None and self.is_cancelled == self.is_cut


@dataclass
class Counter:
    """Counts suspensions, and strikes at one of them."""

    at: int
    """number of the suspension to strike at, from 1; 0 means never"""
    strike: Callable[[object], None]
    """called with the awaited object of that suspension"""
    count: int = 0

    def add(self, waited: object) -> None:
        self.count += 1
        if self.count == self.at:
            self.strike(waited)


class _Looking(Counter, Generic[T]):
    """Looks at each suspension and never strikes."""

    def __init__(self, note: Callable[[T], None], look: Callable[[], T]) -> None:
        super().__init__(at=0, strike=lambda _: None)
        self._note, self._look = note, look

    def add(self, waited: object) -> None:
        super().add(waited)
        self._note(self._look())


async def cut(
    call: Callable[[], Coroutine[object, None, T]], *, at: int, moment: Moment, is_deep: bool = False
) -> Trial[T]:
    """Run a call in its own task and cancel it at suspension number `at`; 0 means never.

    Raises:
        TimeoutError: the call did not end.
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
    """Run a call, and strike at suspension number `at`, counting also the tasks that it starts."""
    return await _deep(call, Counter(at, lambda _: strike()))


async def watched(call: Coroutine[object, None, object], look: Callable[[], T]) -> list[T]:
    """Run a call, and return the result of `look` for each suspension of it and of the tasks that it starts."""
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
            # The task asks to be woken only after this, so it is cancelled first while its wake-up is on the way.
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
"""the counter of the call that the current task belongs to"""


@contextmanager
def _counting_tasks(loop: asyncio.AbstractEventLoop) -> Generator[None, None, None]:
    """Count the tasks started in the block towards the call that starts them."""

    def make(
        loop: asyncio.AbstractEventLoop, coroutine: _Coroutine[T], *, context: Context | None = None
    ) -> asyncio.Task[T]:
        counter = _counter.get()
        if counter is None:
            return asyncio.Task(coroutine, loop=loop, context=context)
        task = asyncio.Task(_steps_of(coroutine, counter), loop=loop, context=context)
        # a task cancelled before its first step would never close the coroutine
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
    """Run a coroutine from one suspension to the next; the event loop notices no difference."""
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
