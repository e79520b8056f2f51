"""The warning of a server that may lose acknowledged messages is shown where somebody looks after the server."""

import pytest

from tests.support.cli.command_line import CommandLine
from tests.support.servers.real import one_server

__all__ = ()


@pytest.mark.needs("redis-server")
def test_only_commands_that_run_long_or_check_the_server_warn_of_it(lanebus: CommandLine) -> None:
    with one_server("redis", "--aof-load-truncated", "yes") as server:
        assert lanebus("publish", "s1", "hello", "--url", server.url).err == ""
        assert lanebus("sessions", "--url", server.url).err == ""
        checked = lanebus("verify", "s1", "--url", server.url)
        assert "warning: Redis" in checked.err
        assert "may lose acknowledged entries" in checked.err
