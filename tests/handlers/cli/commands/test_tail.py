"""`lanebus tail`: the entries of a session, as JSON and on a terminal."""

import shutil
from pathlib import Path

import pytest

from lanebus import Bus, Delta, Lane, UserMessage
from lanebus.bus import open_server
from lanebus.bus.wire import Keys
from tests.support.cli.command_line import CommandLine, objects
from tests.support.servers.resp import Resp

pytestmark = pytest.mark.full

SIX = "".join(
    f'{{"role":"user","content":"m{n}"}}\n' if n % 3 else f'{{"role":"extension","kind":"k","data":{n}}}\n'
    for n in range(1, 7)
)
"""positions 3 and 6 are in the extension lane"""


def positions(text: str) -> list[object]:
    return [entry["position"] for entry in objects(text)]


def test_an_envelope_is_one_line_with_the_native_message(lanebus: CommandLine, tmp_path: Path) -> None:
    lanebus("publish", "s", "--json", stdin='{"role":"user","content":"a","timestamp":5}')
    entry = lanebus("tail", "s").object
    assert list(entry) == ["session", "position", "cursor", "lane", "time", "producer", "message"]
    assert (entry["session"], entry["position"], entry["lane"]) == ("s", 1, "llm")
    assert isinstance(entry["time"], float)
    assert entry["message"] == {"role": "user", "content": [{"type": "text", "text": "a"}], "timestamp": 5}
    path = tmp_path / "s.jsonl"
    path.write_text(lanebus("export", "s").out, encoding="utf-8")
    assert lanebus("import", path, "--session", "t").code == 0
    lanebus("publish", "t", "own")
    imported, own = objects(lanebus("tail", "t").out)
    assert (imported["is_imported"], "is_imported" in own) == (True, False)
    refused = lanebus("tail", "t", "--after", str(entry["cursor"]))
    assert (refused.out, refused.code != 0, "lost entries" in refused.err) == ("", True, False)
    assert "check that the cursor is of this session" in refused.err
    for words in ((), ("--follow",)):
        answer = lanebus("tail", "s", "--after", "9", *words)
        assert (answer.code, answer.out) == (3, "")
        assert answer.err == "error: session 's' has no entry 9\nhint: use a position up to 1\n"


def test_a_cursor_of_a_lost_end_is_refused_after_the_log_grew_again(lanebus: CommandLine, tmp_path: Path) -> None:
    lanebus("publish", "s", "a")
    shutil.copytree(lanebus.data_dir, tmp_path / "copy", ignore=shutil.ignore_patterns("sock"))
    lanebus("publish", "s", "b")
    first, second = (str(entry["cursor"]) for entry in objects(lanebus("tail", "s").out))
    shutil.rmtree(lanebus.data_dir)
    shutil.copytree(tmp_path / "copy", lanebus.data_dir)
    lanebus.data_dir.chmod(0o700)
    for word in "xyz":
        lanebus("publish", "s", word)
    assert positions(lanebus("tail", "s", "--after", first).out) == [2, 3, 4]
    # A position names no incarnation, so it is not checked.
    assert positions(lanebus("tail", "s", "--after", "2").out) == [3, 4]
    refused = lanebus("tail", "s", "--after", second)
    assert (refused.out, refused.code != 0, "unchanged up to 1" in refused.err) == ("", True, True)


def test_lane_kind_after_and_lines_select_entries(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "--json", stdin=SIX)
    for words, shown in {
        "": [1, 2, 3, 4, 5, 6],
        "--lane extension": [3, 6],
        "--after 4": [5, 6],
        "--after 4-0 --lane llm": [5],
        "-n 2": [5, 6],
        "-n 0": [],
        "-n 99": [1, 2, 3, 4, 5, 6],
        "-n 2 --lane extension": [3, 6],
        "-n 1 --lane llm": [5],
        "-n 2 --lane llm --after 4": [5],
        "--kind k": [3, 6],
        "--kind us* --after 3": [4, 5],
        "--kind user --kind k": [1, 2, 3, 4, 5, 6],
        "-n 1 --kind user": [5],
        "--kind other": [],
    }.items():
        answer = lanebus("tail", "s", *words.split())
        assert (words, answer.code, positions(answer.out)) == (words, 0, shown)


