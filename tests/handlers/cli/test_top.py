"""`lanebus top`, as JSON, as text and on a terminal."""

import os
import re
import signal
from typing import cast

import anyio
import pytest
from anyio.to_thread import run_sync
from pydantic import JsonValue

from lanebus.bus import Bus, server_status
from lanebus.bus.messages import UserMessage
from lanebus.handlers.agent import Worker, demo_agent
from tests.support.cli.command_line import CommandLine, Running, Terminal, objects
from tests.support.log.groups import take_one, wake

__all__ = ()

pytestmark = pytest.mark.full

HOME, CLEAR_BELOW, HIDE, SHOW = "\x1b[H", "\x1b[J", "\x1b[?25l", "\x1b[?25h"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def frames(terminal: Terminal) -> list[list[str]]:
    """The complete drawings, as lines."""
    parts = terminal.said.split(HOME)[1:]
    drawn = [part.partition(CLEAR_BELOW)[0] for part in parts if CLEAR_BELOW in part]
    return [ESCAPE.sub("", part).replace("\r", "").split("\n") for part in drawn]


def test_a_bus_without_groups_is_reported_by_one_reading(lanebus: CommandLine) -> None:
    found = lanebus("top", "--once").object
    assert (found["groups"], found["sessions"], found["pace"]) == ([], [], None)
    shown = lanebus.at_terminal("top", "--once", columns=100)
    assert (shown.code, "\x1b" in shown.out) == (0, True)
    assert "no worker has run here yet" in shown.out
    assert HOME not in shown.out


async def test_groups_and_sessions_are_printed_as_json_and_as_tables(lanebus: CommandLine) -> None:
    async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w1", heartbeat=600) as consumer:
        await wake(bus, "s1", "s2")
        work = await take_one(consumer)
        lease = await bus.session(work.session).acquire_lease("w1.token", 60)
        assert lease is not None
        found = (await run_sync(lambda: lanebus("top", "--once"))).object
        [group], [session] = _rows(found["groups"]), _rows(found["sessions"])
        assert (group["name"], group["lag"], group["pending"]) == ("agents", 1, 1)
        assert (session["session"], session["owner"]) == (work.session, "w1.token")
        text = (await run_sync(lambda: lanebus("top", "--once", "--table"))).out
        assert "\x1b" not in text
        assert re.search(r"^agents +1 +0 +1 +1 ", text, re.MULTILINE)
        assert re.search(rf"^{work.session} +w1 +1 +\d\d\.\d s ", text, re.MULTILINE)
        assert (await run_sync(lambda: lanebus("top", "--once", "--group", "agents"))).object["sessions"] != []


def _rows(value: JsonValue) -> list[dict[str, JsonValue]]:
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


def test_an_invalid_group_name_is_an_error(lanebus: CommandLine) -> None:
    answer = lanebus("top", "--once", "--group", "a b")
    assert answer.code == 2
    assert "a b" in answer.err


async def test_each_reading_is_a_line_of_json_and_the_second_has_the_pace(lanebus: CommandLine) -> None:
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        with lanebus.running("top", "--every", "0.2") as process:
            first = await _line(process)
            assert first["pace"] is None
            await bus.session("s1").publish(UserMessage.text("hi"))
            while not (pace := (await _line(process))["pace"]):
                pass
            [shown] = _rows(cast("JsonValue", [pace]))
            seconds = shown["seconds"]
            assert isinstance(seconds, float)
            assert shown["publishes"] == pytest.approx(1 / seconds)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 143


async def test_top_ends_when_its_reader_closes_the_pipe(lanebus: CommandLine) -> None:
    with lanebus.running("top", "--every", "0.2") as process:
        await _line(process)
        assert process.stdout is not None
        process.stdout.close()
        assert await run_sync(lambda: process.wait(60)) == 141


