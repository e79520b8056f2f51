"""`lanebus namespace accept`: what it says, and when it changes nothing."""

import shutil
import signal

import pytest

from tests.support.cli.command_line import CommandLine
from tests.support.servers.clusters import wait_until
from tests.support.servers.real import RealServer

__all__ = ()

pytestmark = pytest.mark.full

OLDER = ("HSET", "lanebus:config", "lost", "rolled_back 9 4 1795906800000 1795820400000")


def test_accept_says_what_is_lost_and_asks_first(lanebus: CommandLine, valkey: RealServer) -> None:
    assert lanebus("publish", "s", "hi", "--url", valkey.url).code == 0
    valkey.do(*OLDER)
    words = ("namespace", "accept", "--url", valkey.url)
    declined = lanebus.at_terminal(*words, typed="n\n", columns=300)
    assert declined.code == 4
    assert "the log is an older copy, of 2026-11-27T23:00:00+00:00: the one that was known" in declined.out
    assert "Accept the log of namespace lanebus as it is now?" in declined.out
    assert lanebus("verify", "--all", "--url", valkey.url).code == 7
    refused = lanebus(*words)
    assert (refused.code, "confirm with --yes" in refused.err) == (2, True)
    accepted = lanebus(*words, "--yes")
    assert (accepted.code, accepted.object) == (0, {"namespace": "lanebus", "accepted": ["rolled_back"]})
    assert lanebus("verify", "--all", "--url", valkey.url).code == 0
    # State files of other machines know the higher count, and must not report the loss again.
    assert valkey.do("HMGET", "lanebus:config", "looks", "lost") == ["9", None]


def test_accept_of_a_log_that_is_not_lost_does_no_harm(lanebus: CommandLine) -> None:
    assert lanebus("publish", "s", "hi").code == 0
    answer = lanebus("namespace", "accept", "--yes", "--namespace", "other")
    assert (answer.code, answer.object) == (0, {"namespace": "other", "accepted": []})
    assert "no loss is known here" in answer.err
    assert lanebus("verify", "--all").code == 0
    assert lanebus("sessions").object["session"] == "s"


def test_a_removed_data_directory_of_the_embedded_server_is_told_with_its_remedy(unopened: CommandLine) -> None:
    with unopened.running("worker", "lanebus.handlers.agent.demo:agent", "--name", "w") as worker:
        wait_until(lambda: bool([*unopened.state_home.glob("lanebus/*.json")]))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
    unopened.wait_stopped()
    assert unopened("verify", "--all").code == 0
    unopened.wait_stopped()
    shutil.rmtree(unopened.data_dir)
    answer = unopened("verify", "--all")
    assert (answer.code, '"kind":"emptied"' in answer.out) == (7, True)
    assert "`lanebus namespace accept --namespace lanebus`" in answer.out
    assert unopened("namespace", "accept", "--yes").object["accepted"] == ["emptied"]
    assert unopened("verify", "--all").code == 0
