"""Tasks and threads: run functions in the background of a block, and sync tools in threads."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TypeVar

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from lanebus.bus import first_error
from lanebus.bus.errors import Unavailable
from lanebus.bus.text import describe_error
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds


@asynccontextmanager
async def in_background(*functions: Callable[[], Coroutine[object, None, None]]) -> AsyncGenerator[None, None]:
    """Run functions during the block. The end of the block cancels the functions and waits until they have ended.

    An error of the block or of a function is raised as it is, never in an exception group. An error of a function
    cancels the others and the block. If the block fails too, the block's error is raised.
    """
    failure: BaseException | None = None
    # Not the scope of the task group, which would cancel the task of the block too. If that task is cancelled from
    # outside in the same step of the event loop, anyio 4.16 can take one cancellation for the other and drop both, so
    # the block would go on. It does so if a function has task groups of its own.
    scopes = [anyio.CancelScope() for _ in functions]

    async def run(function: Callable[[], Coroutine[object, None, None]], scope: anyio.CancelScope) -> None:
        with scope:
            await function()

    try:
        async with anyio.create_task_group() as tasks:
            for function, scope in zip(functions, scopes, strict=True):
                tasks.start_soon(run, function, scope, name=getattr(function, "__qualname__", None))
            try:
                yield
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # raised below,
                failure = error  # outside of the task group, which would wrap it in an exception group
            for scope in scopes:
                scope.cancel()
    except BaseExceptionGroup as group:
        failure = failure or first_error(group)
    if failure is not None:
        raise failure


# Run sync tools in threads: each session has a share, and a thread that no call waits for any more is counted.
#
# The threads are daemons and not anyio's own: a tool that hangs must keep neither the threads of other sessions and of
# the bus, nor a process that has ended otherwise.

T = TypeVar("T")


@dataclass(slots=True)
class _Share:
    """The threads of one session."""

    slots: anyio.Semaphore
    callers: int = 0
    """calls that wait for a thread or have one"""
    abandoned: int = 0
    """calls that were stopped and whose threads still run"""


class SyncCalls:
    """The sync tool calls of all sessions of one worker."""

    def __init__(self, bounds: RunBounds = DEFAULT_RUN_BOUNDS) -> None:
        """
        Args:
            bounds: `tool_threads`, `abandoned_threads` and `abandoned_in_all` apply.
        """
        self._bounds = bounds
        self._shares: dict[str, _Share] = {}

    @property
    def abandoned(self) -> int:
        """Number of threads that still run calls that were stopped."""
        return sum(share.abandoned for share in self._shares.values())

    async def run(self, session: str, name: str, function: Callable[[], T]) -> T:
        """Run a function in a thread, and return what it returns.

        If the caller is cancelled, the thread is abandoned: it runs on and its result is dropped.
        `anyio.from_thread.check_cancelled` in the function then raises.

        Args:
            session: id of the session that makes the call.
            name: name of the tool, for the name of the thread and for errors.
            function: the function.

        Raises:
            Unavailable: the function was not called. Too many threads of the session are abandoned, the system has no
                thread left, or the caller was cancelled while it waited for a thread.
            Exception: any error of the function; also SystemExit, which the caller must not let pass.
        """
        share = self._shares.setdefault(session, _Share(anyio.Semaphore(self._bounds.tool_threads)))
        share.callers += 1
        try:
            self._require_room(share, name)
            try:
                await share.slots.acquire()
            except asyncio.CancelledError:
                reason = f"it was stopped while it waited for one of the session's {self._bounds.tool_threads} threads"
                raise Unavailable(f"{name} was not run: {reason}") from None
            try:
                self._require_room(share, name)  # calls may have been abandoned meanwhile
                return await self._call(session, share, name, function)
            finally:
                share.slots.release()
        finally:
            share.callers -= 1
            self._forget(session, share)

    def _require_room(self, share: _Share, name: str) -> None:
        count, total = share.abandoned, self.abandoned
        if count >= self._bounds.abandoned_threads or (count and total >= self._bounds.abandoned_in_all):
            reason = f"{count} earlier calls of this session were stopped, and their threads still run"
            raise Unavailable(f"{name} was not run: {reason}")

    async def _call(self, session: str, share: _Share, name: str, function: Callable[[], T]) -> T:
        thread: Future[T] = Future()
        scope = anyio.CancelScope()  # never entered: it only tells the thread that its caller was cancelled
        context, token = copy_context(), current_token()

        def work() -> None:
            try:
                result = context.run(_as_anyio_thread, function, token, scope)
            except BaseException as error:  # noqa: BLE001  # the caller's error
                # A future takes no StopIteration, and others would look as if the caller were cancelled or interrupted.
                is_safe = isinstance(error, (Exception, SystemExit)) and not isinstance(error, StopIteration)
                thread.set_exception(error if is_safe else RuntimeError(describe_error(error)))
            else:
                thread.set_result(result)

        try:
            Thread(target=work, name=f"lanebus tool {name}", daemon=True).start()
        except RuntimeError as error:  # the system's limit
            raise Unavailable(f"{name} was not run: {error}") from None
        future = asyncio.wrap_future(thread)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            scope.cancel()
            if not future.done():
                share.abandoned += 1
                future.add_done_callback(partial(self._drop, session, share))
            raise

    def _drop(self, session: str, share: _Share, ended: "asyncio.Future[T]") -> None:
        """Note that an abandoned thread has ended."""
        if not ended.cancelled():
            ended.exception()  # retrieved, so that asyncio does not log it
        share.abandoned -= 1
        self._forget(session, share)

    def _forget(self, session: str, share: _Share) -> None:
        if not share.callers and not share.abandoned and self._shares.get(session) is share:
            del self._shares[session]


def _as_anyio_thread(function: Callable[[], T], token: EventLoopToken, scope: anyio.CancelScope) -> T:
    """Call a function so that `anyio.from_thread` and `anyio.run` work in it, as in a thread of anyio's own.

    anyio has no public way to claim a thread. Without its private one, functions have to pass `token` themselves.
    """
    try:
        from anyio._core._eventloop import (  # noqa: PLC0415
            claim_worker_thread,
            set_current_async_library,  # pyright: ignore[reportUnknownVariableType]  # its token has no type
            threadlocals,
        )
    except ImportError:
        return function()
    set_current_async_library(None)
    with claim_worker_thread(token.backend_class, token.native_token):
        threadlocals.current_cancel_scope = scope
        return function()
