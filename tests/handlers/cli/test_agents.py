"""`lanebus agents`, `hand-over`, and what other commands say of agents."""

import anyio
import pytest

from lanebus import Bus
from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

pytestmark = pytest.mark.full


def test_agents_are_listed_with_sessions_and_the_default_can_be_changed(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello", "--agent", "support")
    lanebus("publish", "t", "hello")
    shown = {line["agent"]: line for line in objects(lanebus("agents").out)}
    assert {name: (line["sessions"], line["workers"], line["is_default"]) for name, line in shown.items()} == {
        "support": (1, 0, False),
        "agent": (1, 0, True),
    }
    assert "no worker" in lanebus("agents", "--table").out
    assert lanebus("agents", "default", "support").code == 0
    lanebus("publish", "u", "hello")
    assert [line["session"] for line in objects(lanebus("sessions", "--agent", "support").out)] == ["u", "s"]
    assert lanebus("agents", "default", "two words").code != 0


def test_publish_refuses_another_agents_session_and_warns_if_no_worker_serves_it(lanebus: CommandLine) -> None:
    first = lanebus("publish", "s", "hello", "--agent", "support")
    assert first.code == 0
    assert "no worker serves the agent support" in first.err
    refused = lanebus("publish", "s", "hello", "--agent", "billing")
    assert refused.code == 4
    assert "support" in refused.err
    assert "no worker" not in lanebus("publish", "s", "--role", "system", "Be kind.").err


def test_publish_does_not_warn_while_a_worker_serves_the_agent(lanebus: CommandLine) -> None:
    async def beat() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w", heartbeat=600) as consumer:
            await consumer.heartbeat()

    anyio.run(beat)
    assert "no worker" not in lanebus("publish", "s", "hello").err
    assert "no worker" not in lanebus("hand-over", "s", "agent").err


def test_a_session_is_handed_over_once(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello", "--agent", "support")
    done = lanebus("hand-over", "s", "billing", "--by", "anna")
    assert (done.code, done.object["positions"], done.object["is_duplicate"]) == (0, [2], False)
    assert "no worker serves the agent billing" in done.err
    again = lanebus("hand-over", "s", "billing")
    assert (again.code, again.object["is_duplicate"]) == (0, True)
    (line,) = objects(lanebus("sessions").out)
    assert (line["agent"], line["has_worker"]) == ("billing", False)
    assert "billing (no worker)" in lanebus("sessions", "--table").out
    assert lanebus("hand-over", "nothing", "billing").code == 3


def test_a_handover_with_a_key_is_not_repeated_after_another_one(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello", "--agent", "support")
    for agent, key in (("billing", "k1"), ("legal", "k2")):
        assert lanebus("hand-over", "s", agent, "--key", key).object["is_duplicate"] is False
    again = lanebus("hand-over", "s", "billing", "--key", "k1")
    assert (again.code, again.object["positions"], again.object["is_duplicate"]) == (0, [2], True)
    assert again.object["agent"] == "legal"
    assert ("agent legal" in again.err, "billing" in again.err) == (True, False)
    said = lanebus.at_terminal("hand-over", "s", "billing", "--key", "k1", columns=200).out
    assert "s: was handed over to billing at position 2, and belongs to legal now, nothing changed" in said
    assert objects(lanebus("sessions").out)[0]["agent"] == "legal"
