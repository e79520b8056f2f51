"""A worker or the page in trouble: its log, its `/readyz` and its metrics tell each state."""

import signal
from functools import partial

import anyio
import pytest

from lanebus import Bus, UserMessage
from lanebus.bus.servers import acl_users
from tests.support.agent.agents import Pause, until
from tests.support.agent.api_key import API_KEY
from tests.support.cli.command_line import CommandLine
from tests.support.cli.monitored import Monitored, monitored_command
from tests.support.log.groups import pending, take_all, wake
from tests.support.models.messages_api import Status, Step, block, delta, finish, frame, start
from tests.support.models.model_api import serve_api
from tests.support.servers.real import RealServer, eventually, refused

pytestmark = pytest.mark.full

HEARTBEAT = "6"
"""seconds; a third of it is the time-out of a heartbeat, which a busy machine must not exceed"""

AGENT = "tests.support.agent.api_agent:agent"
SECRET = "the-text-of-a-message"
ANSWER: list[Step] = [
    start(cache_read_input_tokens=75),
    *block(0, {"type": "text", "text": ""}, delta(0, "text_delta", text=SECRET)),
    *finish(output_tokens=7),
]
FAILED: list[Step] = [Status(500, {"type": "error", "error": {"type": "api_error", "message": SECRET}})]
TURNS = 'lanebus_turns_total{agent="support",model="claude-test",outcome="stop"}'


async def ask(bus: Bus, session: str, agent: str | None = "support") -> None:
    await bus.session(session, agent=agent).publish(UserMessage.text(SECRET))


def worker(url: str, agent: str = AGENT, *options: str) -> list[str]:
    return ["worker", agent, "--url", url, "--name", "w1", "--heartbeat", HEARTBEAT, *options]


def app_url(server: RealServer) -> str:
    """Create a user that may do everything. Return the server's URL with this user."""
    server.do("ACL", "SETUSER", "app", "on", ">pass", "~*", "&*", "+@all")
    return f"unix://app:pass@{server.socket}"


def assert_quotes_nothing(process: Monitored) -> None:
    """No line has a message's text or a key."""
    assert SECRET not in process.text
    assert API_KEY not in process.text


async def is_without(process: Monitored, sample: str) -> bool:
    return sample not in await process.metrics()


