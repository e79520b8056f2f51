"""`lanebus sessions`: closed, forked, trimmed, archived and erased sessions."""

from pathlib import Path

from tests.support.cli.command_line import Answer, CommandLine, objects

__all__ = ()


def test_an_open_untrimmed_session_has_no_state(lanebus: CommandLine) -> None:
    lanebus("publish", "whole", "one")
    assert "state" not in lanebus.at_terminal("sessions").out.split()
    shown = lanebus("sessions").object
    assert (shown["is_closed"], shown["first_kept"], shown["archived"], shown["origin"]) == (False, 1, 0, None)


def test_the_state_lists_closed_trimmed_archived_and_forked(lanebus: CommandLine, tmp_path: Path) -> None:
    for text in "abc":
        lanebus("publish", "whole", text)
    assert lanebus("fork", "whole", "--at", "1", "--id", "part").code == 0
    assert lanebus("archive", "whole", "--archive", tmp_path / "a").code == 0
    assert lanebus("trim", "whole", "--before", "3").code == 0
    assert lanebus("close", "whole").code == 0
    shown = {line["session"]: line for line in objects(lanebus("sessions").out)}
    assert [shown["whole"][name] for name in ("is_closed", "first_kept", "archived", "origin")] == [True, 3, 3, None]
    assert shown["part"]["origin"] == {"session": "whole", "position": 1}
    titles, *rows = lanebus.at_terminal("sessions", columns=150).out.splitlines()
    assert "state" in titles.split()
    assert ["closed, from 3, archived to 3" in row for row in rows if row.startswith("whole")] == [True]
    assert ["fork of whole at 1" in row for row in rows if row.startswith("part")] == [True]


def test_an_erased_session_is_not_listed(lanebus: CommandLine) -> None:
    lanebus("publish", "gone", "a")
    lanebus("publish", "kept", "a")
    assert lanebus("erase", "gone", "--yes").code == 0
    assert lanebus("sessions").object["session"] == "kept"


def names(answer: Answer) -> list[str]:
    assert answer.code == 0, answer.err
    return [str(line["session"]) for line in objects(answer.out)]


def cursor_of(answer: Answer) -> str:
    """The place after the last session of a page."""
    return str(objects(answer.out)[-1]["cursor"])


def test_pages_follow_each_other_without_gap_or_repeat(lanebus: CommandLine) -> None:
    for name in "abcde":
        lanebus("publish", name, "hi")
    first = lanebus("sessions", "--limit", "2")
    assert names(first) == ["e", "d"]
    assert first.err == f"2 of 5 sessions; all: --limit 0, next page: --after {cursor_of(first)}\n"
    second = lanebus("sessions", "--limit", "2", "--after", cursor_of(first))
    assert names(second) == ["c", "b"]
    last = lanebus("sessions", "--limit", "2", "--after", cursor_of(second))
    assert (names(last), last.err) == (["a"], "")
    assert names(lanebus("sessions", "--limit", "0")) == ["e", "d", "c", "b", "a"]
    for wrong in ("d", "nosuch", "12-0"):
        refused = lanebus("sessions", "--after", wrong)
        assert (refused.code, refused.out) == (2, "")
        assert "cursor" in refused.err


def test_the_next_page_has_what_follows_though_the_last_session_changed_or_was_erased(lanebus: CommandLine) -> None:
    for name in "abcdef":
        lanebus("publish", name, "hi")
    cursor = cursor_of(lanebus("sessions", "--limit", "2"))
    lanebus("publish", "e", "more")
    assert names(lanebus("sessions", "--limit", "2", "--after", cursor)) == ["d", "c"]
    lanebus("erase", "e", "--yes")
    assert names(lanebus("sessions", "--limit", "2", "--after", cursor)) == ["d", "c"]


def test_sessions_of_a_state_are_listed_alone(lanebus: CommandLine, tmp_path: Path) -> None:
    for name in ("plain", "shut", "cut"):
        lanebus("publish", name, "one")
        lanebus("publish", name, "two")
    lanebus("fork", "plain", "--at", "1", "--id", "part")
    lanebus("archive", "cut", "--archive", tmp_path / "a")
    lanebus("trim", "cut", "--before", "2")
    lanebus("close", "shut")
    for state, expected in {
        "any": {"plain", "shut", "cut", "part"},
        "open": {"plain", "cut", "part"},
        "closed": {"shut"},
        "forked": {"part"},
        "trimmed": {"cut"},
        "archived": {"cut"},
    }.items():
        assert set(names(lanebus("sessions", "--state", state))) == expected, state
    cursor = cursor_of(lanebus("sessions", "--state", "closed"))
    shown = lanebus("sessions", "--state", "closed", "--after", cursor, "--table")
    assert (shown.out, shown.err) == ("", "no older session matches: the list ends at this cursor\n")


def test_sessions_that_wait_for_a_person_are_listed_alone(lanebus: CommandLine) -> None:
    lanebus("publish", "idle", "hi")
    lanebus("publish", "held", "hi")
    assert names(lanebus("sessions", "--waiting")) == []
    lanebus("control", "held", "pause")
    with lanebus.running("worker", "lanebus.handlers.agent.demo:agent"), lanebus.running("tail", "held", "-f") as tail:
        assert tail.stdout is not None
        assert any('"kind":"agent.control.answered"' in line for line in tail.stdout)
    assert names(lanebus("sessions", "--waiting")) == ["held"]


def test_wide_tables_cut_no_id(lanebus: CommandLine) -> None:
    name = 64 * "x"
    lanebus("publish", name, 20 * "words ")
    assert name not in lanebus.at_terminal("sessions", columns=60).out
    assert name in lanebus.at_terminal("sessions", "--wide", columns=60).out
    assert name in lanebus("sessions", "--table").out
