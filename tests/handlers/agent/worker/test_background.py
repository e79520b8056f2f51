"""A function in the background of a block."""

import anyio
import pytest

from lanebus.handlers.agent import in_background
from tests.support.laws.cancelling import Moment, Trial, cut

__all__ = ()


async def nested() -> None:
    """Wait in two task groups, as a worker does: anyio counts the cancellations of both."""
    async with anyio.create_task_group(), anyio.create_task_group() as inner:
        inner.start_soon(anyio.sleep_forever)
        await anyio.sleep_forever()


@pytest.mark.parametrize("moment", Moment)
async def test_a_block_that_is_cancelled_at_any_await_is_left_by_the_cancellation(moment: Moment) -> None:
    began = anyio.Event()

    async def run() -> None:
        began.set()
        await nested()

    async def block() -> str:
        async with in_background(run):
            await began.wait()
            return "done"

    cuts = 0
    while True:
        trial: Trial[str] = await cut(block, at=cuts + 1, moment=moment)
        assert trial.is_honest, (cuts, trial)
        if not trial.is_cut:
            break
        cuts += 1
        began = anyio.Event()
    assert cuts >= 2
    assert trial.results == ["done"]
