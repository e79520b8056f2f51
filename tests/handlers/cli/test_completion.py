"""`lanebus completion`: scripts for shells, and session ids within their bounds."""

import socket

import anyio
import pytest

from lanebus import Bus, UserMessage
from lanebus.bus.embedded.server import find_binary
from tests.support.cli.command_line import CommandLine
from tests.support.servers.real import real_server

__all__ = ()

pytestmark = pytest.mark.full


def complete(lanebus: CommandLine, *words: str) -> list[str]:
    """Return what bash is offered for the last word. Asks again if it is nothing: a slow answer completes nothing."""
    environment = {
        "_LANEBUS_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": f"{len(words) - 1}",
    }
    for _ in range(5):
        answer = lanebus(env=environment)
        assert (answer.code, answer.err) == (0, "")
        if answer.out:
            return [line.partition(",")[2] for line in answer.out.split()]
    return []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_lanebus(lanebus: CommandLine, shell: str) -> None:
    answer = lanebus("completion", shell)
    assert (answer.code, answer.err) == (0, "")
    assert f"_LANEBUS_COMPLETE={shell}_complete" in answer.out


def test_commands_options_choices_and_session_ids_are_completed(lanebus: CommandLine) -> None:
    for session in ("support-1", "support-2", "other"):
        lanebus("publish", session, "hi")
    assert complete(lanebus, "lanebus", "tai") == ["tail"]
    assert complete(lanebus, "lanebus", "tail", "s", "--fol") == ["--follow"]
    assert complete(lanebus, "lanebus", "sessions", "--name") == ["--namespace"]
    assert complete(lanebus, "lanebus", "control", "s", "ab") == ["abort"]
    assert complete(lanebus, "lanebus", "tail", "sup") == ["support-1", "support-2"]
    assert complete(lanebus, "lanebus", "verify", "other", "sup") == ["support-1", "support-2"]
    assert complete(lanebus, "lanebus", "tail", "none") == []


def test_agents_and_groups_are_completed(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hi", "--agent", "support")

    async def beat() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("crew", "w1") as consumer:
            await bus.session("t").publish(UserMessage.text("hi"), wake=True)
            with anyio.fail_after(120):
                await consumer.fetch(1)  # the group begins with its first fetch

    anyio.run(beat)
    assert complete(lanebus, "lanebus", "hand-over", "s", "sup") == ["support"]
    assert complete(lanebus, "lanebus", "sessions", "--agent", "") == ["agent", "support"]
    for words in (("top", "--group"), ("dead", "list", "--group"), ("groups", "remove")):
        assert complete(lanebus, "lanebus", *words, "cr") == ["crew"]


def test_completion_of_an_unsafe_server_prints_nothing_but_names(lanebus: CommandLine) -> None:
    with real_server(find_binary(), "--appendonly", "no") as server:
        lanebus("publish", "support-1", "hi", "--url", server.url)
        assert complete(lanebus, "lanebus", "--url", server.url, "tail", "sup") == ["support-1"]


def test_at_most_a_hundred_session_ids_are_completed(lanebus: CommandLine) -> None:
    lanebus("publish", "parent", "hi")

    async def fork() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            for number in range(101):
                await bus.session("parent").fork(1, id=f"fork-{number:03}")

    anyio.run(fork)
    found = complete(lanebus, "lanebus", "tail", "fork-")
    assert (len(found), found[0], found[-1]) == (100, "fork-000", "fork-099")


def test_server_that_does_not_answer_completes_nothing(lanebus: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        assert complete(lanebus, "lanebus", "--url", url, "tail", "s") == []
    assert complete(lanebus, "lanebus", "--url", "redis://127.0.0.1:1", "tail", "s") == []
    assert complete(lanebus, "lanebus", "--url", "nonsense", "tail", "s") == []
