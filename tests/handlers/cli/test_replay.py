"""`lanebus replay`: projections folded anew, and what was stored of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus import Bus, open_server
from lanebus.bus.messages import AssistantMessage, Usage
from lanebus.bus.wire import Keys
from lanebus.handlers.projections import SESSIONS, STATUS, TIMELINE, TURNS, USAGE, Projection, find_projection
from lanebus.projections import project
from tests.support.cli.command_line import CommandLine, objects
from tests.support.servers.resp import Resp

__all__ = ()

pytestmark = pytest.mark.full


async def speak(lanebus: CommandLine, *tokens: int) -> None:
    """Model calls that took so many tokens."""
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        for number in tokens:
            usage = Usage(input=number, total_tokens=number)
            await bus.session("s").publish(AssistantMessage(usage=usage))


def total(answer: Mapping[str, JsonValue]) -> JsonValue:
    """The input tokens of a usage state."""
    match answer["state"]:
        case {"total": {"usage": {"input": tokens}}}:
            return tokens
        case state:
            raise AssertionError(state)


async def keep(lanebus: CommandLine) -> None:
    """Store the states of all projections, as `lanebus trim` does."""
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        session = bus.session("s")
        for projection in (USAGE, TURNS, SESSIONS, STATUS, TIMELINE):
            await project(session, cast("Projection[object]", projection))


async def test_every_projection_is_folded_anew_and_none_is_stored(lanebus: CommandLine) -> None:
    await speak(lanebus, 1, 10)
    assert lanebus("replay", "s").code == 0
    answer = lanebus("replay", "s")
    assert (answer.code, answer.err) == (0, "")
    replayed = objects(answer.out)
    assert [each["projection"] for each in replayed] == ["usage", "turns", "sessions", "status", "timeline"]
    assert [(each["position"], each["stored"], each["agrees"]) for each in replayed] == 5 * [(2, None, None)]
    assert total(replayed[0]) == 11
    await keep(lanebus)
    again = objects(lanebus("replay", "s").out)
    assert [(each["position"], each["stored"], each["agrees"]) for each in again] == 5 * [(2, 2, True)]
    assert [each["state"] for each in again] == [each["state"] for each in replayed]
    assert lanebus("verify", "s").code == 0


async def test_a_stored_state_that_the_log_does_not_give_is_told_with_the_command_that_helps(
    lanebus: CommandLine,
) -> None:
    await speak(lanebus, 1, 10)
    await keep(lanebus)
    await speak(lanebus, 100)
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            redis("HSET", Keys().projection("s", "usage", USAGE.version), "state", "{}")
    assert lanebus("verify", "s").code == 7
    key = f"usage@{USAGE.version}"
    for _ in range(2):
        answer = lanebus("replay", "s")
        assert answer.code == 7
        assert answer.err.endswith(f"remove it with: lanebus projections remove s {key}\n")
        assert [objects(answer.out)[0][name] for name in ("stored", "agrees")] == [2, False]
    assert lanebus("projections", "remove", "s", key).code == 0
    assert (lanebus("replay", "s").code, lanebus("verify", "s").code) == (0, 0)
    assert lanebus("usage", "s").object["input"] == 111


async def test_a_state_as_of_an_entry_is_printed(lanebus: CommandLine) -> None:
    await speak(lanebus, 1, 10, 100)
    await keep(lanebus)
    for names in (("usage",), ("usage", "usage")):
        words = [word for name in names for word in ("--projection", name)]
        answer = lanebus("replay", "s", "--until", "2", *words)
        assert answer.code == 0
        assert (answer.object["position"], answer.object["stored"], answer.object["agrees"]) == (2, 3, None)
        assert total(answer.object) == 11


async def test_a_terminal_shows_a_line_a_projection(lanebus: CommandLine) -> None:
    await speak(lanebus, 1)
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        await project(bus.session("s"), TURNS)
    lines = lanebus.at_terminal("replay", "s", columns=60).out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "projection",
        *(f"{projection.name}@{projection.version}" for projection in (USAGE, TURNS, SESSIONS, STATUS, TIMELINE)),
    ]
    assert "agrees at 1" in lines[2]
    assert "none" in lines[1]
    assert all(len(line) <= 60 for line in lines)


def test_what_cannot_be_replayed_is_one_line(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    for words, code in {("s", "--until", "2"): 3, ("nosuch",): 3, ("s", "--projection", "odd"): 2}.items():
        answer = lanebus("replay", *words)
        assert (answer.code, answer.out) == (code, "")
        assert answer.err


OWN = """
from lanebus import AssistantMessage, DecodeFailure
from lanebus.errors import DecodeError
from lanebus.projections import projection

@projection("tokens", version=3)
def tokens(total: int, message: AssistantMessage) -> int:
    if message.usage.input == 7:
        raise DecodeError("", "seven")
    return total + message.usage.input

number = 1
"""


async def test_a_projection_of_ones_own_is_folded_and_compared(lanebus: CommandLine, tmp_path: Path) -> None:
    own = tmp_path / "own_projection.py"
    own.write_text(OWN)
    await speak(lanebus, 1, 7, 10)
    words = ("replay", "s", "--projection", f"{own}:tokens")
    answer = lanebus(*words)
    assert answer.code == 0
    assert "skipped entries that could not be read: 1" in answer.err
    assert answer.object == {
        **{"session": "s", "projection": "tokens", "version": 3, "position": 3},
        **{"stored": None, "agrees": None, "unreadable": 1, "state": 11},
    }
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        await project(bus.session("s"), find_projection(f"{own}:tokens"))
    assert lanebus(*words).object["agrees"] is True
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            redis("HSET", Keys().projection("s", "tokens", 3), "state", "12")
    answer = lanebus(*words, "--projection", "usage")
    assert (answer.code, [each["agrees"] for each in objects(answer.out)]) == (7, [None, False])
    assert answer.err.endswith("remove it with: lanebus projections remove s tokens@3\n")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("lanebus.projections", "use one of usage, turns, sessions, status, timeline, or MODULE:ATTRIBUTE"),
        (":tokens", "write module:attribute"),
        ("no_such_package:tokens", "there is no module 'no_such_package'"),
        ("no_such_file.py:tokens", "there is no file 'no_such_file.py'"),
        ("lanebus.projections:nothing", "has no attribute 'nothing'"),
        ("lanebus.projections:project", "decorate its function with @projection"),
    ],
)
def test_a_projection_that_is_not_there_is_one_line_that_says_what_to_write(
    lanebus: CommandLine, target: str, reason: str
) -> None:
    lanebus("publish", "s", "a")
    answer = lanebus("replay", "s", "--projection", target)
    assert (answer.code, answer.out) == (2, "")
    assert reason in answer.err
