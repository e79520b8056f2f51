"""A server that comes back without its log, or with an older one: the log, `/readyz` and the metrics of a worker and of
the page tell it, and so do `verify` and `doctor`, until a person accepts it."""

import signal
from pathlib import Path

import anyio
import pytest

from lanebus import ExtensionMessage, UserMessage
from lanebus.agent import Run, Worker
from tests.support.agent.agents import Pause
from tests.support.cli.command_line import Answer, CommandLine, objects
from tests.support.cli.monitored import looks, monitored_command
from tests.support.log.groups import pending
from tests.support.servers.real import RealServer, blocked, copied, empty, eventually

pytestmark = pytest.mark.full

EMPTIED, OLDER = 'lanebus_log_lost_total{kind="emptied"}', 'lanebus_log_lost_total{kind="rolled_back"}'
ACCEPT = "`lanebus namespace accept --namespace lanebus`"


def worker(server: RealServer) -> tuple[str, ...]:
    return ("worker", "lanebus.handlers.agent.demo:agent", "--url", server.url, "--name", "w1", "--heartbeat", "2")


def page(server: RealServer) -> tuple[str, ...]:
    return ("serve", "--url", server.url, "--port", "0")


async def run(lanebus: CommandLine, server: RealServer, *words: str) -> Answer:
    """Run a command on a server while the event loop goes on."""
    return await anyio.to_thread.run_sync(lambda: lanebus(*words, "--url", server.url))


async def has_looked(server: RealServer, more_than: int = 0) -> None:
    """Wait until the log was looked at more often than this."""

    await eventually(lambda: looks(server) > more_than)


