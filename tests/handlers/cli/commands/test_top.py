"""`lanebus top`: its overview as lines that fit a window, as JSON, as text and on a terminal."""

import os
import re
import signal
from dataclasses import replace
from decimal import Decimal
from typing import cast

import anyio
import pytest
from anyio.to_thread import run_sync
from pydantic import JsonValue

from lanebus import UserMessage
from lanebus.bus import AgentWork, Bus, ConsumerStatus, GroupStatus, server_status
from lanebus.handlers.agent import Worker, demo_agent
from lanebus.handlers.cli.commands.top import draw
from lanebus.handlers.cli.output import Line, width
from lanebus.handlers.projections import Doing
from lanebus.handlers.serve import Overview, Pace, SessionStatus
from tests.support.cli.command_line import CommandLine, Running, Terminal, objects
from tests.support.log.groups import take_one, wake

HOME, CLEAR_BELOW, HIDE, SHOW = "\x1b[H", "\x1b[J", "\x1b[?25l", "\x1b[?25h"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def frames(terminal: Terminal) -> list[list[str]]:
    """The complete drawings, as lines."""
    parts = terminal.said.split(HOME)[1:]
    drawn = [part.partition(CLEAR_BELOW)[0] for part in parts if CLEAR_BELOW in part]
    return [ESCAPE.sub("", part).replace("\r", "").split("\n") for part in drawn]


@pytest.mark.full
async def test_groups_and_sessions_are_printed_as_json_as_tables_and_in_colours(lanebus: CommandLine) -> None:
    found = (await run_sync(lambda: lanebus("top", "--once"))).object
    assert (found["groups"], found["sessions"], found["pace"]) == ([], [], None)
    alone = await run_sync(lambda: lanebus.at_terminal("top", "--once", columns=100))
    assert (alone.code, "\x1b" in alone.out, HOME in alone.out) == (0, True, False)
    assert "no worker has run here yet" in alone.out
    invalid = await run_sync(lambda: lanebus("top", "--once", "--group", "a b"))
    assert (invalid.code, "a b" in invalid.err) == (2, True)
    async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w1", heartbeat=600) as consumer:
        await wake(bus, "s1", "s2")
        work = await take_one(consumer)
        lease = await bus.session(work.session).acquire_lease("w1.token", 60)
        assert lease is not None
        found = (await run_sync(lambda: lanebus("top", "--once", "--group", "agents"))).object
        [group], [session] = _rows(found["groups"]), _rows(found["sessions"])
        assert (group["name"], group["lag"], group["pending"]) == ("agents", 1, 1)
        assert (session["session"], session["owner"]) == (work.session, "w1.token")
        text = (await run_sync(lambda: lanebus("top", "--once", "--table"))).out
        assert "\x1b" not in text
        assert re.search(r"^agents +1 +0 +1 +1 ", text, re.MULTILINE)
        assert re.search(rf"^{work.session} +w1 +1 +\d\d\.\d s ", text, re.MULTILINE)

        def shown(env: dict[str, str]) -> str:
            with lanebus.on_terminal("top", "--every", "0.2", env=env) as terminal:
                terminal.read_until("pending", after=terminal.read_until("pending"))
                terminal.end(signal.SIGINT)
            return terminal.said

        assert "\x1b[1m" in await run_sync(shown, {"TERM": "xterm"})
        assert not re.search(r"\x1b\[\d*m", await run_sync(shown, {"NO_COLOR": "1"}))
        assert "\x1b" not in await run_sync(shown, {"TERM": "dumb"})


def _rows(value: JsonValue) -> list[dict[str, JsonValue]]:
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


