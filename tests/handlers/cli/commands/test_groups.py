"""`lanebus agents`, `hand-over`, `groups`, `dead` and `namespace accept`."""

import shutil
import signal
from dataclasses import fields

import anyio
import pytest

from lanebus import UserMessage
from lanebus.agent import Run, Worker
from lanebus.bus import Bus, DeadLetters, GroupStatus, RetryPolicy, Work
from lanebus.bus.wire import Keys
from tests.support.agent.agents import until
from tests.support.cli.command_line import CommandLine, objects
from tests.support.servers.clusters import wait_until
from tests.support.servers.real import RealServer

# --- agents -------------------------------------------------------------------------------------------------------


@pytest.mark.full
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


@pytest.mark.full
def test_publish_refuses_another_agents_session_and_warns_unless_a_worker_serves_it(lanebus: CommandLine) -> None:
    first = lanebus("publish", "s", "hello", "--agent", "support")
    assert (first.code, "no worker serves the agent support" in first.err) == (0, True)
    refused = lanebus("publish", "s", "hello", "--agent", "billing")
    assert (refused.code, "support" in refused.err) == (4, True)
    assert "no worker" not in lanebus("publish", "s", "--role", "system", "Be kind.").err

    async def beat() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w", heartbeat=600) as consumer:
            await consumer.heartbeat()

    anyio.run(beat)
    assert "no worker" not in lanebus("publish", "t", "hello").err
    assert "no worker" not in lanebus("hand-over", "t", "agent").err


