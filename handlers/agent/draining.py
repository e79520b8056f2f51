"""A call that nobody wants any more is listened to a little longer, unseen: what it took is told at its end.

A provider that is hung up on in the middle of an answer tells nothing, and what was spoken by then is to be paid all
the same. So an abort lets the answer run on for a moment. A worker that has to stop leaves an estimate at once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

import anyio

from handlers.agent.bounds import DEFAULT_RUN_BOUNDS
from handlers.agent.draft import Draft
from handlers.agent.ended_task import end_task
from handlers.providers.answer import ModelEvent

__all__ = ("DRAIN_SECONDS", "Listening", "drain", "listening")

DRAIN_SECONDS = 2.0
"""how long an answer may run on"""


async def drain(
    events: AsyncGenerator[ModelEvent, None],
    draft: Draft,
    *,
    seconds: float = DRAIN_SECONDS,
    tokens: int = DEFAULT_RUN_BOUNDS.drain_tokens,
) -> bool:
    """Go on with a model's events until it has told what the call took, or one of the two limits is reached; then close
    them. Nothing that is said goes into the draft. Cancelled, it closes them at once.

    The events must be at rest: a generator whose next event somebody waited for and was cancelled is over, and has hung
    up on its provider. `listening` takes care of that.

    Args:
        draft: of the answer; `draft.cut` then has the usage, or an estimate.

    Returns:
        Whether the model came to its end.
    """
    limit = draft.spoken_tokens + tokens
    async with aclosing(events):
        with anyio.move_on_after(seconds):
            async for event in events:
                draft.overhear(event)
                if draft.spoken_tokens > limit:
                    break
    return draft.is_ended


class Listening:
    """A model that is listened to by a task of its own: whoever waits for it may be cancelled, and it speaks on."""

    def __init__(
        self, events: AsyncGenerator[ModelEvent, None], draft: Draft, hear: Callable[[ModelEvent], None]
    ) -> None:
        """See `listening`."""
        self._events, self._draft, self._hear = events, draft, hear
        self._is_over = anyio.Event()
        self._failure: Exception | None = None
        self._limit: int | None = None
        """tokens in all up to which it may run on unseen; None as long as it is wanted"""
        self._is_left = False
        """nobody listens any more"""

    async def wait(self) -> None:
        """Wait until the model has come to its end. May be cancelled, and be called again.

        Raises:
            Exception: what the model raised, or `hear` did.
        """
        await self._is_over.wait()
        if self._failure is not None:
            raise self._failure

    async def drain(self, *, seconds: float = DRAIN_SECONDS, tokens: int = DEFAULT_RUN_BOUNDS.drain_tokens) -> bool:
        """See `drain`. What the model says from now on nobody hears, and what it raises nobody is told."""
        self._limit = self._draft.spoken_tokens + tokens
        with anyio.move_on_after(seconds):
            await self._is_over.wait()
        return self._draft.is_ended

    def leave(self) -> None:
        """Take nothing in any more, whatever the model still says."""
        self._is_left = True

    async def run(self) -> None:
        """Listen, for as long as the model speaks."""
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    if self._is_left:
                        break
                    if self._limit is None:
                        self._draft.add(event)
                        self._hear(event)
                        continue
                    self._draft.overhear(event)
                    if self._draft.spoken_tokens > self._limit:
                        break
        except Exception as error:  # noqa: BLE001  # told to whoever waits
            self._failure = error
        finally:
            self._is_over.set()


@asynccontextmanager
async def listening(
    events: AsyncGenerator[ModelEvent, None],
    draft: Draft,
    hear: Callable[[ModelEvent], None],
    *,
    clean_up_seconds: float = DEFAULT_RUN_BOUNDS.clean_up,
) -> AsyncGenerator[Listening, None]:
    """Listen to a model for the length of the block, at whose end its events are closed.

    So what waits for the answer can be cancelled by a command, and the answer be drained after that:

        async with listening(model.stream(request), draft, show) as speech:
            if await until_interrupted(run, speech.wait):
                await speech.drain()

    A model that ignores its cancellation is left behind: nothing that it says then is taken in.

    Args:
        draft: takes every event in.
        hear: told of each event that is wanted, after the draft. It must not wait.
        clean_up_seconds: how long a model that is cancelled is waited for.
    """
    speech = Listening(events, draft, hear)
    # A task of its own, in no scope: a scope would wait for ever for a model that ignores its cancellation.
    task = asyncio.ensure_future(speech.run())
    try:
        yield speech
    finally:
        speech.leave()
        await end_task(task, "the model", seconds=clean_up_seconds)