@pytest.mark.full
async def test_each_reading_is_a_line_of_json_and_the_second_has_the_pace(lanebus: CommandLine) -> None:
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        with lanebus.running("top", "--every", "0.2") as process, lanebus.running("top", "--every", "0.2") as other:
            assert (await _line(process))["pace"] is None
            await bus.session("s1").publish(UserMessage.text("hi"))
            while not (pace := (await _line(process))["pace"]):
                pass
            [shown] = _rows(cast("JsonValue", [pace]))
            seconds = shown["seconds"]
            assert isinstance(seconds, float)
            assert shown["publishes"] == pytest.approx(1 / seconds)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 143
            await _line(other)
            other.out.close()  # its reader is gone
            assert await run_sync(lambda: other.wait(60)) == 141


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
async def test_without_a_terminal_a_hanging_server_is_told_once_and_a_restart_survived(lanebus: CommandLine) -> None:
    lanebus("publish", "s1", "hi")
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
        os.kill(status.pid, signal.SIGKILL)
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w1") as consumer:
            await take_one(consumer)
            while not (await _line(process)).get("sessions"):
                pass
        process.send_signal(signal.SIGINT)
        assert await run_sync(process.wait) == 130
        errors = process.err.read()
        assert errors.count("the server did not answer") == 1
        assert "the server answers again" in errors


async def _line(process: Running) -> dict[str, object]:
    [found] = objects(await run_sync(process.out.readline))
    return dict(found)


def worker(name: str, *, is_alive: bool = True, seen: float | None = 0.5) -> ConsumerStatus:
    return ConsumerStatus(
        name=name, seen=seen, heartbeat=5.0, is_alive=is_alive, held=2, pending=3, sessions=(), agents=("support",)
    )


def group(name: str, *workers: ConsumerStatus, lag: int = 0, dead: int = 0, is_lag_more: bool = False) -> GroupStatus:
    return GroupStatus(
        name=name,
        consumers=workers,
        lag=lag,
        is_lag_more=is_lag_more,
        pending=sum(each.pending for each in workers),
        retries=2,
        next_retry=4.1,
        dead=dead,
        dropped=0,
    )


def session(
    name: str, *, does: Doing = "model", left: float | None = 4.0, given_to: str | None = "w1"
) -> SessionStatus:
    return SessionStatus(
        session=name,
        group="agents",
        worker=given_to,
        owner=None if left is None else "w1.token",
        epoch=3,
        seconds_left=left,
        position=1_234,
        doing=does,
        loop_id=f"{name}.main.1",
        turn=2,
    )


EMPTY = Overview(time=1_700_000_000.0, groups=(), without_worker=(), sessions=(), left_out=0, pace=None)
PACE = Pace(seconds=10, publishes=1234.6, turns=12.34, tokens=98_765.4, dollars=Decimal("1.5"), is_estimate=False)


def overview(*sessions: SessionStatus, groups: tuple[GroupStatus, ...] = (), left_out: int = 0) -> Overview:
    found = groups or (group("agents", worker("w1"), worker("w2", is_alive=False, seen=30.0)),)
    return replace(EMPTY, groups=found, sessions=sessions, left_out=left_out, pace=PACE)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def row(lines: list[Line], start: str) -> Line:
    return next(line for line in lines if line.text.startswith(start))


def test_an_overview_is_the_pace_and_three_tables() -> None:
    lines = draw(overview(session("s1")))
    assert texts(lines)[0].endswith("publishes 1,235/s  turns 12.3/s  tokens 98,765/min  cost $1.50/min")
    assert texts(lines)[1:] == [
        "",
        "group   alive  silent  lag  pending  retries   next  dead",
        "agents      1       1    0        6        2  4.1 s     0",
        "",
        "worker  group    last seen  held  pending  agents",
        "w2      agents  30.0 s ago     -        3  support",
        "w1      agents   0.5 s ago     2        3  support",
        "",
        "session  worker  epoch  lease  position  loop       turn  activity",
        "s1       w1          3  4.0 s     1,234  s1.main.1     2  calls the model",
    ]
    first, second = draw(overview(), trouble="the server is gone")[:2]
    assert (first.text, first.tone, "publishes" in second.text) == ("the server is gone", "bad", True)