async def test_each_drawing_replaces_the_previous_one_and_fits_the_window(lanebus: CommandLine) -> None:
    async with Bus.open(data_dir=lanebus.data_dir) as bus, anyio.create_task_group() as tasks:
        await wake(bus, *(f"session-{number}" for number in range(30)))
        tasks.start_soon(Worker(bus, demo_agent(delay=0.05)).run)
        with lanebus.on_terminal("top", "--every", "0.2", columns=60, lines=16) as terminal:
            place = 0
            for _ in range(4):
                place = await run_sync(lambda at: terminal.read_until(CLEAR_BELOW, after=at), place)
            terminal.resize(40, 10)
            while len(frames(terminal)[-1]) > 10:
                place = await run_sync(lambda at: terminal.read_until(CLEAR_BELOW, after=at), place)
            drawn, said = frames(terminal), terminal.said
        assert HIDE in said
        assert all(len(lines) <= 16 for lines in drawn)
        assert [line for lines in drawn for line in lines if len(line) >= 60] == []
        assert all(len(line) < 40 for line in drawn[-1])
        # The screen is cleared only at the start and after the resize.
        assert said.count("\x1b[2J") == 2
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_terminal_is_restored_when_a_signal_ends_top(lanebus: CommandLine, number: int, code: int) -> None:
    with lanebus.on_terminal("top", "--every", "0.2") as terminal:
        terminal.read_until(CLEAR_BELOW)
        assert terminal.end(number) == code
    end = terminal.said.rindex(SHOW)
    assert terminal.said.index(HIDE) < end
    assert terminal.said.index("\x1b[?1049h") < terminal.said.index("\x1b[?1049l")
    assert HOME not in terminal.said[end:]
    assert "publishes" in terminal.said[end:]
    assert "Traceback" not in terminal.said


async def test_no_color_and_dumb_terminals_get_no_colours(lanebus: CommandLine) -> None:
    async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w1") as consumer:
        await wake(bus, "s1")
        await take_one(consumer)

        def shown(env: dict[str, str]) -> str:
            with lanebus.on_terminal("top", "--every", "0.2", env=env) as terminal:
                terminal.read_until("pending", after=terminal.read_until("pending"))
                terminal.end(signal.SIGINT)
            return terminal.said

        assert "\x1b[1m" in await run_sync(shown, {"TERM": "xterm"})
        assert not re.search(r"\x1b\[\d*m", await run_sync(shown, {"NO_COLOR": "1"}))
        assert "\x1b" not in await run_sync(shown, {"TERM": "dumb"})


async def test_a_hanging_server_is_shown_as_trouble_until_it_answers(lanebus: CommandLine) -> None:
    with lanebus.on_terminal("top", "--every", "0.2", columns=120) as terminal:
        await run_sync(terminal.read_until, CLEAR_BELOW)
        status = await server_status(lanebus.data_dir)
        assert status.pid is not None
        os.kill(status.pid, signal.SIGSTOP)
        try:
            place = await run_sync(terminal.read_until, "the server did not answer")
            await run_sync(lambda: terminal.read_until(CLEAR_BELOW, after=place))
            drawn = frames(terminal)[-1]
            assert drawn[0].startswith("the server did not answer")
            assert "publishes" in drawn[1]  # the last reading
        finally:
            os.kill(status.pid, signal.SIGCONT)
        while "server" in frames(terminal)[-1][0]:
            place = await run_sync(lambda at: terminal.read_until(CLEAR_BELOW, after=at), place)
        assert "publishes" in frames(terminal)[-1][0]
        assert await run_sync(terminal.end, signal.SIGINT) == 130


async def test_a_hanging_server_is_reported_once_on_stderr_without_a_terminal(lanebus: CommandLine) -> None:
    with lanebus.running("top", "--every", "0.2") as process:
        await _line(process)
        status = await server_status(lanebus.data_dir)
        assert status.pid is not None
        os.kill(status.pid, signal.SIGSTOP)
        try:
            while "error" not in (found := await _line(process)):
                pass
            assert found == {"error": "the server did not answer within 3 s"}
            assert (await _line(process)) == found
        finally:
            os.kill(status.pid, signal.SIGCONT)
        while "error" in await _line(process):
            pass
        process.send_signal(signal.SIGINT)
        assert await run_sync(process.wait) == 130
        assert process.stderr is not None
        errors = process.stderr.read()
        assert errors.count("the server did not answer") == 1
        assert errors.count("the server answers again") == 1


async def test_top_continues_after_a_restart_of_the_server(lanebus: CommandLine) -> None:
    lanebus("publish", "s1", "hi")
    with lanebus.running("top", "--every", "0.2") as process:
        await _line(process)
        status = await server_status(lanebus.data_dir)
        assert status.pid is not None
        os.kill(status.pid, signal.SIGKILL)
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w1") as consumer:
            await take_one(consumer)
            while not (await _line(process)).get("sessions"):
                pass
        process.send_signal(signal.SIGINT)
        assert await run_sync(process.wait) == 130


async def _line(process: Running) -> dict[str, object]:
    assert process.stdout is not None
    [found] = objects(await run_sync(process.stdout.readline))
    return dict(found)
