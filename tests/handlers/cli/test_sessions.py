"""`lanebus sessions`: closed, forked, trimmed, archived and erased sessions."""

from pathlib import Path

from tests.support.cli.command_line import CommandLine, objects

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