def test_an_overview_says_what_is_missing_estimated_or_gone() -> None:
    work = AgentWork(agent="support", lag=12, pending=0, retries=1, longest_wait=6_600.0)
    lines = draw(replace(overview(), without_worker=(work,)))
    table = ["", "agent without worker  lag  retries  waits", "support                12        1    2 h"]
    assert (texts(lines)[4:7], lines[6].tone) == (table, "bad")
    estimated = replace(EMPTY, pace=Pace(seconds=1, publishes=1, turns=1, tokens=1, dollars=None, is_estimate=True))
    assert texts(draw(estimated))[0].endswith("publishes 1.0/s  turns ≈1.0/s  tokens ≈1/min  cost unknown")
    lines = draw(EMPTY)
    assert lines[0].text.endswith("publishes -  turns -  tokens -  cost -")
    assert "lanebus worker" in lines[-1].text
    lines = draw(overview(session("s", given_to="w2"), session("t")))
    assert row(lines, "w2 ").text.split() == ["w2", "agents", "30.0", "s", "ago", "-", "3", "support"]
    assert "w2 (gone)" in row(lines, "s ").text
    assert "(gone)" not in row(lines, "t ").text
    line = row(draw(overview(groups=(group("g", worker("w"), lag=2_000, is_lag_more=True),))), "g ")
    assert "2,000+" in line.text


def test_groups_in_trouble_are_coloured() -> None:
    for found, tone in (
        (group("g", worker("w")), "plain"),
        (group("g", worker("w"), dead=1), "warn"),
        (group("g", worker("w"), worker("x", is_alive=False)), "warn"),
        (group("g", worker("x", is_alive=False), lag=1), "bad"),
        (group("g"), "bad"),  # retries wait, and no worker is alive
    ):
        assert row(draw(overview(groups=(found,))), "g ").tone == tone


def test_a_session_row_shows_its_activity_and_lease() -> None:
    for found, expected, tone in (
        (session("s"), "calls the model", "plain"),
        (session("s", does="tools"), "runs tools", "plain"),
        (session("s", does="waiting"), "waits for a person", "warn"),
        (session("s", does="paused", left=None, given_to=None), "paused", "warn"),
        (session("s", does="handoff", left=None, given_to=None), "handed to a person", "warn"),
        (session("s", does="idle", left=None), "assigned", "plain"),
        (session("s", left=-1.0), "expired", "bad"),
    ):
        line = row(draw(overview(found)), "s ")
        assert (expected in line.text, line.tone) == (True, tone)


@pytest.mark.parametrize("columns", [20, 40, 60, 79, 200])
def test_no_line_is_wider_than_the_window(columns: int) -> None:
    many = overview(
        *(session("日本" * 12 + str(number)) for number in range(3)),
        groups=(group("g" * 64, worker("w" * 100), worker("x\x1b[31m")),),
    )
    lines = draw(many, fit=columns, trouble="the server " + "y" * 300)
    lines += draw(EMPTY, fit=columns)
    assert max(width(line.text) for line in lines) <= columns
    assert not any("\x1b" in line.text for line in lines)


@pytest.mark.parametrize("height", [1, 2, 5, 9, 12, 16, 24, 400])
def test_an_overview_has_no_more_lines_than_the_window_and_counts_the_rows_that_do_not_fit(height: int) -> None:
    groups = tuple(group(f"g{number}", *(worker(f"w{number}-{n}") for n in range(10))) for number in range(3))
    sessions = [session(f"s{number:03}") for number in range(100)]
    lines = draw(overview(*sessions, groups=groups), height=height)
    assert len(lines) <= height
    if height == 400:
        assert len(lines) == 1 + 5 + 32 + 102
    lines = draw(overview(*sessions, left_out=50), height=24)
    shown = len([line for line in lines if line.text.startswith("s0")])
    assert (len(lines), lines[-1].text) == (24, f"and {150 - shown} more")
    assert draw(overview(*sessions, left_out=50))[-1].text == "and 50 more"
