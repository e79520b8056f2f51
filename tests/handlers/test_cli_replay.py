"""`lanebus replay`: projections folded anew, and what was stored of them."""

from collections.abc import Mapping

from pydantic import JsonValue

from bus.bus import Bus
from bus.keys import Keys
from bus.messages.message import AssistantMessage
from bus.messages.usage import Usage
from bus.server import open_server
from handlers.agent.status import STATUS
from handlers.projections.sessions import SESSIONS
from handlers.projections.turns import TURNS
from handlers.projections.usage import USAGE
from tests.support.cli.command_line import CommandLine, objects
from tests.support.servers.resp import Resp

__all__ = ()


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


async def test_every_projection_is_folded_anew_and_stored(lanebus: CommandLine) -> None:
    await speak(lanebus, 1, 10)
    answer = lanebus("replay", "s")
    assert (answer.code, answer.err) == (0, "")
    replayed = objects(answer.out)
    assert [each["projection"] for each in replayed] == ["usage", "turns", "sessions", "status"]
    assert [(each["position"], each["stored"], each["agrees"]) for each in replayed] == 4 * [(2, None, None)]
    assert total(replayed[0]) == 11
    again = objects(lanebus("replay", "s").out)
    assert [(each["position"], each["stored"], each["agrees"]) for each in again] == 4 * [(2, 2, True)]
    assert [each["state"] for each in again] == [each["state"] for each in replayed]
    assert lanebus("verify", "s").code == 0


async def test_a_stored_state_that_the_log_does_not_give_is_told_and_mended(lanebus: CommandLine) -> None:
    await speak(lanebus, 1, 10)
    lanebus("replay", "s", "--projection", "usage")
    await speak(lanebus, 100)
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            redis("HSET", Keys().projection("s", "usage", USAGE.version), "state", "{}")
    assert lanebus("verify", "s").code == 1
    seen = lanebus("replay", "s", "--until", "3")
    assert seen.code == 1
    assert objects(lanebus("replay", "s", "--until", "3").out)[0]["agrees"] is False  # it stored nothing
    answer = lanebus("replay", "s")
    assert answer.code == 1
    assert answer.err == f"s: stored with another state than the log gives: usage@{USAGE.version}\n"
    assert objects(answer.out)[0]["stored"] == 2
    assert objects(lanebus("replay", "s").out)[0]["agrees"] is True
    assert lanebus("usage", "s").object["input"] == 111
    assert lanebus("verify", "s").code == 0


async def test_a_state_as_of_an_entry_is_printed_and_not_stored(lanebus: CommandLine) -> None:
    await speak(lanebus, 1, 10, 100)
    lanebus("replay", "s", "--projection", "usage")
    answer = lanebus("replay", "s", "--until", "2", "--projection", "usage")
    assert answer.code == 0
    assert (answer.object["position"], answer.object["stored"], answer.object["agrees"]) == (2, 3, None)
    assert total(answer.object) == 11
    assert lanebus("replay", "s", "--projection", "usage", "--projection", "usage").object["stored"] == 3


async def test_a_terminal_shows_a_line_a_projection(lanebus: CommandLine) -> None:
    await speak(lanebus, 1)
    lanebus("replay", "s", "--projection", "turns")
    lines = lanebus.at_terminal("replay", "s", columns=60).out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "projection",
        *(f"{projection.name}@{projection.version}" for projection in (USAGE, TURNS, SESSIONS, STATUS)),
    ]
    assert "agrees at 1" in lines[2]
    assert "none" in lines[1]
    assert all(len(line) <= 60 for line in lines)


def test_what_cannot_be_replayed_is_one_line(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    for words, code in {("s", "--until", "2"): 1, ("nosuch",): 1, ("s", "--projection", "odd"): 2}.items():
        answer = lanebus("replay", *words)
        assert (answer.code, answer.out) == (code, "")
        assert answer.err