async def test_an_outage_of_the_server_shows_in_the_log_in_readyz_and_in_the_metrics(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with (
        serve_api(frame, ANSWER, ANSWER) as (_, api),
        monitored_command(lanebus, *worker(valkey.url), env={"LANEBUS_TEST_API": api}) as process,
    ):
        await process.event("worker.begun", worker="w1", group="agents")
        async with valkey.bus() as bus:
            await ask(bus, "before")
            begun = await process.event("loop.begun", session="before", agent="support", worker="w1", trace_id="")
            ended = await process.event("loop.ended", session="before", agent="support", worker="w1", reason="stop")
            assert begun["loop"] == ended["loop"] == "before.main.1"
            turn = await process.event("turn.ended", session="before", worker="w1")
            assert turn["turn"] == "before.main.1#0"
        await process.wait_reason(None)
        samples = await process.metrics()
        assert (samples["lanebus_ready"], samples["lanebus_server_up"], samples[TURNS]) == (1, 1, 1)
        assert samples['lanebus_work_waiting{agent="support",group="agents"}'] == 0
        assert samples['lanebus_agent_workers{agent="support",group="agents"}'] == 1
        assert samples['lanebus_prompts_total{cache="hit",model="claude-test"}'] == 1
        assert samples['lanebus_tokens_total{kind="output",model="claude-test"}'] == 7

        valkey.stop()
        await process.event("server.lost", worker="w1", error="unreachable")
        await process.wait_reason("the server is unreachable")
        samples = await process.metrics()
        assert (samples["lanebus_ready"], samples["lanebus_server_up"], samples[TURNS]) == (0, 0, 1)
        await until(
            partial(is_without, process, 'lanebus_work_waiting{agent="support",group="agents"}')
        )  # the last is kept a second
        assert (await process.get("/healthz")).status_code == 200

        valkey.start()
        await process.event("server.found", worker="w1")
        await process.wait_reason(None)
        async with valkey.bus() as bus:
            await ask(bus, "after")
            await process.event("loop.ended", session="after", reason="stop")
        samples = await process.metrics()
        assert (samples["lanebus_ready"], samples["lanebus_server_up"], samples[TURNS]) == (1, 1, 2)

        assert await process.end(signal.SIGTERM) == 0
        assert process.events("drain.begun", sessions=0)
        assert process.events("drain.ended", handed_back=0)
        assert process.events("worker.ended", has_left=True)
        assert_quotes_nothing(process)


async def test_a_model_that_fails_shows_in_the_log_and_in_the_metrics_and_the_worker_stays_ready(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with (
        serve_api(frame, FAILED, FAILED) as (_, api),
        monitored_command(lanebus, *worker(valkey.url), env={"LANEBUS_TEST_API": api}) as process,
        valkey.bus() as bus,
    ):
        await ask(bus, "s")
        failed = await process.event("model.failed", count=2, session="s", agent="support", worker="w1", status=500)
        assert (failed["is_transient"], failed["level"]) == (True, "warning")
        await process.event("work.retried", session="s", attempt=1, error="TryAgain")
        await process.event("loop.ended", session="s", reason="error")
        await process.wait_reason(None)
        samples = await process.metrics()
        assert samples['lanebus_model_failures_total{model="claude-test",status="500"}'] == 2
        assert samples['lanebus_loops_total{agent="support",outcome="error"}'] == 1
        assert samples["lanebus_work_retried_total"] == 1
        assert_quotes_nothing(process)


async def test_an_agent_that_raises_shows_as_a_retry_and_a_dead_letter(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    options = worker(valkey.url, "tests.support.agent.api_agent:broken", "--attempts", "2", "--retry-base", "0.01")
    async with monitored_command(lanebus, *options) as process, valkey.bus() as bus:
        await ask(bus, "s", agent=None)
        await process.event("work.retried", session="s", attempt=1, error="ValueError")
        dead = await process.event("work.dead", session="s", attempts=2, error="ValueError")
        assert [letter.id async for letter in bus.dead_letters("agents").read()] == [dead["letter"]]
        samples = await process.metrics()
        assert samples["lanebus_work_dead_total"] == samples['lanebus_dead_letters{group="agents"}'] == 1
        assert "api_agent.py" in process.text  # the stack is there, the error's text is not
        assert_quotes_nothing(process)


async def test_a_user_without_rights_or_with_another_password_shows_in_the_log_in_readyz_and_in_the_metrics(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with monitored_command(lanebus, *worker(app_url(valkey))) as process:
        await process.event("worker.begun")
        await process.wait_reason(None)
        valkey.do("ACL", "SETUSER", "app", "-eval", "-evalsha")
        await process.event("server.lost", worker="w1", error="NOPERM")
        await process.wait_reason("NOPERM")
        samples = await process.metrics()
        assert (samples["lanebus_ready"], samples["lanebus_server_up"]) == (0, 0)
        valkey.do("ACL", "SETUSER", "app", "+eval", "+evalsha")
        await process.event("server.found", worker="w1")
        await process.wait_reason(None)
        valkey.do("ACL", "SETUSER", "app", "resetpass", ">other")
        valkey.do("CLIENT", "KILL", "USER", "app")
        await process.event("server.lost", worker="w1", error="WRONGPASS")
        await process.wait_reason("the server refuses the user or password: WRONGPASS")
        valkey.do("ACL", "SETUSER", "app", ">pass")
        await process.event("server.found", count=2, worker="w1")
        await process.wait_reason(None)


async def test_a_worker_whose_user_may_only_read_ends_and_names_the_command_it_lacks(
    process: RealServer, lanebus: CommandLine
) -> None:
    for user in acl_users("lanebus"):
        # A Redis shows its settings, or the bus would warn that it cannot see them.
        more = ("+config|get",) if process.binary.name == "redis-server" else ()
        process.do("ACL", "SETUSER", user.name, *user.rules, *more, ">pass")
    async with process.bus():  # makes the namespace
        pass
    url = f"unix://lanebus-reader:pass@{process.socket}"
    answer = await anyio.to_thread.run_sync(lambda: lanebus(*worker(url), "--log-format", "json"))
    assert (answer.code, answer.out) == (2, "")
    assert "worker.begun" not in answer.err
    error, hint = answer.err.splitlines()[-2:]
    # The worker announces itself and asks for work at the same time.
    assert error in {f"error: the server refused the command '{name}' with NOPERM" for name in ("hset", "xadd")}
    assert hint == "hint: log in as a user that may do this: run `lanebus acl` and apply what it prints"


@pytest.mark.parametrize("command", ["xrange", "xadd"])
async def test_a_right_that_only_sessions_need_shows_when_it_is_taken_and_when_it_is_given_back(
    valkey: RealServer, lanebus: CommandLine, command: str
) -> None:
    pause = Pause()
    waiting = 'lanebus_work_waiting{agent="support",group="agents"}'
    async with (
        serve_api(frame, *[[*ANSWER[:2], pause, *ANSWER[2:]]] * 3) as (_, api),
        monitored_command(lanebus, *worker(app_url(valkey)), env={"LANEBUS_TEST_API": api}) as process,
        valkey.bus() as bus,
    ):
        await process.wait_reason(None)
        valkey.do("ACL", "SETUSER", "app", f"-{command}")
        await ask(bus, "first")
        await process.event("server.lost", worker="w1", what="work", error="NOPERM", command=command)
        await process.wait_reason(f"the server refuses work: NOPERM for the command '{command}'")
        await process.event("work.retried", session="first", error="NOPERM")
        samples = await process.metrics()
        assert (samples["lanebus_ready"], samples["lanebus_server_up"]) == (0, 0)
        assert samples["lanebus_work_retried_total"] >= 1

        await ask(bus, "second")  # may be fetched by a fetch that had begun
        await ask(bus, "third")

        async def is_left_to_others() -> bool:
            return (await process.metrics()).get(waiting, 0) > 0

        await until(is_left_to_others)
        valkey.do("ACL", "SETUSER", "app", f"+{command}")
        await process.event("server.found", worker="w1")  # before the model has answered
        await process.wait_reason(None)
        pause.over.set()
        for session in ("first", "second", "third"):
            await process.event("loop.ended", session=session, reason="stop")
        assert len(process.events("server.lost")) == len(process.events("server.found")) == 1


async def test_a_right_that_only_acks_need_shows_and_no_session_is_worked_on_twice(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with (
        serve_api(frame, *[ANSWER] * 3) as (_, api),
        monitored_command(lanebus, *worker(app_url(valkey)), env={"LANEBUS_TEST_API": api}) as process,
        valkey.bus() as bus,
    ):
        await process.wait_reason(None)
        valkey.do("ACL", "SETUSER", "app", "-hdel")
        await ask(bus, "first")
        await process.event("loop.ended", session="first", reason="stop")
        await process.event("server.lost", worker="w1", what="ack", error="NOPERM", command="hdel")
        await process.wait_reason("the server refuses ack: NOPERM for the command 'hdel'")
        refused_before = refused(valkey, "NOPERM") + refused(valkey, "ERR")
        await eventually(lambda: refused(valkey, "NOPERM") + refused(valkey, "ERR") > refused_before + 1)
        assert pending(valkey, "agents", "support") == [("first", "w1")]
        valkey.do("ACL", "SETUSER", "app", "+hdel")
        await process.event("server.found", worker="w1")
        await process.wait_reason(None)
        await ask(bus, "first")
        await process.event("loop.ended", count=2, session="first", reason="stop")
        await eventually(lambda: not pending(valkey, "agents", "support"))
        assert not process.events("work.dead")
        assert len(process.events("server.lost")) == len(process.events("server.found")) == 1


async def test_a_worker_that_drains_is_not_ready_until_its_sessions_are_finished(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    pause = Pause()
    async with (
        serve_api(frame, [*ANSWER[:2], pause, *ANSWER[2:]]) as (_, api),
        monitored_command(lanebus, *worker(valkey.url), env={"LANEBUS_TEST_API": api}) as process,
        valkey.bus() as bus,
    ):
        await ask(bus, "s")
        await pause.reached.wait()
        process.process.send_signal(signal.SIGTERM)
        await process.wait_reason("drains")
        samples = await process.metrics()
        assert (samples["lanebus_ready"], samples["lanebus_worker_draining"]) == (0, 1)
        assert samples["lanebus_leases_held"] == 1
        assert not process.events("drain.ended")
        pause.over.set()
        await process.event("drain.ended", handed_back=0)
        assert process.events("loop.ended", session="s", reason="stop")


@pytest.mark.parametrize(
    "host", ["evil.example.com", "evil.example.com:80", "localhost.evil.com", "127.0.0.1.evil.com"]
)
async def test_a_monitor_refuses_a_foreign_host_name(valkey: RealServer, lanebus: CommandLine, host: str) -> None:
    async with monitored_command(lanebus, *worker(valkey.url), "--monitor-allow-host", "Worker.local:9464") as process:
        for path in ("/metrics", "/readyz", "/healthz"):
            assert (await process.get(path, host=host)).status_code == 403
        for known in ("localhost:1", "10.1.2.3:9464", "[::1]:9464", "worker.local", "WORKER.local:80"):
            assert (await process.get("/metrics", host=known)).status_code == 200


async def test_the_page_is_not_ready_during_an_outage_and_shows_all_groups(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with valkey.bus() as bus, bus.consumer("shop", "c") as consumer:
        await wake(bus, "a", "b")
        await take_all(consumer, 2)
        await wake(bus, "c")
    async with monitored_command(lanebus, "serve", "--url", valkey.url, "--port", "0") as process:
        await process.wait_reason(None)
        samples = await process.metrics()
        assert samples['lanebus_work_waiting{agent="agent",group="shop"}'] == 1
        assert samples['lanebus_work_pending{agent="agent",group="shop"}'] == 2
        assert samples['lanebus_consumers{group="shop",state="alive"}'] == 1
        assert samples['lanebus_agent_sessions{agent="agent"}'] == 3
        assert samples['lanebus_agent_workers{agent="agent",group="shop"}'] == 1
        assert "lanebus_worker_draining" not in samples

        valkey.stop()
        await process.event("server.lost", what="ping", error="unreachable")
        await process.wait_reason("the server is unreachable: no answer to ping")
        assert (await process.metrics())["lanebus_server_up"] == 0
        assert (await process.get("/healthz")).status_code == 200

        valkey.start()
        await process.event("server.found", what="ping")
        await process.wait_reason(None)

        valkey.do("ACL", "SETUSER", "default", "-xrange")
        await process.wait_reason("the server refuses read: NOPERM for the command 'xrange'")
        valkey.do("ACL", "SETUSER", "default", "+xrange")
        await process.wait_reason(None)
        assert await process.end(signal.SIGTERM) == 143
        assert all(line.startswith("{") for line in process.text.splitlines())
