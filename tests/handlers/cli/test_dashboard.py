"""The overview of `lanebus top` as lines that fit a window."""

from decimal import Decimal

import pytest

from lanebus.bus import AgentWork, ConsumerStatus, GroupStatus
from lanebus.handlers.cli.commands.top import draw
from lanebus.handlers.cli.output import Line
from lanebus.handlers.cli.text import width
from lanebus.handlers.projections import Doing
from lanebus.handlers.serve import Overview, Pace, SessionStatus

__all__ = ()


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


def overview(
    *sessions: SessionStatus,
    groups: tuple[GroupStatus, ...] = (),
    without_worker: tuple[AgentWork, ...] = (),
    left_out: int = 0,
) -> Overview:
    pace = Pace(seconds=10, publishes=1234.6, turns=12.34, tokens=98_765.4, dollars=Decimal("1.5"), is_estimate=False)
    found = groups or (group("agents", worker("w1"), worker("w2", is_alive=False, seen=30.0)),)
    return Overview(
        time=1_700_000_000.0,
        groups=found,
        without_worker=without_worker,
        sessions=sessions,
        left_out=left_out,
        pace=pace,
    )


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


def test_agents_without_a_worker_are_a_table_of_their_own() -> None:
    work = AgentWork(agent="support", lag=12, pending=0, retries=1, longest_wait=6_600.0)
    lines = draw(overview(without_worker=(work,)))
    assert texts(lines)[4:7] == [
        "",
        "agent without worker  lag  retries  waits",
        "support                12        1    2 h",
    ]
    assert lines[6].tone == "bad"


def test_estimated_figures_are_marked() -> None:
    pace = Pace(seconds=1, publishes=1, turns=1, tokens=1, dollars=None, is_estimate=True)
    estimated = Overview(time=1.0, groups=(), without_worker=(), sessions=(), left_out=0, pace=pace)
    assert texts(draw(estimated))[0].endswith("publishes 1.0/s  turns ≈1.0/s  tokens ≈1/min  cost unknown")


def test_an_overview_without_groups_names_the_worker_command() -> None:
    lines = draw(Overview(time=1.0, groups=(), without_worker=(), sessions=(), left_out=0, pace=None))
    assert "lanebus worker" in lines[-1].text
    assert lines[0].text.endswith("publishes -  turns -  tokens -  cost -")


@pytest.mark.parametrize(
    ("found", "tone"),
    [
        (group("g", worker("w")), "plain"),
        (group("g", worker("w"), dead=1), "warn"),
        (group("g", worker("w"), worker("x", is_alive=False)), "warn"),
        (group("g", worker("x", is_alive=False), lag=1), "bad"),
        (group("g"), "bad"),  # retries wait, and no worker is alive
    ],
)
def test_groups_in_trouble_are_coloured(found: GroupStatus, tone: str) -> None:
    assert row(draw(overview(groups=(found,))), "g ").tone == tone


@pytest.mark.parametrize(
    ("found", "expected", "tone"),
    [
        (session("s"), "calls the model", "plain"),
        (session("s", does="tools"), "runs tools", "plain"),
        (session("s", does="waiting"), "waits for a person", "warn"),
        (session("s", does="paused", left=None, given_to=None), "paused", "warn"),
        (session("s", does="handoff", left=None, given_to=None), "handed to a person", "warn"),
        (session("s", does="idle", left=None), "assigned", "plain"),
        (session("s", left=-1.0), "expired", "bad"),
    ],
)
def test_a_session_row_shows_its_activity_and_lease(found: SessionStatus, expected: str, tone: str) -> None:
    line = row(draw(overview(found)), "s ")
    assert expected in line.text
    assert line.tone == tone


def test_a_worker_that_is_gone_holds_nothing_and_is_marked_in_its_sessions() -> None:
    lines = draw(overview(session("s", given_to="w2"), session("t")))
    assert row(lines, "w2 ").text.split() == ["w2", "agents", "30.0", "s", "ago", "-", "3", "support"]
    assert "w2 (gone)" in row(lines, "s ").text
    assert "(gone)" not in row(lines, "t ").text


def test_a_lag_above_the_counting_limit_ends_with_a_plus() -> None:
    line = row(draw(overview(groups=(group("g", worker("w"), lag=2_000, is_lag_more=True),))), "g ")
    assert "2,000+" in line.text


@pytest.mark.parametrize("columns", [20, 40, 60, 79, 200])
def test_no_line_is_wider_than_the_window(columns: int) -> None:
    many = overview(
        *(session("日本" * 12 + str(number)) for number in range(3)),
        groups=(group("g" * 64, worker("w" * 100), worker("x\x1b[31m")),),
    )
    lines = draw(many, fit=columns, trouble="the server " + "y" * 300)
    lines += draw(Overview(time=1.0, groups=(), without_worker=(), sessions=(), left_out=0, pace=None), fit=columns)
    assert max(width(line.text) for line in lines) <= columns
    assert not any("\x1b" in line.text for line in lines)


@pytest.mark.parametrize("height", [1, 2, 5, 9, 12, 16, 24, 400])
def test_an_overview_has_no_more_lines_than_the_window(height: int) -> None:
    many = overview(
        *(session(f"s{number:03}") for number in range(100)),
        groups=tuple(group(f"g{number}", *(worker(f"w{number}-{n}") for n in range(10))) for number in range(3)),
    )
    lines = draw(many, height=height)
    assert len(lines) <= height
    if height == 400:
        assert len(lines) == 1 + 5 + 32 + 102


def test_rows_that_do_not_fit_are_counted() -> None:
    many = overview(*(session(f"s{number:03}") for number in range(100)), left_out=50)
    lines = draw(many, height=24)
    assert len(lines) == 24
    shown = len([line for line in lines if line.text.startswith("s0")])
    assert lines[-1].text == f"and {150 - shown} more"
    assert draw(many)[-1].text == "and 50 more"


def test_trouble_is_the_first_line() -> None:
    first, second = draw(overview(), trouble="the server is gone")[:2]
    assert (first.text, first.tone) == ("the server is gone", "bad")
    assert "publishes" in second.text
