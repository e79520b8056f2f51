"""`lanebus demo`, `worker`, `serve` and `server`: commands that run until a signal ends them."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from math import inf
from pathlib import Path
from subprocess import PIPE
from typing import cast

import anyio
import httpx2
import pytest
from anyio.to_thread import run_sync

from lanebus import Bus, Unavailable
from lanebus.bus.embedded.server import find_binary
from lanebus.handlers.cli.access import Patience, open_bus
from lanebus.handlers.cli.group import run_command_line
from lanebus.handlers.cli.options import Settings
from tests.support.cli.command_line import CommandLine, Running, objects
from tests.support.cli.monitored import monitored_command
from tests.support.paths import ROOT
from tests.support.servers.clusters import at_free_port
from tests.support.servers.real import RealServer, eventually, real_server

pytestmark = pytest.mark.full


def end(process: Running, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    """End a command by a signal. Return its exit code, and the rest of its stderr."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    return process.wait(), errors


# --- demo ---------------------------------------------------------------------------------------------------------


def test_demo_once_prints_lanes_turns_and_cost_which_all_commands_tell_alike(lanebus: CommandLine) -> None:
    shown = lanebus("demo", "--once")
    assert (shown.code, shown.err, shown.out.startswith("session demo-")) == (0, "", True)
    lanes, turns, cost = shown.out.split("\n\n")[1:]
    assert lanes.splitlines()[0].split("  ")[0].strip() == "#"
    for text in (
        *("user: What is 17 × 23?", '→ calculate {"expression": "17 × 23"}', "tool: calculate: 391", "17 × 23 is 391."),
        "agent.turn.started: turn 0",
    ):
        assert text in lanes
    assert [line.split()[0] for line in turns.splitlines()] == ["turn", "main.1#0", "main.1#1"]
    assert cost.startswith("cost $0.000")
    one, other = (lanebus("demo", "--once", "--json").object for _ in range(2))
    assert (one["session"] != other["session"], one["usage"]) == (True, other["usage"])
    told = [
        [
            (entry["position"], entry["lane"], entry["message"].get("kind"), entry["message"].get("content"))
            for entry in each
        ]
        for each in json.loads(json.dumps((one["entries"], other["entries"])))
    ]
    assert told[0] == told[1]  # ids of tool calls derive from positions, so even they are equal
    session = str(one["session"])
    assert objects(lanebus("tail", session).out) == one["entries"]
    assert objects(lanebus("turns", session).out) == one["turns"]
    counted = lanebus("usage", session).object
    assert (counted.pop("counted_from"), counted.pop("is_estimate")) == (None, False)
    assert counted == one["usage"]
    assert lanebus("context", session).object["model"] == "offline-1"
    assert lanebus("verify", session).code == 0


def test_the_request_of_a_past_turn_is_printed_with_its_tools(lanebus: CommandLine) -> None:
    session = str(lanebus("demo", "--once", "--json").object["session"])
    first, second = [lanebus("context", session, "--turn", f"{session}.main.1#{n}") for n in (0, 1)]
    for printed, count in ((first, 1), (second, 3)):
        body = printed.object
        assert "not the body that it was sent" in printed.err  # the offline model has no API
        tools = [tool["name"] for tool in cast("list[dict[str, str]]", body["tools"])]
        assert (body["model"], tools) == ("offline-1", ["calculate", "clock", "roll_dice"])
        assert len(cast("list[object]", body["messages"])) == count
    other = lanebus("context", session, "--turn", f"{session}.main.1#0", "--provider", "openai-chat", "--model", "m")
    assert (other.object["model"], other.err) == ("m", "")
    assert len(cast("list[object]", other.object["tools"])) == 3
    none = lanebus("context", session, "--turn", f"{session}.main.9#0")
    assert (none.code, "no model was called" in none.err) == (3, True)
    assert lanebus("context", session, "--turn", "?").code == 2
    assert lanebus("context", session, "--turn", f"{session}.main.1#0", "--at", "1").code == 2


def test_the_demo_answers_messages_until_ctrl_c(unopened: CommandLine) -> None:
    with unopened.running("demo", "--port", "0") as process:
        url = process.out.readline().strip()
        with httpx2.Client(follow_redirects=True) as browser:
            assert browser.get(url).status_code == 200
        with unopened.running("tail", "s", "-f", "--lane", "llm") as follower:
            unopened("publish", "s", "What is 6 × 7?")
            assert any("6 × 7 is 42." in line for line in follower.out)
        assert end(process)[0] == 130
    unopened.wait_stopped()


def test_a_requested_port_in_use_is_an_error_and_the_demo_uses_a_free_one(lanebus: CommandLine) -> None:
    with lanebus.running("serve", "--port", "0") as process:
        port = process.out.readline().split(":")[2].split("/")[0]
        for command in ("serve", "demo"):
            answer = lanebus(command, "--port", port)
            assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 2)
            assert answer.err.startswith(f"error: 127.0.0.1:{port} is in use")
    with lanebus.running("demo") as one, lanebus.running("demo") as other:
        urls = [process.out.readline().split("?")[0] for process in (one, other)]
    assert urls[0] != urls[1]
    assert all(url.startswith("http://127.0.0.1:") for url in urls)


