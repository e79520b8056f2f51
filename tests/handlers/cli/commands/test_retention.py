"""`lanebus archive`, `trim`, `fork` and `erase`."""

import gzip
from pathlib import Path

import pytest

from lanebus import Bus, UserMessage
from lanebus.messages import AgentStarted
from tests.support.cli.command_line import CommandLine, objects

pytestmark = pytest.mark.full

TEN = "".join(f'{{"role":"user","content":"m{n}"}}\n' for n in range(1, 11))


def make(lanebus: CommandLine) -> None:
    """Make session `s` with ten entries."""
    assert lanebus("publish", "s", "--json", stdin=TEN).code == 0


def positions(lanebus: CommandLine, session: str, *words: str | Path) -> list[object]:
    answer = lanebus("tail", session, *words)
    assert answer.code == 0, answer.err
    return [entry["position"] for entry in objects(answer.out)]


# --- archive ------------------------------------------------------------------------------------------------------


def test_archived_and_trimmed_entries_stay_readable_and_verifiable(lanebus: CommandLine, tmp_path: Path) -> None:
    make(lanebus)
    place = ("--archive", tmp_path / "a")
    for words, code in ((("s",), 2), (place, 2), (("nosuch", *place), 3)):
        assert lanebus("archive", *words).code == code
    archived = lanebus("archive", "s", "--before", "6", *place)
    assert (archived.code, archived.err) == (0, "")
    assert [archived.object[name] for name in ("session", "position", "entries")] == ["s", 5, 5]
    [file] = (tmp_path / "a").rglob("*.gz")
    assert b"m1" in gzip.decompress(file.read_bytes())
    assert lanebus("archive", "--all", *place).object["position"] == 10
    assert lanebus("archive", "--all", *place).object["entries"] == 0
    assert lanebus("trim", "s", "--before", "9").object["first_kept"] == 9
    assert positions(lanebus, "s", *place) == list(range(1, 11))
    without = lanebus("tail", "s")
    assert (without.code, without.out, "trimmed" in without.err) == (4, "", True)
    assert lanebus("verify", "s", *place).object["entries"] == 10
    assert lanebus("usage", "s", *place).code == 0
    shown = lanebus.at_terminal("archive", "s", *place).out
    assert shown.split()[:2] == ["s", "10"]


def test_an_export_contains_trimmed_entries_that_the_archive_holds(lanebus: CommandLine, tmp_path: Path) -> None:
    make(lanebus)
    place = ("--archive", tmp_path / "a")
    whole = lanebus("export", "s").out
    assert lanebus("trim", "s", "--before", "3").code == 0
    assert lanebus("archive", "s", *place).code == 0
    assert lanebus("fork", "s", "--at", "7", "--id", "f").code == 0
    assert lanebus("trim", "s", "--before", "9").code == 0
    exported = lanebus("export", "s", *place)
    assert (exported.code, exported.err) == (0, "s: entries 1 to 2 were trimmed and are not exported\n")
    header, *entries = objects(exported.out)
    assert (header["first"], header["last"]) == (3, 10)
    assert entries == objects(whole)[3:]
    forked = objects(lanebus("export", "f", *place).out)
    assert (forked[0]["first"], [entry["position"] for entry in forked[1:]]) == (3, [3, 4, 5, 6, 7])
    without = lanebus("export", "s")
    assert (without.code, [entry["position"] for entry in objects(without.out)[1:]]) == (0, [9, 10])
    assert without.err == "s: entries 1 to 8 were trimmed and are not exported\n"


def test_a_damaged_archive_is_reported(lanebus: CommandLine, tmp_path: Path) -> None:
    make(lanebus)
    place = ("--archive", tmp_path / "a")
    assert lanebus("archive", "s", *place).code == 0
    assert lanebus("verify", "s", *place).code == 0
    [file] = (tmp_path / "a").rglob("*.gz")
    file.write_bytes(file.read_bytes()[:-10])
    answer = lanebus("verify", "s", *place)
    assert answer.code == 7
    assert '"problems":[{"kind":"archive"' in answer.out
    assert lanebus("trim", "s", "--before", "9").code == 0
    refused = lanebus("tail", "s", *place)
    assert (refused.code, refused.out, refused.err.count("\n")) == (7, "", 2)


# --- trim ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_of_trim_shows_the_plan_and_changes_nothing(lanebus: CommandLine) -> None:
    make(lanebus)
    for more in ((), ("--force",), ("--dry-run",)):
        answer = lanebus("trim", "s", "--before", "99999", *more)
        assert (answer.code, answer.out) == (3, "")
        assert answer.err == "error: session 's' has no position 99999\nhint: name one from 1 to its last, 10\n"
    looked = lanebus("trim", "s", "--before", "4", "--dry-run")
    assert (looked.code, looked.err) == (0, "")
    size = looked.object["size_bytes"]
    wanted = {"session": "s", "entries": 3, "size_bytes": size, "first_kept": 4, "holders": {}}
    assert looked.object == {**wanted, "is_dry_run": True}
    assert len(positions(lanebus, "s")) == 10
    done = lanebus("trim", "s", "--before", "4")
    assert done.object == {**wanted, "is_dry_run": False}
    assert done.err.startswith("s: trimming 3 entries of ")
    assert positions(lanebus, "s", "--after", "3") == [4, 5, 6, 7, 8, 9, 10]
    assert lanebus("verify", "--all").code == 0
    assert lanebus("trim", "s", "--before", "11").object["entries"] == 7


