"""A call that nobody wants any more is listened to a little longer, unseen: what it took is told at its end.

A provider that is hung up on in the middle of an answer tells nothing, and what was spoken by then is to be paid all
the same. So an abort lets the answer run on for a moment. A worker that has to stop leaves an estimate at once.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio

from handlers.agent.draft import Draft
from handlers.providers.answer import ModelEvent

__all__ = ("DRAIN_SECONDS", "DRAIN_TOKENS", "drain", "listen")

DRAIN_SECONDS = 2.0
"""how long an answer may run on"""

DRAIN_TOKENS = 1_000
"""how many tokens more it may speak, about: they cost money"""


async def drain(
    events: AsyncGenerator[ModelEvent, None],
    draft: Draft,
    *,
    seconds: float = DRAIN_SECONDS,
    tokens: int = DRAIN_TOKENS,
) -> bool:
    """Go on with a model's events until it has told what the call took, or one of the two limits is reached; then close
    them. Nothing that is said goes into the draft. Cancelled, it closes them at once.

    The events must be at rest: a generator whose next event somebody waited for and was cancelled is over, and has hung
    up on its provider. `listen` takes care of that.

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


async def listen(
    events: AsyncGenerator[ModelEvent, None],
    draft: Draft,
    hear: Callable[[ModelEvent], None],
    stop: anyio.Event,
    *,
    seconds: float = DRAIN_SECONDS,
    tokens: int = DRAIN_TOKENS,
) -> bool:
    """Take in a model's answer until its end, or until `stop` is set: then what follows is drained, see `drain`.

    Args:
        hear: told of each event that comes before `stop`, after the draft. It must not wait.

    Returns:
        Whether it was stopped before the answer was whole.

    Raises:
        Exception: what the model or `hear` raises, as it is.
    """
    fault: Exception | None = None

    async def pump() -> None:
        nonlocal fault
        try:
            await _pump(events, draft, hear, stop, tokens)
        except Exception as error:  # noqa: BLE001  # else it would come out in a group
            fault = error
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pump)
        await stop.wait()
        tasks.cancel_scope.deadline = anyio.current_time() + seconds
        await anyio.sleep_forever()
    if fault is not None:
        raise fault
    return draft.whole is None and stop.is_set()


async def _pump(
    events: AsyncGenerator[ModelEvent, None],
    draft: Draft,
    hear: Callable[[ModelEvent], None],
    stop: anyio.Event,
    tokens: int,
) -> None:
    limit: int | None = None
    async with aclosing(events):
        async for event in events:
            if not stop.is_set():
                draft.add(event)
                hear(event)
                continue
            if limit is None:
                limit = draft.spoken_tokens + tokens
            draft.overhear(event)
            if draft.spoken_tokens > limit:
                break
