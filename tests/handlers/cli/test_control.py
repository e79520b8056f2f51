"""`lanebus control`."""

import pytest

from tests.support.cli.command_line import CommandLine, objects

__all__ = ()


def kinds(lanebus: CommandLine) -> list[object]:
    """What stands in the log: who speaks, or the kind of a command."""
    messages = [entry["message"] for entry in objects(lanebus("tail", "s").out)]
    return [message.get("kind", message["role"]) for message in messages if isinstance(message, dict)]


def test_every_command_goes_into_the_log_as_it_was_given(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    told = {"session": "s", "is_duplicate": False, "outcome": None, "reason": None}
    assert lanebus("control", "s", "abort", "--when", "turn", "--by", "ada").object == {**told, "positions": [2]}
    assert lanebus("control", "s", "steer", "in French").object == {**told, "positions": [3, 4]}
    assert lanebus("control", "s", "follow-up", "and then?").object == {**told, "positions": [5]}
    for words in (
        ["approve", "s.main.1#0", "c1"],
        ["deny", "s.main.1#0", "c1", "--reason", "no"],
        ["pause"],
        ["handoff", "--to", "ada"],
        ["resume"],
        ["compact"],
    ):
        assert lanebus("control", "s", *words).code == 0
    said = ["user", "control.abort", "user", "control.steer", "user"]
    verbs = ["approve", "deny", "pause", "handoff", "resume", "compact"]
    assert kinds(lanebus) == [*said, *(f"control.{verb}" for verb in verbs)]
    command = objects(lanebus("tail", "s").out)[1]["message"]
    assert isinstance(command, dict)
    assert command["data"] == {"by": "ada", "when": "turn"}


def test_a_command_under_a_key_is_told_once(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    first = lanebus("control", "s", "pause", "--key", "k").object
    assert lanebus("control", "s", "pause", "--key", "k").object == {**first, "is_duplicate": True}


def test_nobody_answers_where_no_worker_runs(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    answer = lanebus("control", "s", "pause", "--wait", "0")
    assert (answer.code, answer.out) == (1, "")
    assert "no worker has answered the command at position 2" in answer.err
    assert lanebus("control", "nosuch", "pause").code == 1
    assert lanebus.at_terminal("control", "s", "resume").out == "s: told at position 3\n"


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
def test_what_a_command_does_not_take_is_refused(lanebus: CommandLine, words: list[str]) -> None:
    answer = lanebus("control", "s", *words)
    assert (answer.code, answer.out) == (2, "")