@pytest.mark.full
def test_a_session_is_handed_over_once_for_each_key(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello", "--agent", "support")
    done = lanebus("hand-over", "s", "billing", "--by", "anna", "--key", "k1")
    assert (done.code, done.object["positions"], done.object["is_duplicate"]) == (0, [2], False)
    assert "no worker serves the agent billing" in done.err
    again = lanebus("hand-over", "s", "billing")
    assert (again.code, again.object["is_duplicate"]) == (0, True)
    (line,) = objects(lanebus("sessions").out)
    assert (line["agent"], line["has_worker"]) == ("billing", False)
    assert "billing (no worker)" in lanebus("sessions", "--table").out
    assert lanebus("hand-over", "nothing", "billing").code == 3
    assert lanebus("hand-over", "s", "legal", "--key", "k2").object["is_duplicate"] is False
    again = lanebus("hand-over", "s", "billing", "--key", "k1")
    assert (again.code, again.object["positions"], again.object["is_duplicate"]) == (0, [2], True)
    assert again.object["agent"] == "legal"
    assert ("agent legal" in again.err, "billing" in again.err) == (True, False)
    said = lanebus.at_terminal("hand-over", "s", "billing", "--key", "k1", columns=200).out
    assert "s: was handed over to billing at position 2, and belongs to legal now, nothing changed" in said
    assert objects(lanebus("sessions").out)[0]["agent"] == "legal"


# --- groups -------------------------------------------------------------------------------------------------------


def open_work(lanebus: CommandLine, *, is_away: bool = False, leaves: bool = True) -> None:
    """Make a group with a session that it has not handled."""

    async def work() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            await bus.session("s").publish(UserMessage.text("x"))
            async with bus.consumer("agents", "w1", heartbeat=600) as consumer:
                with anyio.fail_after(120):
                    await consumer.fetch(1)
                if leaves:
                    await consumer.deregister()
            if is_away:
                await bus.log.call("HSET", Keys().consumers("agents"), ":seen", 1)  # time

    anyio.run(work)


def test_status_lists_groups_and_warns_of_unused_ones(lanebus: CommandLine) -> None:
    none = "no worker has run here yet: start one with `lanebus worker MODULE:ATTRIBUTE`\n"
    assert lanebus("groups", "status", "--table").err == none
    open_work(lanebus)
    shown = lanebus("groups", "status")
    (group,) = objects(shown.out)
    assert (group["group"], group["alive"], group["lag"], group["is_away"], shown.err) == ("agents", 0, 1, False, "")
    assert group.keys() - {"group", "alive"} <= {field.name for field in fields(GroupStatus)}, "as in `lanebus top`"
    open_work(lanebus, is_away=True)
    assert "lanebus groups remove agents" in lanebus("groups", "status", "--table").err
    assert "agents (away)" in lanebus("top", "--once", "--table").out


def test_remove_needs_consent_and_a_group_without_live_workers(lanebus: CommandLine) -> None:
    open_work(lanebus, leaves=False)
    assert lanebus("groups", "remove", "agents").code == 2
    refused = lanebus("groups", "remove", "agents", "--yes")
    assert (refused.code, "w1" in refused.err) == (4, True)
    assert lanebus("groups", "remove", "agents", "--yes", "--force").object == {"group": "agents", "removed": True}
    assert lanebus("groups", "status").out == ""
    again = lanebus("groups", "remove", "agents", "--yes")
    assert (again.code, again.out) == (3, "")


# --- dead letters -------------------------------------------------------------------------------------------------

REASON = "no\x1b[31m such\ntool"


def dead_letters_of(lanebus: CommandLine, *sessions: str, group: str = "agents", reason: str = REASON) -> None:
    """Make a dead letter of each session."""

    async def work() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer(group, "w1") as consumer:
            for name in sessions:
                await bus.session(name).publish(UserMessage.text("x"))
                with anyio.fail_after(120):
                    (found,) = await consumer.fetch(1)
                    while found.session != name:  # a new group gets the messages of all sessions
                        await consumer.ack(found)
                        (found,) = await consumer.fetch(1)
                await consumer.dead_letter(found, reason=reason, attempts=3, raw=b'{"role":"user"}\x00')

    anyio.run(work)


def fetched_again(lanebus: CommandLine) -> Work:
    """Return the only work that a worker fetches."""

    async def work() -> Work:
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("agents", "w2") as consumer:
            with anyio.fail_after(120):
                while not (works := await consumer.fetch(9)):
                    pass
            await consumer.ack(*works)
        (only,) = works
        return only

    return anyio.run(work)


@pytest.mark.full
def test_dead_letters_are_listed_by_group_and_session_and_shown_with_their_entry(lanebus: CommandLine) -> None:
    listed = lanebus("dead", "list")
    assert (listed.code, listed.out, listed.err) == (0, "", "")
    assert lanebus("dead", "list", "--table").err == "no dead letters\n"
    sent = lanebus("dead", "redrive", "--yes")
    assert (sent.code, sent.object) == (0, {"letters": 0, "is_dry_run": False})
    dead_letters_of(lanebus, "a", "b")
    dead_letters_of(lanebus, "c", group="others")
    found = {(each["group"], each["session"]): each for each in objects(lanebus("dead", "list").out)}
    assert found.keys() == {("agents", "a"), ("agents", "b"), ("others", "c")}
    (only,) = objects(lanebus("dead", "list", "--session", "b", "--group", "agents").out)
    assert (only["position"], only["attempts"], only["worker"], only["size_bytes"]) == (1, 3, "w1", 16)
    shown = lanebus("dead", "list", "--table").out
    assert ("no\\x1b[31m such tool" in shown, "\x1b[31m" in shown) == (True, False)
    letter = str(found["agents", "a"]["letter"])
    one = lanebus("dead", "show", letter)
    assert (one.code, one.object["raw"]) == (0, '{"role":"user"}\x00')
    lines = lanebus("dead", "show", letter, "--table").out.splitlines()
    assert lines[0] == f"{letter} of group agents, session a at position 1"
    assert lines[-1] == '16 B: {"role":"user"}\\x00'
    for words, code in (
        (("show", "nonsense"), 2),
        (("show", "1:1-0"), 3),
        (("redrive", "1:1-0", "--yes"), 3),
        (("redrive", "1:1-0", "--session", "a", "--yes"), 2),
        (("list", "--session", "no such"), 2),
        (("list", "--group", "no such"), 2),
    ):
        answer = lanebus("dead", *words)
        assert (words, answer.code, answer.out, bool(answer.err)) == (words, code, "", True)
    assert len(objects(lanebus("dead", "list").out)) == 3


@pytest.mark.full
def test_sessions_and_show_tell_that_a_session_is_dead_why_and_what_redrives_it(lanebus: CommandLine) -> None:
    dead_letters_of(lanebus, "a")
    told = "workers gave up after 3 attempts: no\\x1b[31m such tool"
    failure = lanebus("sessions").object["failure"]
    assert isinstance(failure, dict)
    assert isinstance(failure.pop("since"), float)
    assert failure == {"state": "dead", "group": "agents", "attempts": 3, "reason": REASON}
    assert f"dead ({told})" in lanebus.at_terminal("sessions", columns=250).out
    assert lanebus("show", "a").out.splitlines()[-3:] == ["dead", told, "  lanebus dead redrive --session a"]
    assert lanebus("dead", "redrive", "--session", "a", "--yes").code == 0
    assert lanebus("sessions").object["failure"] is None
    assert lanebus("show", "a").out.splitlines()[-1] == "waits for a worker"
    proven = lanebus("verify", "--all")
    assert proven.code == 0, proven.out


@pytest.mark.full
def test_a_function_that_was_given_up_and_redriven_is_told_without_a_model_call(lanebus: CommandLine) -> None:
    async def broken(run: Run) -> None:
        raise RuntimeError("no such tool")

    async def work() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            session, letters = bus.session("a"), bus.dead_letters("agents")
            await session.publish(UserMessage.text("x"))
            async with Worker(bus, broken, retry=RetryPolicy(retried=(), base=0)):
                await until(lambda: is_dead(letters))
                assert await letters.redrive_all("a") == 1
                await until(lambda: is_dead(letters))

    async def is_dead(letters: DeadLetters) -> bool:
        return await letters.count() == 1

    anyio.run(work)
    lines = lanebus("show", "a").out.splitlines()
    assert [line.split()[0] for line in lines if "#" in line] == ["User", "Assistant", "Redriven", "Assistant"]
    assert "  sent on its way again" in lines
    assert lines[-3] == "dead"
    assert lanebus("usage", "a", "--table").out.splitlines()[-1].split()[:2] == ["total", "0"]


@pytest.mark.full
def test_redrive_needs_consent_and_prints_the_count(lanebus: CommandLine) -> None:
    dead_letters_of(lanebus, "a", "b", reason="the tool is gone")
    before = [{**each, "failure": None} for each in objects(lanebus("sessions").out)]
    refused = lanebus("dead", "redrive")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert lanebus("dead", "redrive", "--dry-run").object == {"letters": 2, "is_dry_run": True}
    sent = lanebus("dead", "redrive", "--yes", "--session", "a")
    assert (sent.code, sent.err) == (0, "group agents: 1 dead letters\n")
    assert sent.object == {"letters": 1, "is_dry_run": False}
    work = fetched_again(lanebus)
    assert (work.session, work.attempt, work.error) == ("a", 1, "the tool is gone")
    (left,) = objects(lanebus("dead", "list").out)
    assert left["session"] == "b"
    assert lanebus("dead", "redrive", str(left["letter"]), "--yes").object["letters"] == 1
    assert lanebus("dead", "list").out == ""
    fetched_again(lanebus)
    assert objects(lanebus("sessions").out) == before


# --- namespace ----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_accept_says_what_is_lost_and_asks_first(lanebus: CommandLine, valkey: RealServer) -> None:
    assert lanebus("publish", "s", "hi", "--url", valkey.url).code == 0
    valkey.do("HSET", "lanebus:config", "lost", "rolled_back 9 4 1795906800000 1795820400000")
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
    again = lanebus(*words, "--yes", "--namespace", "other")
    assert (again.code, again.object) == (0, {"namespace": "other", "accepted": []})
    assert "no loss is known here" in again.err
    assert lanebus("sessions", "--url", valkey.url).object["session"] == "s"


@pytest.mark.full
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
