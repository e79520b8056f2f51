"""`lanebus completion`: scripts for shells, and session ids within their bounds."""

import socket

import anyio
import pytest

from lanebus import Bus
from lanebus.bus.embedded.server import find_binary
from tests.support.cli.command_line import CommandLine, complete
from tests.support.servers.real import real_server

pytestmark = pytest.mark.full


def test_commands_options_choices_sessions_agents_and_groups_are_completed(lanebus: CommandLine) -> None:
    for shell in ("bash", "zsh", "fish"):
        answer = lanebus("completion", shell)
        assert (answer.code, answer.err, f"_LANEBUS_COMPLETE={shell}_complete" in answer.out) == (0, "", True)
    for session, agent in (("support-1", "agent"), ("support-2", "agent"), ("other", "support")):
        lanebus("publish", session, "hi", "--agent", agent)

    async def work(forks: int) -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("crew", "w1") as consumer:
            with anyio.fail_after(120):
                await consumer.fetch(1)  # the group begins with its first fetch
            for number in range(forks):
                await bus.session("other").fork(1, id=f"fork-{number:03}")

    anyio.run(work, 0)
    for words, offered in (
        ("tai", ["tail"]),
        ("tail s --fol", ["--follow"]),
        ("sessions --name", ["--namespace"]),
        ("control s ab", ["abort"]),
        ("tail sup", ["support-1", "support-2"]),
        ("verify other sup", ["support-1", "support-2"]),
        ("tail none", []),
        ("hand-over s sup", ["support"]),
        ("sessions --agent ", ["agent", "support"]),
        ("top --group cr", ["crew"]),
        ("dead list --group cr", ["crew"]),
        ("groups remove cr", ["crew"]),
    ):
        assert (words, complete(lanebus, "lanebus", *words.split(" "))) == (words, offered)
    anyio.run(work, 101)
    assert complete(lanebus, "lanebus", "tail", "fork-") == [f"fork-{number:03}" for number in range(100)]  # at most


def test_a_silent_server_completes_nothing_and_an_unsafe_one_only_names(lanebus: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for url in (f"redis://127.0.0.1:{silent.getsockname()[1]}", "redis://127.0.0.1:1", "nonsense"):
            assert complete(lanebus, "lanebus", "--url", url, "tail", "s") == []
    with real_server(find_binary(), "--appendonly", "no") as server:
        lanebus("publish", "support-1", "hi", "--url", server.url)
        assert complete(lanebus, "lanebus", "--url", server.url, "tail", "sup") == ["support-1"]
