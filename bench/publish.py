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


async def publishing(bus: Bus, plain: Plain, messages: Sequence[LlmMessage]) -> list[Compared]:
    """Messages acknowledged a second, and the time of one."""
    many, few = messages[:MANY], messages[:ONE_BY_ONE]

    async def publish(session: str, message: LlmMessage) -> None:
        await bus.session(session).publish(message, wake=False)

    async def pipelines() -> float:
        stream = f"bench:{next(_fresh)}"
        began = time.perf_counter()
        for start in range(0, len(many), CALLERS):
            await plain.pipeline(stream, many[start : start + CALLERS])
        return len(many) / (time.perf_counter() - began)

    def together(put: Callable[[str, LlmMessage], Awaitable[None]], places: int) -> Callable[[], Awaitable[float]]:
        async def measure() -> float:
            run = next(_fresh)
            waiting = iter(many)

            async def caller(number: int) -> None:
                for message in waiting:
                    await put(f"bench-{run}-{number % places}", message)

            began = time.perf_counter()
            await asyncio.gather(*(caller(number) for number in range(CALLERS)))
            return len(many) / (time.perf_counter() - began)

        return measure

    def alone(put: Callable[[str, LlmMessage], Awaitable[None]]) -> Callable[[], Awaitable[float]]:
        async def measure() -> float:
            place = f"bench-{next(_fresh)}"
            began = time.perf_counter()
            for message in few:
                await put(place, message)
            return (time.perf_counter() - began) / len(few) * 1e6

        return measure

    ours = together(publish, 1)
    return [
        await compare(f"publish, {CALLERS} callers, to an XADD each", "1/s", "≥ 4", together(plain.xadd, 1), ours),
        await compare(f"publish, {CALLERS} callers, to pipelines of {CALLERS}", "1/s", "≥ 1.5", pipelines, ours),
        await compare(
            f"publish, {CALLERS} callers on {CALLERS} sessions, to an XADD each",
            "1/s",
            "≥ 2.5",
            together(plain.xadd, CALLERS),
            together(publish, CALLERS),
        ),
        await compare("publish, one at a time, to an XADD", "µs", "≤ 1.3", alone(plain.xadd), alone(publish)),
    ]