async def test_entries_that_an_agent_needs_are_trimmed_only_by_force_or_after_archiving(
    lanebus: CommandLine, tmp_path: Path
) -> None:
    for name in ("s", "forced"):
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            session = bus.session(name)
            await session.publish(*[UserMessage.text("hi")] * 3, wake=False)
            assert await session.acquire_lease("me", 60) is not None
            await session.publish(AgentStarted(loop_id="l", agent="a").as_extension())
    refused = lanebus("trim", "s", "--before", "3")
    assert (refused.code, refused.out) == (4, "")
    assert "are still needed by a:agent at 0" in refused.err
    assert "lanebus archive SESSION" in refused.err
    assert lanebus("archive", "s", "--archive", tmp_path / "a").code == 0
    assert lanebus("trim", "s", "--before", "3").object["entries"] == 2
    assert lanebus("trim", "forced", "--before", "3", "--force").object["holders"] == {"a:agent": 0}


async def test_entries_that_a_projection_needs_are_trimmed_only_by_force(lanebus: CommandLine) -> None:
    make(lanebus)
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        session = bus.session("s")
        cursor = (await session.head()).cursor
        await session.save_projection("mine", 1, b"{}", cursor=cursor, expected=0)
    lanebus("publish", "s", "later")
    assert lanebus("trim", "s", "--before", "11").code == 0
    refused = lanebus("trim", "s", "--before", "12")
    assert (refused.code, refused.out) == (4, "")
    assert refused.err.count("\n") == 2
    assert "still needed by p:mine@1" in refused.err
    shown = lanebus.at_terminal("trim", "s", "--before", "12", "--dry-run", columns=200).out
    assert "needed by p:mine@1" in shown
    forced = lanebus("trim", "s", "--before", "12", "--force")
    assert forced.object["first_kept"] == 12
    assert "still needed by p:mine@1" in forced.err
    [note] = objects(lanebus("tail", "s", "--after", "11").out)
    message = note["message"]
    assert isinstance(message, dict)
    assert message["kind"] == "session.trimmed"
    listed = lanebus("projections", "list", "s")
    assert "mine@1" in [each["projection"] for each in objects(listed.out)]
    assert lanebus("projections", "remove", "s", "mine@1").code == 0
    assert lanebus("projections", "remove", "s", "mine@1").code == 3
    assert lanebus("verify", "--all").code == 0


# --- fork ---------------------------------------------------------------------------------------------------------


def test_a_fork_shares_the_first_entries_and_continues_on_its_own(lanebus: CommandLine) -> None:
    make(lanebus)
    for words, code, expected in (
        (["s", "--at", "11"], 3, "11"),
        (["s", "--id", "s"], 4, "'s'"),
        (["s", "--id", "a b"], 2, "does not match"),
        (["nosuch"], 3, "has no entries"),
    ):
        refused = lanebus("fork", *words)
        assert (refused.code, refused.out, refused.err.count("\n"), expected in refused.err) == (code, "", 2, True)
    answer = lanebus("fork", "s", "--at", "4", "--id", "other")
    assert (answer.code, answer.err) == (0, "")
    assert answer.object == {"session": "other", "parent": "s", "position": 4}
    assert lanebus("fork", "s", "--at", "4", "--id", "other").object == answer.object
    assert lanebus("publish", "other", "mine").object["positions"] == [5]
    assert positions(lanebus, "other") == [1, 2, 3, 4, 5]
    assert len(positions(lanebus, "s")) == 10
    made = lanebus.at_terminal("fork", "s").out.strip()
    assert positions(lanebus, made) == list(range(1, 11))
    assert lanebus("verify", "--all").code == 0


# --- erase --------------------------------------------------------------------------------------------------------


def test_an_erased_session_refuses_every_command(lanebus: CommandLine) -> None:
    make(lanebus)
    answer = lanebus("erase", "s", "--yes")
    assert answer.object == {"session": "s", "is_erased": True, "media": []}
    assert answer.err.startswith("s: erasing entries 1 to 10, ")
    for words in (["tail", "s"], ["publish", "s", "again"], ["usage", "s"], ["close", "s"], ["fork", "s"]):
        refused = lanebus(*words)
        assert (words, refused.code, refused.out, refused.err) == (
            words,
            4,
            "",
            "error: session 's' was erased\nhint: use another session id\n",
        )
    assert lanebus("verify", "s").object["notes"] == ["it was erased"]
    assert lanebus("verify", "--all").code == 0
    again = lanebus("erase", "s", "--yes")
    assert (again.code, again.err) == (0, "s: already erased; removing what may be left\n")


def test_entries_that_forks_share_are_erased_only_by_force(lanebus: CommandLine) -> None:
    make(lanebus)
    lanebus("fork", "s", "--at", "4", "--id", "other")
    refused = lanebus("erase", "s", "--yes")
    assert (refused.code, refused.out) == (4, "")
    assert "shared with other" in refused.err
    assert lanebus("erase", "s", "--yes", "--force").code == 0
    answer = lanebus("verify", "other")
    assert answer.code == 7
    assert "erased" in answer.out
    assert lanebus("tail", "other").code == 4


def test_erase_asks_on_a_terminal_and_needs_yes_without_one(lanebus: CommandLine) -> None:
    make(lanebus)
    answer = lanebus("erase", "s")
    assert (answer.code, "--yes" in answer.err) == (2, True)
    shown = lanebus.at_terminal("erase", "s", typed="n\n")
    assert shown.code == 4
    assert "erasing entries 1 to 10" in shown.out
    assert "nothing was erased" in shown.out
    assert len(positions(lanebus, "s")) == 10
    shown = lanebus.at_terminal("erase", "s", typed="y\n")
    assert (shown.code, shown.out.endswith("s: erased\n")) == (0, True)
    assert lanebus("erase", "nosuch", "--yes").code == 3
