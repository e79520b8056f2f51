"""Measure publishes by many callers at once, and one at a time. Only acknowledged messages are counted."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from bench.plain import Plain
from bench.rounds import Compared, Measure, compare
from lanebus import Bus, LlmMessage

__all__ = ("against_pipelines", "against_xadd", "many_sessions", "one_at_a_time")

CALLERS = 64
MANY = 6_400
ONE_BY_ONE = 1_000

Put = Callable[[LlmMessage], Awaitable[object]]
PutTo = Callable[[str], Put]

_fresh = count()


async def against_xadd(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> Compared:
    """Publish from all callers to one session. Baseline: one XADD for each message, to one stream."""
    ours, theirs = _together(_publish(bus), 1, messages), _together(_xadd(plain), 1, messages)
    return await compare(f"publish, {CALLERS} callers, to an XADD each", "1/s", "≥ 4", theirs, ours)


async def against_pipelines(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> Compared:
    """Publish from all callers to one session. Baseline: one caller that sends explicit pipelines."""
    many = messages[:MANY]

    async def pipelines() -> float:
        stream = f"bench:{next(_fresh)}"
        began = time.perf_counter()
        for start in range(0, len(many), CALLERS):
            await plain.pipeline(stream, many[start : start + CALLERS])
        return len(many) / (time.perf_counter() - began)

    what = f"publish, {CALLERS} callers, to pipelines of {CALLERS}"
    return await compare(what, "1/s", "≥ 1.5", pipelines, _together(_publish(bus), 1, messages))


async def many_sessions(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> Compared:
    """Publish from each caller to its own session. Baseline: XADDs from each caller to its own stream."""
    ours, theirs = _together(_publish(bus), CALLERS, messages), _together(_xadd(plain), CALLERS, messages)
    what = f"publish, {CALLERS} callers on {CALLERS} sessions, to an XADD each"
    return await compare(what, "1/s", "≥ 2.5", theirs, ours)


async def one_at_a_time(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> Compared:
    """Publish one message at a time. Baseline: one XADD at a time."""
    theirs, ours = _alone(_xadd(plain), messages), _alone(_publish(bus), messages)
    return await compare("publish, one at a time, to an XADD", "µs", "≤ 1.3", theirs, ours)


def _xadd(plain: Plain) -> PutTo:
    return lambda stream: lambda message: plain.xadd(stream, message)


def _publish(bus: Bus) -> PutTo:
    return lambda session: bus.session(session).publish


def _together(put_to: PutTo, places: int, messages: Sequence[LlmMessage]) -> Measure:
    async def measure() -> float:
        run = next(_fresh)
        waiting = iter(messages[:MANY])

        async def caller(number: int) -> None:
            put = put_to(f"bench-{run}-{number % places}")
            for message in waiting:
                await put(message)

        began = time.perf_counter()
        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
        return MANY / (time.perf_counter() - began)

    return measure


def _alone(put_to: PutTo, messages: Sequence[LlmMessage]) -> Measure:
    async def measure() -> float:
        put = put_to(f"bench-{next(_fresh)}")
        began = time.perf_counter()
        for message in messages[:ONE_BY_ONE]:
            await put(message)
        return (time.perf_counter() - began) / ONE_BY_ONE * 1e6

    return measure
