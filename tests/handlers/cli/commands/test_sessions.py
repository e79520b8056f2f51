"""`lanebus sessions`: closed, forked, trimmed, archived and erased sessions."""

from pathlib import Path

from tests.support.cli.command_line import Answer, CommandLine, objects


def test_the_state_lists_closed_trimmed_archived_and_forked(lanebus: CommandLine, tmp_path: Path) -> None:
    for text in "abc":
        lanebus("publish", "whole", text)
    assert "state" not in lanebus.at_terminal("sessions").out.split()
    states = ("is_closed", "first_kept", "archived", "origin")
    assert [lanebus("sessions").object[name] for name in states] == [False, 1, 0, None]
    assert lanebus("fork", "whole", "--at", "1", "--id", "part").code == 0
    assert lanebus("archive", "whole", "--archive", tmp_path / "a").code == 0
    assert lanebus("trim", "whole", "--before", "3").code == 0
    assert lanebus("close", "whole").code == 0
    shown = {line["session"]: line for line in objects(lanebus("sessions").out)}
    assert [shown["whole"][name] for name in states] == [True, 3, 3, None]
    assert shown["part"]["origin"] == {"session": "whole", "position": 1}
    titles, *rows = lanebus.at_terminal("sessions", columns=150).out.splitlines()
    assert "state" in titles.split()
    assert ["closed, from 3, archived to 3" in row for row in rows if row.startswith("whole")] == [True]
    assert ["fork of whole at 1" in row for row in rows if row.startswith("part")] == [True]
    lanebus("publish", "gone", "a")
    assert lanebus("erase", "gone", "--yes").code == 0
    for state, expected in {
        "any": ["part", "whole"],
        "open": ["part"],
        "closed": ["whole"],
        "forked": ["part"],
        "trimmed": ["whole"],
        "archived": ["whole"],
    }.items():
        assert (state, sorted(names(lanebus("sessions", "--state", state)))) == (state, expected)
    cursor = cursor_of(lanebus("sessions", "--state", "closed"))
    older = lanebus("sessions", "--state", "closed", "--after", cursor, "--table")
    assert (older.out, older.err) == ("", "no older session matches: the list ends at this cursor\n")
    name = 64 * "x"
    lanebus("publish", name, 20 * "words ")
    assert name not in lanebus.at_terminal("sessions", columns=60).out
    assert name in lanebus.at_terminal("sessions", "--wide", columns=60).out
    assert name in lanebus("sessions", "--table").out


def names(answer: Answer) -> list[str]:
    assert answer.code == 0, answer.err
    return [str(line["session"]) for line in objects(answer.out)]


def cursor_of(answer: Answer) -> str:
    """The place after the last session of a page."""
    return str(objects(answer.out)[-1]["cursor"])


def test_pages_follow_each_other_without_gap_or_repeat_also_if_the_last_session_changed(lanebus: CommandLine) -> None:
    for name in "abcde":
        lanebus("publish", name, "hi")
    first = lanebus("sessions", "--limit", "2")
    cursor = cursor_of(first)
    assert names(first) == ["e", "d"]
    assert first.err == f"2 of 5 sessions; all: --limit 0, next page: --after {cursor}\n"
    second = lanebus("sessions", "--limit", "2", "--after", cursor)
    assert names(second) == ["c", "b"]
    last = lanebus("sessions", "--limit", "2", "--after", cursor_of(second))
    assert (names(last), last.err) == (["a"], "")
    assert names(lanebus("sessions", "--limit", "0")) == ["e", "d", "c", "b", "a"]
    for wrong in ("d", "nosuch", "12-0"):
        refused = lanebus("sessions", "--after", wrong)
        assert (refused.code, refused.out, "cursor" in refused.err) == (2, "", True)
    for words in (("publish", "d", "more"), ("erase", "d", "--yes")):
        lanebus(*words)
        assert names(lanebus("sessions", "--limit", "2", "--after", cursor)) == ["c", "b"]


def test_sessions_that_wait_for_a_person_are_listed_alone(lanebus: CommandLine) -> None:
    lanebus("publish", "idle", "hi")
    lanebus("publish", "held", "hi")
    assert names(lanebus("sessions", "--waiting")) == []
    lanebus("control", "held", "pause")
    with lanebus.running("worker", "lanebus.handlers.agent.demo:agent"), lanebus.running("tail", "held", "-f") as tail:
        assert any('"kind":"agent.control.answered"' in line for line in tail.out)
    assert names(lanebus("sessions", "--waiting")) == ["held"]
