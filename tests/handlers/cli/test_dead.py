"""`lanebus dead`: list, show and redrive dead letters."""

import anyio
import pytest

from lanebus import Bus, UserMessage
from lanebus.groups import DeadLetters, RetryPolicy, Work
from lanebus.handlers.agent import Run, Worker
from tests.support.agent.agents import until
from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

pytestmark = pytest.mark.full


def dead_letters_of(
    lanebus: CommandLine, *sessions: str, group: str = "agents", reason: str = "the tool is gone"
) -> None:
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


def fetched_again(lanebus: CommandLine, count: int, group: str = "agents") -> list[Work]:
    """Return the work that a worker fetches."""

    async def work() -> list[Work]:
        works: list[Work] = []
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer(group, "w2") as consumer:
            with anyio.fail_after(120):
                while len(works) < count:
                    works += await consumer.fetch(9)
            await consumer.ack(*works)
        return works

    return anyio.run(work)


def test_without_dead_letters_nothing_is_listed_or_redriven(lanebus: CommandLine) -> None:
    listed = lanebus("dead", "list")
    assert (listed.code, listed.out, listed.err) == (0, "", "")
    assert lanebus("dead", "list", "--table").err == "no dead letters\n"
    sent = lanebus("dead", "redrive", "--yes")
    assert (sent.code, sent.object) == (0, {"letters": 0, "is_dry_run": False})


def test_dead_letters_are_listed_by_group_and_session(lanebus: CommandLine) -> None:
    dead_letters_of(lanebus, "a", "b", reason="no\x1b[31m such\ntool")
    dead_letters_of(lanebus, "c", group="others")
    listed = lanebus("dead", "list")
    assert listed.code == 0
    found = objects(listed.out)
    assert [(each["group"], each["session"]) for each in found if each["group"] == "others"] == [("others", "c")]
    assert sorted(str(each["session"]) for each in found if each["group"] == "agents") == ["a", "b"]
    (only,) = objects(lanebus("dead", "list", "--session", "b", "--group", "agents").out)
    assert (only["position"], only["attempts"], only["worker"], only["size_bytes"]) == (1, 3, "w1", 16)
    shown = lanebus("dead", "list", "--table").out
    assert "no\\x1b[31m such tool" in shown
    assert "\x1b[31m" not in shown


def test_sessions_and_show_tell_that_a_session_is_dead_why_and_what_redrives_it(lanebus: CommandLine) -> None:
    dead_letters_of(lanebus, "a", reason="no\x1b[31m such\ntool")
    told = "workers gave up after 3 attempts: no\\x1b[31m such tool"
    failure = lanebus("sessions").object["failure"]
    assert isinstance(failure, dict)
    assert isinstance(failure.pop("since"), float)
    assert failure == {"state": "dead", "group": "agents", "attempts": 3, "reason": "no\x1b[31m such\ntool"}
    assert f"dead ({told})" in lanebus.at_terminal("sessions", columns=250).out
    assert lanebus("show", "a").out.splitlines()[-3:] == ["dead", told, "  lanebus dead redrive --session a"]
    assert lanebus("dead", "redrive", "--session", "a", "--yes").code == 0
    assert lanebus("sessions").object["failure"] is None
    assert lanebus("show", "a").out.splitlines()[-1] == "waits for a worker"


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


def test_show_prints_a_dead_letter_with_its_entry(lanebus: CommandLine) -> None:
    dead_letters_of(lanebus, "a")
    letter = str(lanebus("dead", "list").object["letter"])
    shown = lanebus("dead", "show", letter)
    assert (shown.code, shown.object["raw"]) == (0, '{"role":"user"}\x00')
    text = lanebus("dead", "show", letter, "--table").out
    assert text.splitlines()[0] == f"{letter} of group agents, session a at position 1"
    assert text.splitlines()[-1] == '16 B: {"role":"user"}\\x00'


def test_redrive_needs_consent_and_prints_the_count(lanebus: CommandLine) -> None:
    dead_letters_of(lanebus, "a", "b")
    before = [{**each, "failure": None} for each in objects(lanebus("sessions").out)]
    refused = lanebus("dead", "redrive")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert lanebus("dead", "redrive", "--dry-run").object == {"letters": 2, "is_dry_run": True}
    sent = lanebus("dead", "redrive", "--yes", "--session", "a")
    assert (sent.code, sent.object, sent.err) == (
        0,
        {"letters": 1, "is_dry_run": False},
        "group agents: 1 dead letters\n",
    )
    (work,) = fetched_again(lanebus, 1)
    assert (work.session, work.attempt, work.error) == ("a", 1, "the tool is gone")
    (left,) = objects(lanebus("dead", "list").out)
    assert left["session"] == "b"
    assert lanebus("dead", "redrive", str(left["letter"]), "--yes").object["letters"] == 1
    assert lanebus("dead", "list").out == ""
    fetched_again(lanebus, 1)
    assert objects(lanebus("sessions").out) == before


def test_wrong_ids_names_and_combinations_are_refused(lanebus: CommandLine) -> None:
    dead_letters_of(lanebus, "a")
    for words, code in (
        (("show", "nonsense"), 2),
        (("show", "1:1-0"), 3),
        (("redrive", "1:1-0", "--yes"), 3),
        (("redrive", "1:1-0", "--session", "a", "--yes"), 2),
        (("list", "--session", "no such"), 2),
        (("list", "--group", "no such"), 2),
    ):
        answer = lanebus("dead", *words)
        assert (answer.code, answer.out) == (code, ""), words
        assert answer.err
    assert len(objects(lanebus("dead", "list").out)) == 1


def test_verify_accepts_dead_and_redriven_letters(lanebus: CommandLine) -> None:
    dead_letters_of(lanebus, "a", "b")
    assert lanebus("dead", "redrive", "--session", "a", "--yes").code == 0
    proven = lanebus("verify", "--all")
    assert proven.code == 0, proven.out
