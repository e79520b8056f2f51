"""`lanebus demo`, `worker`, `serve` and `server`: commands that run until a signal ends them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import cast

import httpx2
import pytest
from anyio.to_thread import run_sync

from lanebus import Bus
from lanebus.bus.embedded.server import find_binary
from lanebus.handlers.cli.group import run_command_line
from tests.support.cli.command_line import CommandLine, Running, objects
from tests.support.paths import ROOT
from tests.support.servers.real import real_server

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
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx2.Client(follow_redirects=True) as browser:
            assert browser.get(url).status_code == 200
        with unopened.running("tail", "s", "-f", "--lane", "llm") as follower:
            assert follower.stdout is not None
            unopened("publish", "s", "What is 6 × 7?")
            assert any("6 × 7 is 42." in line for line in follower.stdout)
        assert end(process)[0] == 130
    unopened.wait_stopped()


def test_a_requested_port_in_use_is_an_error_and_the_demo_uses_a_free_one(lanebus: CommandLine) -> None:
    with lanebus.running("serve", "--port", "0") as process:
        assert process.stdout is not None
        port = process.stdout.readline().split(":")[2].split("/")[0]
        for command in ("serve", "demo"):
            answer = lanebus(command, "--port", port)
            assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 2)
            assert answer.err.startswith(f"error: 127.0.0.1:{port} is in use")
    with lanebus.running("demo") as one, lanebus.running("demo") as other:
        urls: list[str] = []
        for process in (one, other):
            assert process.stdout is not None
            urls.append(process.stdout.readline().split("?")[0])
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
        assert worker.stderr is not None
        begun = json.loads(worker.stderr.readline())
        assert (begun["event"], begun["worker"], begun["group"]) == ("worker.begun", "w1", "agents")
        assert begun["agents"] == ["agent"]
        with lanebus.running("tail", "s", "-f") as follower:
            assert follower.stdout is not None
            assert any('"kind":"agent.ended"' in line for line in follower.stdout)
        ended, lines = end(worker, number)
        assert (ended, [line.get("event") for line in objects(lines)][-1]) == (code, "worker.ended")
    assert len(lanebus("turns", "s").out.splitlines()) == 2


async def test_a_worker_warns_if_another_of_its_name_seems_to_be_alive(lanebus: CommandLine) -> None:
    async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w1", heartbeat=600) as consumer:
        await consumer.heartbeat()
        for name, expected in (("w2", "worker.begun"), ("w1", "worker.name_in_use")):
            with lanebus.running("worker", "lanebus.handlers.agent.demo:agent", "--name", name) as worker:
                assert worker.stderr is not None
                first = json.loads(await run_sync(worker.stderr.readline))
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
        assert follower.stdout is not None
        lanebus("publish", "s", "What is 6 × 7?")
        assert any('"kind":"agent.turn.started"' in line for line in follower.stdout)
        assert end(worker, signal.SIGTERM)[0] == 0
        last = objects(lanebus("tail", "s", "-n", "1").out)[0]["message"]
    assert isinstance(last, dict)
    assert last["kind"] == "agent.ended"


# --- serve --------------------------------------------------------------------------------------------------------


def test_the_page_is_served_at_the_address_that_is_printed_and_a_reader_may_only_read(lanebus: CommandLine) -> None:
    with lanebus.running("serve", "--port", "0", "--token", "t0ken", "--reader-token", "reader") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
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
        assert process.stderr is not None
        process.stderr.readline()
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
        assert follower.stderr is not None
        follower.stderr.readline()
        pid = lanebus("server", "status").object["pid"]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGSTOP)
        try:
            with lanebus.running("publish", "s", "one") as publisher:
                assert publisher.stderr is not None
                assert "waiting for the embedded server" in publisher.stderr.readline()
                os.kill(pid, signal.SIGCONT)
                assert publisher.wait(60) == 0
        finally:
            os.kill(pid, signal.SIGCONT)
