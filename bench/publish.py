"""Publishing: many callers at once, and one at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from bench.plain import Plain
from bench.rounds import Compared, compare
from bus import Bus, LlmMessage

__all__ = ("publishing",)

CALLERS = 64
MANY = 12_800
ONE_BY_ONE = 1_500

_fresh = count()

Put = Callable[[LlmMessage], Awaitable[object]]


async def publishing(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> list[Compared]:
    """Messages acknowledged a second, and the time of one."""
    many, few = messages[:MANY], messages[:ONE_BY_ONE]

    def xadd(stream: str) -> Put:
        return lambda message: plain.xadd(stream, message)

    def publish(session: str) -> Put:
        return bus.session(session).publish

    async def pipelines() -> float:
        stream = f"bench:{next(_fresh)}"
        began = time.perf_counter()
        for start in range(0, len(many), CALLERS):
            await plain.pipeline(stream, many[start : start + CALLERS])
        return len(many) / (time.perf_counter() - began)

    def together(put_to: Callable[[str], Put], places: int) -> Callable[[], Awaitable[float]]:
        async def measure() -> float:
            run = next(_fresh)
            waiting = iter(many)

            async def caller(number: int) -> None:
                put = put_to(f"bench-{run}-{number % places}")
                for message in waiting:
                    await put(message)

            began = time.perf_counter()
            await asyncio.gather(*(caller(number) for number in range(CALLERS)))
            return len(many) / (time.perf_counter() - began)

        return measure

    def alone(put_to: Callable[[str], Put]) -> Callable[[], Awaitable[float]]:
        async def measure() -> float:
            put = put_to(f"bench-{next(_fresh)}")
            began = time.perf_counter()
            for message in few:
                await put(message)
            return (time.perf_counter() - began) / len(few) * 1e6

        return measure

    ours = together(publish, 1)
    return [
        await compare(f"publish, {CALLERS} callers, to an XADD each", "1/s", "≥ 4", together(xadd, 1), ours),
        await compare(f"publish, {CALLERS} callers, to pipelines of {CALLERS}", "1/s", "≥ 1.5", pipelines, ours),
        await compare(
            f"publish, {CALLERS} callers on {CALLERS} sessions, to an XADD each",
            "1/s",
            "≥ 2.5",
            together(xadd, CALLERS),
            together(publish, CALLERS),
        ),
        await compare("publish, one at a time, to an XADD", "µs", "≤ 1.3", alone(xadd), alone(publish)),
    ]