async def test_a_worker_serves_no_emptied_log_before_it_is_accepted_and_all_say_so(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with monitored_command(lanebus, *worker(valkey)) as run_worker:
        await run_worker.wait_reason(None)
        await has_looked(valkey)
        samples = await run_worker.metrics()
        assert (samples[EMPTIED], samples[OLDER]) == (0, 0)
        assert (await run(lanebus, valkey, "verify", "--all")).code == 0

        empty(valkey)
        told = await run_worker.event("log.emptied", level="error", worker="w1", namespace="lanebus")
        assert ACCEPT in str(told["remedy"])
        await run_worker.wait_reason("the log of namespace 'lanebus' was emptied")
        samples = await run_worker.metrics()
        assert (samples[EMPTIED], samples[OLDER], samples["lanebus_ready"]) == (1, 0, 0)

        answer = await run(lanebus, valkey, "verify", "--all")
        assert answer.code == 7
        assert (answer.out.count('"kind":"emptied"'), ACCEPT in answer.out) == (1, True)
        answer = await run(lanebus, valkey, "doctor")
        assert answer.code == 7
        [finding] = [line for line in objects(answer.out) if line["check"] == "log"]
        assert (finding["level"], ACCEPT in str(finding["remedy"])) == ("error", True)

        async with valkey.bus() as bus:
            await bus.session("s").publish(UserMessage.text("1 + 1?"))
        assert not run_worker.events("loop.begun")
        answer = await run(lanebus, valkey, "namespace", "accept", "--yes")
        assert (answer.code, answer.object) == (0, {"namespace": "lanebus", "accepted": ["emptied"]})
        await run_worker.event("log.accepted", worker="w1")
        await run_worker.event("loop.ended", session="s")
        await run_worker.wait_reason(None)
        assert (await run(lanebus, valkey, "verify", "--all")).code == 0
        assert (await run(lanebus, valkey, "doctor")).code == 0
        assert len(run_worker.events("log.emptied")) == 1
        assert await run_worker.end(signal.SIGTERM) == 0


async def test_a_worker_tells_of_an_older_copy_and_serves_it(valkey: RealServer, lanebus: CommandLine) -> None:
    async with monitored_command(lanebus, *worker(valkey)) as run_worker:
        await has_looked(valkey)
        with copied(valkey) as restore:
            await has_looked(valkey, looks(valkey))
            restore()
        told = await run_worker.event("log.rolled_back", level="error", worker="w1", namespace="lanebus")
        assert str(told["found"]) <= str(told["seen"])
        assert ACCEPT in str(told["remedy"])
        async with valkey.bus() as bus:
            await bus.session("s").publish(UserMessage.text("1 + 1?"))
        await run_worker.event("loop.ended", session="s")
        assert (await run_worker.metrics())[OLDER] == 1
        await run_worker.wait_reason(None)
        answer = await run(lanebus, valkey, "verify", "--all")
        assert (answer.code, '"kind":"rolled_back"' in answer.out) == (7, True)
        assert (await run(lanebus, valkey, "namespace", "accept", "--yes")).code == 0
        assert (await run(lanebus, valkey, "verify", "--all")).code == 0


async def test_a_worker_that_starts_after_the_loss_knows_the_log_of_the_one_before(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with monitored_command(lanebus, *worker(valkey)) as first:
        await has_looked(valkey)
        assert await first.end(signal.SIGTERM) == 0
    empty(valkey)
    assert (await run(lanebus, valkey, "verify", "--all")).code == 7
    assert (await run(lanebus, valkey, "doctor")).code == 7
    async with monitored_command(lanebus, *worker(valkey)) as second:
        await second.event("log.emptied", level="error", worker="w1")
        await second.wait_reason(ACCEPT)
        assert (await second.metrics())[EMPTIED] == 1
        assert (await run(lanebus, valkey, "namespace", "accept", "--yes")).code == 0
        await second.event("log.accepted")
        await second.wait_reason(None)


async def test_a_session_that_runs_while_the_log_is_emptied_waits_and_is_not_given_up(valkey: RealServer) -> None:
    pause = Pause()

    async def agent(run: Run) -> None:
        await pause.wait()
        await run.publish(ExtensionMessage.of("done"))

    async with valkey.bus() as bus:
        await bus.session("s").publish(UserMessage.text("hi"))
        async with Worker(bus, agent, heartbeat=60.0) as running:
            await pause.reached.wait()
            valkey.do("FLUSHALL")
            running.log_watch.look_soon()
            await eventually(lambda: running.log_watch.reason is not None)
            pause.over.set()
            await eventually(lambda: running.counts.retries > 0)
            assert (running.counts.given_up, running.counts.dead_letters) == (0, 0)
            assert bus.monitor.counts().losses == {"emptied": 1, "rolled_back": 0}


async def test_work_that_a_fetch_brings_after_the_log_was_emptied_waits_until_it_is_accepted(
    valkey: RealServer,
) -> None:
    ran: list[str] = []

    async def agent(run: Run) -> None:
        ran.append(run.session.id)

    async with valkey.bus() as bus, Worker(bus, agent, name="w", heartbeat=60.0) as running:
        await running.log_watch.wait_trusted()
        await eventually(lambda: blocked(valkey) > 0)  # its fetch is under way
        valkey.do("FLUSHALL")
        running.log_watch.look_soon()
        await eventually(lambda: running.log_watch.reason is not None)
        async with valkey.bus() as other:
            await other.session("s").publish(UserMessage.text("hi"))
            await eventually(lambda: pending(valkey, "agents", "agent") == [("s", "w")])
            for _ in range(20):  # the server answered the fetch before these: without a wait, the agent has run by then
                await other.namespace.unaccepted()
            assert ran == []
            await other.namespace.accept()
        running.log_watch.look_soon()
        await eventually(lambda: ran == ["s"])


async def test_the_page_tells_both_losses_and_refuses_to_publish_to_an_emptied_log(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with monitored_command(lanebus, *page(valkey)) as server:
        await server.wait_reason(None)
        await has_looked(valkey)
        with copied(valkey) as restore:
            await has_looked(valkey, looks(valkey))
            restore()
        await server.event("log.rolled_back", level="error", namespace="lanebus")
        empty(valkey)
        await server.event("log.emptied", level="error", namespace="lanebus")
        await server.wait_reason(ACCEPT)
        samples = await server.metrics()
        assert (samples[EMPTIED], samples[OLDER], samples["lanebus_server_up"]) == (1, 1, 1)


@pytest.mark.parametrize("place", ["file", "shared"])
async def test_a_process_that_cannot_keep_what_it_has_seen_warns_once_and_works(
    valkey: RealServer, lanebus: CommandLine, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    words = (*worker(valkey), "--state-dir", str(tmp_path / place))
    async with monitored_command(lanebus, *words) as run_worker:
        await has_looked(valkey)
        warnings = [line for line in run_worker.text.splitlines() if "a lost log is noticed only while" in line]
        assert (len(warnings), "--state-dir" in warnings[0]) == (1, True)
        empty(valkey)
        await run_worker.event("log.emptied", level="error")


async def test_a_user_without_a_home_directory_gets_a_worker(valkey: RealServer, lanebus: CommandLine) -> None:
    env = {"HOME": "", "XDG_STATE_HOME": "", "LANEBUS_STATE_DIR": ""}
    async with monitored_command(lanebus, *worker(valkey), env=env) as run_worker:
        await has_looked(valkey)
        await run_worker.wait_reason(None)
        assert run_worker.text.count("a lost log is noticed only while") == 1
