"""`lanebus close` and `lanebus reopen`."""

import pytest
from pydantic import JsonValue

from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

pytestmark = pytest.mark.full


def kinds(lanebus: CommandLine) -> list[object]:
    """The role or kind of each entry in the log."""
    messages = [entry["message"] for entry in objects(lanebus("tail", "s").out)]
    return [message.get("kind", message["role"]) for message in messages if isinstance(message, dict)]


def test_a_session_is_closed_with_last_messages_and_reopened(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    answer = lanebus("close", "s", "thanks", "bye", "--reason", "solved")
    assert answer.object == {"session": "s", "is_closed": True, "positions": [2, 3, 4], "is_duplicate": False}
    message = objects(lanebus("tail", "s").out)[-1]["message"]
    assert isinstance(message, dict)
    assert message == {"role": "extension", "kind": "session.closed", "data": {"reason": "solved"}}
    for words in (["publish", "s", "more"], ["close", "s", "more"]):
        refused = lanebus(*words)
        assert (refused.code, refused.out, refused.err) == (
            4,
            "",
            "error: session 's' is closed\nhint: `lanebus reopen s` opens it again\n",
        )
    assert lanebus("sessions").object["is_closed"] is True
    answer = lanebus("reopen", "s", "once more")
    assert answer.object == {"session": "s", "is_closed": False, "positions": [5, 6], "is_duplicate": False}
    assert lanebus("publish", "s", "more").code == 0
    assert kinds(lanebus) == ["user", "user", "user", "session.closed", "session.reopened", "user", "user"]
    assert lanebus("verify", "--all").code == 0


def test_closing_again_with_the_same_key_adds_nothing(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    first = lanebus("close", "s", "--key", "k").object
    assert lanebus("close", "s", "--key", "k").object == {**first, "is_duplicate": True}
    again = lanebus("reopen", "s", "--key", "r").object
    assert lanebus("reopen", "s", "--key", "r").object == {**again, "is_duplicate": True}


def test_closing_a_closed_session_or_reopening_an_open_one_appends_nothing(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    nothing: dict[str, JsonValue] = {"session": "s", "positions": [], "is_duplicate": True}
    for key in ([], ["--key", "new"]):
        assert lanebus("reopen", "s", *key).object == {**nothing, "is_closed": False}
    assert lanebus.at_terminal("reopen", "s").out == "s: already open\n"
    refused = lanebus("reopen", "s", "more")
    assert (refused.code, refused.err.splitlines()[0]) == (4, "error: session 's' is open")
    lanebus("close", "s")
    for key in ([], ["--key", "new"]):
        assert lanebus("close", "s", *key).object == {**nothing, "is_closed": True}
    assert lanebus.at_terminal("close", "s").out == "s: already closed\n"
    assert kinds(lanebus) == ["user", "session.closed"]


def test_close_is_refused_if_the_position_is_not_the_expected_one(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    assert lanebus("close", "s", "--expected", "5").code == 4
    assert lanebus("sessions").object["is_closed"] is False
    assert lanebus("close", "s", "--expected", "1").code == 0


def test_closing_or_reopening_a_missing_session_creates_nothing(lanebus: CommandLine) -> None:
    for name in ("close", "reopen"):
        answer = lanebus(name, "nosuch")
        assert (answer.code, answer.out) == (3, "")
        assert answer.err.startswith("error: session 'nosuch' has no entries")
    assert lanebus("sessions").out == ""


def test_a_terminal_shows_the_position_of_the_close(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    assert lanebus.at_terminal("close", "s").out == "s: closed at position 2\n"
    assert lanebus.at_terminal("reopen", "s").out == "s: open at position 3\n"
    assert lanebus("close", "s", " ").code == 2


def test_the_expected_end_may_be_the_cursor_of_the_last_entry(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    (entry,) = objects(lanebus("tail", "s", "--json").out)
    cursor = str(entry["cursor"])
    other = f"{cursor[:-1]}{'1' if cursor[-1] == '0' else '0'}"  # another entry at the same position
    for words in (["publish", "s", "b"], ["close", "s"], ["hand-over", "s", "other"]):
        refused = lanebus(*words, "--expected", other)
        assert (refused.code, "lost" in refused.err) == (4, True), refused
    assert lanebus("publish", "s", "b", "--expected", cursor).code == 0
    assert lanebus("close", "s", "--expected", cursor).code == 4
