"""`lanebus control`."""

import pytest

from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

pytestmark = pytest.mark.full


def kinds(lanebus: CommandLine) -> list[object]:
    """The role or kind of each entry in the log."""
    messages = [entry["message"] for entry in objects(lanebus("tail", "s").out)]
    return [message.get("kind", message["role"]) for message in messages if isinstance(message, dict)]


def test_every_command_is_appended_with_its_arguments_and_options(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    sent = {"session": "s", "is_duplicate": False, "outcome": None, "reason": None}
    assert lanebus("control", "s", "abort", "--when", "turn", "--by", "ada").object == {**sent, "positions": [2]}
    assert lanebus("control", "s", "steer", "in French").object == {**sent, "positions": [3, 4]}
    assert lanebus("control", "s", "follow-up", "and then?").object == {**sent, "positions": [5]}
    for words in (
        ["approve", "s.main.1#0", "c1"],
        ["deny", "s.main.1#0", "c1", "--reason", "no"],
        ["pause"],
        ["handoff", "--to", "ada"],
        ["resume"],
        ["compact"],
    ):
        assert lanebus("control", "s", *words).code == 0
    published = ["user", "control.abort", "user", "control.steer", "user"]
    commands = ["approve", "deny", "pause", "handoff", "resume", "compact"]
    assert kinds(lanebus) == [*published, *(f"control.{name}" for name in commands)]
    command = objects(lanebus("tail", "s").out)[1]["message"]
    assert isinstance(command, dict)
    assert command["data"] == {"by": "ada", "when": "turn"}


def test_a_command_repeated_with_its_key_adds_nothing(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    first = lanebus("control", "s", "pause", "--key", "k").object
    assert lanebus("control", "s", "pause", "--key", "k").object == {**first, "is_duplicate": True}


def test_waiting_for_an_answer_without_a_worker_fails(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    answer = lanebus("control", "s", "pause", "--wait", "0")
    assert (answer.code, answer.out) == (5, "")
    assert "the command at position 2 within 0 s" in answer.err
    assert lanebus("control", "nosuch", "pause").code == 3
    assert lanebus.at_terminal("control", "s", "resume").out == "s: sent at position 3\n"


@pytest.mark.parametrize("turn", ["main.1#2", "s.main.1#2"])
def test_a_turn_is_named_with_or_without_its_session(lanebus: CommandLine, turn: str) -> None:
    lanebus("publish", "s", "hello")
    for name in ("approve", "deny"):
        assert lanebus("control", "s", name, turn, "c1").code == 0
    for entry in objects(lanebus("tail", "s").out)[1:]:
        message = entry["message"]
        assert isinstance(message, dict)
        assert message["data"] == {"turnId": {"loopId": "s.main.1", "turnIndex": 2}, "toolCallId": "c1"}


@pytest.mark.parametrize(("outcome", "code"), [("applied", 0), ("repeated", 0), ("late", 4), ("refused", 4)])
def test_the_exit_code_says_whether_a_command_was_applied(lanebus: CommandLine, outcome: str, code: int) -> None:
    lanebus("publish", "s", "hello")
    lanebus("control", "s", "pause", "--key", "k")
    answered = f'{{"control": 2, "outcome": "{outcome}"}}'
    lanebus("publish", "s", "--extension", "agent.control.answered", answered)
    answer = lanebus("control", "s", "pause", "--key", "k", "--wait", "60")
    assert (answer.code, answer.object["outcome"]) == (code, outcome)


@pytest.mark.parametrize(
    "words",
    [
        ["sing"],
        ["steer"],
        ["steer", " "],
        ["pause", "please"],
        ["pause", "--when", "now"],
        ["abort", "--when", "next"],
        ["resume", "--reason", "x"],
        ["approve", "c1"],
        ["approve", "turn", "c1"],
        ["follow-up", "x", "--wait", "1"],
    ],
)
def test_wrong_arguments_and_options_of_a_command_are_refused(lanebus: CommandLine, words: list[str]) -> None:
    answer = lanebus("control", "s", *words)
    assert (answer.code, answer.out) == (2, "")