def test_serve_without_its_packages_says_how_to_install_them(
    lanebus: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for module in ("server", "http_server"):
        monkeypatch.delitem(sys.modules, f"lanebus.handlers.serve.{module}", raising=False)
    monkeypatch.delitem(vars(sys.modules["lanebus.handlers.serve"]), "serve", raising=False)
    assert run_command_line(["serve", "--data-dir", str(lanebus.data_dir)]) == 2
    assert capsys.readouterr() == (
        "",
        "error: 'uvicorn' is not installed\nhint: run pip install 'lanebus[serve]'\n",
    )


@pytest.mark.needs("make")
def test_make_demo_ends_without_an_error_on_ctrl_c(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "lanebus"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport signal\nprint('up', flush=True)\n"
        "try:\n    signal.pause()\nexcept KeyboardInterrupt:\n    raise SystemExit(130) from None\n"
    )
    program.chmod(0o755)
    command = ["make", "-C", str(ROOT), "--old-file", f"{tmp_path}/.run", "demo", f"VENV={tmp_path}"]
    (tmp_path / ".run").touch()
    with subprocess.Popen(command, text=True, stdout=PIPE, stderr=subprocess.STDOUT, start_new_session=True) as made:
        assert made.stdout is not None
        shown = iter(made.stdout)
        assert any(line == "up\n" for line in shown)
        os.killpg(made.pid, signal.SIGINT)  # as a terminal does
        assert "Error" not in "".join(shown)


# --- worker -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_worker_answers_and_ends_on_a_signal(lanebus: CommandLine, number: signal.Signals, code: int) -> None:
    lanebus("publish", "s", "What is 6 × 7?")
    with lanebus.running("worker", "lanebus.handlers.agent.demo:agent", "--name", "w1") as worker:
        begun = json.loads(worker.err.readline())
        assert (begun["event"], begun["worker"], begun["group"]) == ("worker.begun", "w1", "agents")
        assert begun["agents"] == ["agent"]
        with lanebus.running("tail", "s", "-f") as follower:
            assert any('"kind":"agent.ended"' in line for line in follower.out)
        ended, lines = end(worker, number)
        assert (ended, [line.get("event") for line in objects(lines)][-1]) == (code, "worker.ended")
    assert len(lanebus("turns", "s").out.splitlines()) == 2


async def test_a_worker_warns_if_another_of_its_name_seems_to_be_alive(lanebus: CommandLine) -> None:
    async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w1", heartbeat=600) as consumer:
        await consumer.heartbeat()
        for name, expected in (("w2", "worker.begun"), ("w1", "worker.name_in_use")):
            with lanebus.running("worker", "lanebus.handlers.agent.demo:agent", "--name", name) as worker:
                first = json.loads(await run_sync(worker.err.readline))
                assert (first["event"], first["worker"]) == (expected, name)


def test_a_worker_logs_an_unsafe_server_as_json() -> None:
    # In a process of its own: the `lanebus` of the other tests makes an error of each warning.
    command = [sys.executable, "-m", "lanebus", "worker", "lanebus.handlers.agent.demo:agent", "--url"]
    with (
        real_server(find_binary(), "--appendonly", "no") as server,
        subprocess.Popen([*command, server.url], stderr=subprocess.PIPE, text=True, cwd=ROOT) as worker,
    ):
        try:
            assert worker.stderr is not None
            first = json.loads(worker.stderr.readline())
        finally:
            worker.kill()
    assert (first["event"], first["level"]) == ("server.unsafe", "warning")
    assert "append" in first["fault"]


def test_a_worker_finishes_its_turn_after_sigterm(lanebus: CommandLine) -> None:
    with (
        lanebus.running("worker", "lanebus.handlers.agent.demo:agent") as worker,
        lanebus.running("tail", "s", "-f") as follower,
    ):
        lanebus("publish", "s", "What is 6 × 7?")
        assert any('"kind":"agent.turn.started"' in line for line in follower.out)
        assert end(worker, signal.SIGTERM)[0] == 0
        last = objects(lanebus("tail", "s", "-n", "1").out)[0]["message"]
    assert isinstance(last, dict)
    assert last["kind"] == "agent.ended"


# --- serve --------------------------------------------------------------------------------------------------------


def test_the_page_is_served_at_the_address_that_is_printed_and_a_reader_may_only_read(lanebus: CommandLine) -> None:
    with lanebus.running("serve", "--port", "0", "--token", "t0ken", "--reader-token", "reader") as process:
        url = process.out.readline().strip()
        assert url.endswith("/#token=t0ken")
        base = url.partition("#")[0]
        with httpx2.Client() as browser:
            assert browser.get(base).status_code == 200
            for token, code, sent in (("other", 401, 401), ("reader", 200, 403), ("t0ken", 200, 201)):
                headers = {"Authorization": f"Bearer {token}"}
                assert browser.get(f"{base}api/sessions", headers=headers).status_code == code
                messages = f"{base}api/sessions/s1/messages"
                assert browser.post(messages, json={"text": "hi"}, headers=headers).status_code == sent
        assert end(process)[0] == 130


# --- server -------------------------------------------------------------------------------------------------------


def test_server_status_starts_no_server_and_stop_refuses_one_that_is_in_use(unopened: CommandLine) -> None:
    assert unopened("server", "status").object["state"] == "stopped"
    assert not unopened.data_dir.exists()
    with unopened.running("tail", "s", "-f") as process:
        process.err.readline()
        status = unopened("server", "status").object
        assert (status["state"], status["openers"]) == ("ready", [process.pid])
        shown = unopened.at_terminal("server", "status", columns=200).out
        assert f"open in       {process.pid}\n" in shown
        refused = unopened("server", "stop")
        assert (refused.code, f"held open by process {process.pid}" in refused.err) == (5, True)
    unopened.wait_stopped()
    assert unopened("server", "stop").object == {"stopped": False}
    answer = unopened("server", "stop", env={"LANEBUS_URL": "redis://127.0.0.1:1"})
    assert (answer.code, "embedded" in answer.err) == (2, True)


def test_a_command_that_waits_for_a_silent_server_says_so_and_continues(lanebus: CommandLine) -> None:
    with lanebus.running("tail", "s", "-f") as follower:
        follower.err.readline()
        pid = lanebus("server", "status").object["pid"]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGSTOP)
        try:
            with lanebus.running("publish", "s", "one") as publisher:
                assert "waiting for the embedded server" in publisher.err.readline()
                os.kill(pid, signal.SIGCONT)
                assert publisher.wait(60) == 0
        finally:
            os.kill(pid, signal.SIGCONT)


