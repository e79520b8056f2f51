"""A worker is killed during the calls of an answer: the next one runs calls that may run, and none twice."""

from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from lanebus import Bus
from lanebus.messages import Approve, ToolStarted, TurnId
from tests.support.agent.agents import short_folder, take_run
from tests.support.agent.logs import events_of
from tests.support.agent.tool_process import CASES, tool_of
from tests.support.agent.tool_runs import command, go_on, results
from tests.support.cli.starter import Starter

pytestmark = pytest.mark.full

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
KEY = f"{TURN}.0"


async def killed(starter: Starter, folder: Path, case: str) -> None:
    """Run the process up to the point of its case, and kill it there."""
    with starter.running("tests.support.agent.tool_process", str(folder), case) as process:
        assert process.stdout is not None
        assert await run_sync(process.stdout.readline) == "ready\n"


@pytest.mark.parametrize(
    ("case", "outside", "result", "attempts"),
    [
        ("asked for", [f"{KEY} 1"], "done", [None]),
        ("started", [f"{KEY} 1"], "Unknown outcome: a was started", [None]),
        ("idempotent", [f"{KEY} 1", f"{KEY} 2"], "done", [None, 2]),
        ("in a thread", [f"{KEY} 1", f"{KEY} 2"], "done", [None, 2]),
        ("waiting", [f"{KEY} 1"], "done", [None]),
    ],
)
async def test_a_call_of_a_killed_worker_is_continued_as_its_tool_allows(
    starter: Starter, case: str, outside: list[str], result: str, attempts: list[int | None]
) -> None:
    assert case in CASES
    async with short_folder() as folder, Bus.open(data_dir=folder / "d") as bus:
        await killed(starter, folder, case)
        run = await take_run(bus.session("s1"))
        subject = tool_of(case, folder / "outside", hangs=False)
        await go_on(run, subject)
        if case == "waiting":
            assert not (folder / "outside").exists()
            await command(run, Approve(turn_id=TURN, tool_call_id="c0"))
            await go_on(run, subject)
        assert (folder / "outside").read_text().splitlines() == outside
        ((_, text),) = await results(run.session)
        assert text.startswith(result)
        assert [e.attempt for e in await events_of(run.session, ToolStarted)] == attempts
