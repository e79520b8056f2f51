"""Read the stream of one model call in a separate task, preview it, and cut it at a command or a deadline.

After a cut, the stream is still read for a short time, without a preview. Providers report the usage at the end of a
stream, and generated tokens cost money even if the stream is closed. A worker that is stopped does not read on: it
records an estimate at once.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import NamedTuple

import anyio

from lanebus.bus.error_text import describe_error, logged
from lanebus.bus.messages.assistant import StopReason
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS
from lanebus.handlers.agent.deadline import Deadline, Late
from lanebus.handlers.agent.decide.command_outcome import Interrupt
from lanebus.handlers.agent.interrupt import until_interrupted
from lanebus.handlers.agent.models.model import Model, ModelRequest
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.task_end import end_task
from lanebus.handlers.agent.tracing import CallRecord
from lanebus.handlers.agent.turn.partial_response import PartialResponse
from lanebus.handlers.agent.turn.preview import Preview
from lanebus.handlers.providers.common.answer import ModelEvent, Piece

__all__ = ("ModelStream", "StreamEnd", "model_stream", "stream_response")

_log = logging.getLogger(__name__)


class StreamEnd(NamedTuple):
    """How a model's stream ended."""

    interrupt: Interrupt | Late | None = None
    """the command or deadline that cut the stream; None if the model ended it"""
    fault: str | None = None
    """text of the error that the adapter raised"""


async def stream_response(
    run: Run,
    model: Model,
    request: ModelRequest,
    response: PartialResponse,
    *,
    drain_seconds: float,
    deadline: Deadline,
    preview: Preview | None = None,
) -> StreamEnd:
    """Read the model's response to its end, or until a command or the deadline cuts it.

    Errors of the adapter are returned as `StreamEnd.fault` and never raised.

    Args:
        run: the run whose session is watched for commands.
        response: collects the events.
        drain_seconds: longest time to keep reading a cut stream for its usage, which comes last.
        deadline: cuts the stream. Each event of the stream restarts the deadline's time-out for silence.
        preview: shows the pieces as they arrive; None shows nothing.
    """
    stream = partial(_stream, run, model, request, response, drain_seconds=drain_seconds, deadline=deadline)
    with run.tracing.calling(model, request) as record:
        if record is None:
            return await stream(preview=preview)
        try:
            end = await stream(preview=preview, record=record)
        except asyncio.CancelledError:
            record.ended(response.whole or response.cut("aborted", "the call was cancelled"))
            raise
        reason: StopReason = "error" if end.interrupt is None else "aborted"
        record.ended(response.whole or response.cut(reason, end.fault or ""))
        return end


async def _stream(
    run: Run,
    model: Model,
    request: ModelRequest,
    response: PartialResponse,
    *,
    drain_seconds: float,
    deadline: Deadline,
    preview: Preview | None,
    record: CallRecord | None = None,
) -> StreamEnd:
    fault: str | None = None

    def note_fault(error: Exception) -> None:
        nonlocal fault
        _log.debug("the model %s failed", model.name, exc_info=logged(error))  # the run logs one event for each failure
        fault = describe_error(error)

    def on_event(event: ModelEvent) -> None:
        deadline.restart_silence()
        if record is not None:
            record.began()
        if preview is not None and isinstance(event, Piece):
            preview.add(event)

    try:
        events = model.stream(request)
    except Exception as error:  # noqa: BLE001  # as below: `stream` may be a plain function
        note_fault(error)
        return StreamEnd(fault=fault)
    async with model_stream(events, response, on_event, clean_up_seconds=run.bounds.clean_up_seconds) as stream:

        async def read() -> None:
            try:
                await stream.wait()
            except Exception as error:  # noqa: BLE001  # any error of an adapter is recorded as a failed answer
                note_fault(error)

        interrupt = await until_interrupted(run, read, deadline)
        if interrupt is not None:
            await stream.drain(seconds=drain_seconds, tokens=run.bounds.drain_tokens)
    return StreamEnd(interrupt, fault)


class ModelStream:
    """A stream that a separate task reads, so cancelling a caller of `wait` does not stop the reading."""

    def __init__(
        self,
        events: AsyncGenerator[ModelEvent, None],
        response: PartialResponse,
        on_event: Callable[[ModelEvent], None],
    ) -> None:
        """See `model_stream`."""
        self._events, self._response, self._on_event = events, response, on_event
        self._is_over = anyio.Event()
        self._failure: Exception | None = None
        self._limit: int | None = None
        """total tokens up to which a muted stream is read; None while it is not muted"""
        self._is_abandoned = False
        """later events are ignored"""

    async def wait(self) -> None:
        """Wait until the stream has ended. The wait can be cancelled, and `wait` called again.

        Raises:
            Exception: the error that the model or `on_event` raised.
        """
        await self._is_over.wait()
        if self._failure is not None:
            raise self._failure

    def mute(self, tokens: int) -> None:
        """From the next event on, collect only the usage of the call.

        Args:
            tokens: maximum number of further tokens that the model may generate; after these, the stream is closed.
        """
        if self._limit is None:
            self._limit = self._response.output_tokens + tokens

    async def drain(self, *, seconds: float, tokens: int) -> bool:
        """Mute the stream and read it to its end, to learn the usage. Errors of the model are ignored.

        Args:
            seconds: longest time to wait for the end.
            tokens: see `mute`.

        Returns:
            Whether the model has ended its answer.
        """
        self.mute(tokens)
        with anyio.move_on_after(seconds):
            await self._is_over.wait()
        return self._response.is_ended

    def abandon(self) -> None:
        """Ignore all later events."""
        self._is_abandoned = True

    async def run(self) -> None:
        """Read the stream to its end."""
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    if self._is_abandoned:
                        break
                    if self._limit is None:
                        self._response.add(event)
                        self._on_event(event)
                        continue
                    self._response.add_usage(event)
                    if self._response.output_tokens > self._limit:
                        break
        except Exception as error:  # noqa: BLE001  # raised by `wait`
            self._failure = error
        finally:
            self._is_over.set()


@asynccontextmanager
async def model_stream(
    events: AsyncGenerator[ModelEvent, None],
    response: PartialResponse,
    on_event: Callable[[ModelEvent], None],
    *,
    clean_up_seconds: float = DEFAULT_RUN_BOUNDS.clean_up_seconds,
) -> AsyncGenerator[ModelStream, None]:
    """Read a model's events during the block, and close the model's stream at the end of the block.

    A model that ignores its cancellation is abandoned, and its later events are ignored.

    Args:
        response: collects every event.
        on_event: called with each event until the stream is muted, after `response` has collected it. It must not
            block.
        clean_up_seconds: longest wait for a cancelled model.
    """
    stream = ModelStream(events, response, on_event)
    # Not a task group: it would wait forever for a model that ignores its cancellation.
    task = asyncio.ensure_future(stream.run())
    try:
        yield stream
    finally:
        stream.abandon()
        await end_task(task, "the model", seconds=clean_up_seconds)