# --- a service whose server is not there -----------------------------------------------------------------------


WORKER = ("worker", "lanebus.handlers.agent.demo:agent", "--name", "w1")
SERVE = ("serve", "--port", "0")


@pytest.fixture
def late() -> Generator[RealServer]:
    """A server that is not started yet."""
    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    server = RealServer(find_binary(), directory)
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory)


@pytest.mark.parametrize("words", [WORKER, SERVE], ids=["worker", "serve"])
async def test_a_service_waits_for_its_server_unless_it_shall_not_and_obeys_signals_meanwhile(
    lanebus: CommandLine, late: RealServer, words: tuple[str, ...]
) -> None:
    answer = await run_sync(lambda: lanebus(*words, "--url", late.url, "--wait", "0"))
    assert (answer.code, "server.awaited" in answer.err, "No such file" in answer.err) == (5, False, True)
    async with monitored_command(lanebus, *words, "--url", late.url) as process:
        await process.event("server.awaited")
        assert await process.end(signal.SIGTERM) == 143
    async with monitored_command(lanebus, *words, "--url", late.url) as process:
        line = await process.event("server.awaited")
        assert (line["level"], "No such file" in str(line["fault"])) == ("warning", True)
        late.start()
        await process.event("server.found", what="open")
        assert (await process.get("/healthz")).status_code == 200
        await process.end(signal.SIGTERM)


def test_a_fault_that_waiting_does_not_cure_ends_a_service(lanebus: CommandLine) -> None:
    with at_free_port() as (server, port):
        server.do("ACL", "SETUSER", "app", "on", ">pass", "~*", "+@all")
        for url, code, said in (
            (f"unix://app:wrong@{server.socket}", 2, "refused the user or password"),
            (f"unix://app:pass@{server.socket}?db=99", 2, "no database 99"),
            (f"unix://{server.socket}?password_file=/nowhere/at/all", 2, "password file /nowhere/at/all"),
            (f"redis+cluster://127.0.0.1:{port}", 2, "is not in a cluster"),
            (f"rediss://127.0.0.1:{port}", 5, "does not speak TLS"),
        ):
            answer = lanebus(*WORKER, "--url", url)
            found = (answer.code, said in answer.err, "server.awaited" in answer.err)
            assert found == (code, True, False), answer.err


async def test_the_log_says_once_a_period_that_it_waits(late: RealServer, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(late.url, None, "lanebus")

    def told() -> int:
        return sum(getattr(each, "event", "") == "server.awaited" for each in caplog.records)

    async def wait(period: float) -> None:
        async with open_bus(settings, Patience(inf, first_pause=0.001, longest_pause=0.001, told=period)):
            pass

    with caplog.at_level(logging.INFO, "lanebus"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, 0.0)
            await eventually(lambda: told() > 2)
            tasks.cancel_scope.cancel()
        caplog.clear()
        with pytest.raises(Unavailable, match="No such file"):
            async with open_bus(settings, Patience(0.05, first_pause=0.01, longest_pause=0.01)):
                pass
        assert told() == 1