def test_a_follower_gets_the_last_entries_and_then_new_ones(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "--json", stdin=SIX)
    with lanebus.running("tail", "s", "-f", "-n", "1") as process, lanebus.running("tail", "new", "-f") as other:
        assert positions(process.out.readline()) == [6]
        lanebus("publish", "s", "seven")
        assert positions(process.out.readline()) == [7]
        assert "no entries yet" in other.err.readline()
        lanebus("publish", "new", "a")
        assert positions(other.out.readline()) == [1]


async def test_a_follower_reports_the_close_and_ends_with_until_closed(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "--json", stdin=SIX)
    with lanebus.running("tail", "s", "-f", "--kind", "k") as process:
        assert [positions(process.out.readline()) for _ in range(2)] == [[3], [6]]
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            await bus.session("s").close()
            assert "session 's' was closed" in process.err.readline()
            await bus.session("s").reopen()
            assert "session 's' was reopened" in process.err.readline()
            with lanebus.running("tail", "s", "--until-closed", "--after", "8") as ending:
                await bus.session("s").close()
                assert positions(ending.out.readline()) == [9]
                assert "session 's' was closed" in ending.err.readline()
                assert ending.wait(30) == 0
    late = lanebus("tail", "s", "--until-closed", "--kind", "session.closed")
    assert (late.code, positions(late.out)) == (0, [7, 9])
    assert "was closed" in late.err


async def test_live_deltas_are_shown_with_live(lanebus: CommandLine) -> None:
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        session = bus.session("s")
        await session.publish(UserMessage.text("a"))
        with lanebus.running("tail", "s", "--live") as process:
            assert positions(process.out.readline()) == [1]
            await session.preview(Delta(kind="text", message_id="m", delta="Hel"))
            [piece] = objects(process.out.readline())
    assert (piece["position"], piece["delta"]) == (1, 1)
    assert piece["message"] == {"role": "delta", "kind": "text", "messageId": "m", "delta": "Hel", "block": 0}


async def test_a_forged_entry_is_shown_as_unreadable_and_the_others_are_read(lanebus: CommandLine) -> None:
    assert lanebus("publish", "s", "--json", stdin=SIX).code == 0
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            # Position 6 is in the extension lane: this forges an LLM message at the same position.
            forged = '{"role":"extension","kind":"k","data":1}'
            stream = Keys().lane("s", Lane.LLM)
            redis("XADD", stream, "6-0", "v", "1", "t", "1", "by", "x", "m", forged)
        entries = objects(lanebus("tail", "s").out)
    bad = [entry for entry in entries if entry["message"] is None]
    assert [entry["position"] for entry in bad] == [6]
    error = bad[0]["error"]
    assert isinstance(error, dict)
    assert error["type"] == "ForgedEntry"
    assert [entry["position"] for entry in entries if entry["message"] is not None] == [1, 2, 3, 4, 5, 6]


def test_a_terminal_shows_one_line_per_entry_that_fits(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "--json", stdin=f'{{"role":"user","content":"{200 * "x"}\\u001b[31m"}}\n' + SIX)
    lines = lanebus.at_terminal("tail", "s", columns=60).out.splitlines()
    assert len(lines) == 7
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].startswith("     1  llm  20")
    assert lines[0].endswith("xx…")
    assert lines[3].split()[:2] == ["4", "ext"]
    assert lines[3].endswith("k             3")


def test_json_has_no_control_characters_on_a_terminal_and_is_valid_in_any_encoding(lanebus: CommandLine) -> None:
    text = "× 日本 🙂 a\x9b31mb\x1b[1m\u202ec"
    lanebus("publish", "s", text)
    shown = [lanebus.at_terminal("tail", "s", "--json", columns=500)]
    assert not set(shown[0].out) & set("\x9b\x1b\u202e")
    shown += [lanebus.anew("tail", "s", env={"PYTHONIOENCODING": each}) for each in ("ascii", "latin-1", "utf-8")]
    for answer in shown:
        message = answer.object["message"]
        assert isinstance(message, dict)
        assert message["content"] == [{"type": "text", "text": text}]
