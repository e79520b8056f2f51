"""`--redact` names the function that changes messages before a command stores them; a wrong one opens nothing."""

import json
from pathlib import Path

import httpx2
import pytest

from tests.handlers.cli.test_completion import complete
from tests.support.cli.command_line import CommandLine
from tests.support.servers.clusters import wait_until

__all__ = ()

pytestmark = pytest.mark.full

SECRET = "4111-1111"

MODULE = f"""
from lanebus import ToolCallBlock
from lanebus.agent import AgentLoop, tool
from lanebus.messages import Redactable
from lanebus.testing import ScriptedModel


def hide(message: Redactable) -> Redactable:
    return type(message).model_validate_json(message.to_json().replace("{SECRET}", "###"))


async def is_async(message: Redactable) -> Redactable:
    return message


class IsAsync:
    async def __call__(self, message: Redactable) -> Redactable:
        return message


is_async_object, number = IsAsync(), 3


@tool(idempotent=True)
async def card() -> str:
    return "the tool has {SECRET}"


agent = AgentLoop(ScriptedModel(ToolCallBlock(id="c1", name="card"), "the model says {SECRET}"), (card,))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(MODULE)
    return path


def stored(lanebus: CommandLine, session: str) -> str:
    """Return all entries of a session, as a command without the function prints them."""
    return lanebus("export", session).out


@pytest.mark.parametrize("source", ["option", "variable", "file"])
def test_publish_stores_what_the_function_returns(lanebus: CommandLine, file: Path, source: str) -> None:
    target, settings = f"{file}:hide", file.with_name("lanebus.toml")
    settings.write_text(f"redact = {json.dumps(target)}\n")
    words = {"option": ["--redact", target], "variable": [], "file": ["--config", str(settings)]}[source]
    env = {"LANEBUS_REDACT": target} if source == "variable" else None
    assert lanebus("publish", "s", f"My card is {SECRET}", *words, env=env).code == 0
    assert "My card is ###" in stored(lanebus, "s")
    assert SECRET not in stored(lanebus, "s")


def test_import_stores_what_the_function_returns(lanebus: CommandLine, file: Path, tmp_path: Path) -> None:
    transcript = tmp_path / "chat.json"
    transcript.write_text(json.dumps({"messages": [{"role": "user", "content": f"My card is {SECRET}"}]}))
    assert lanebus("import", transcript, "--session", "s", "--redact", f"{file}:hide").code == 0
    assert "My card is ###" in stored(lanebus, "s")
    assert SECRET not in stored(lanebus, "s")


def test_a_worker_stores_results_and_answers_as_the_function_returns_them(lanebus: CommandLine, file: Path) -> None:
    assert lanebus("publish", "s", "Which card?").code == 0
    with lanebus.running("worker", f"{file}:agent", "--redact", f"{file}:hide"):
        wait_until(lambda: "the model says " in stored(lanebus, "s"))
    found = stored(lanebus, "s")
    assert "the tool has ###" in found
    assert "the model says ###" in found
    assert SECRET not in found


def test_the_page_stores_what_the_function_returns(lanebus: CommandLine, file: Path) -> None:
    with lanebus.running("serve", "--port", "0", "--redact", f"{file}:hide") as process:
        assert process.stdout is not None
        base, _, token = process.stdout.readline().strip().partition("#token=")
        reply = httpx2.post(
            f"{base}api/sessions/s/messages",
            json={"text": f"My card is {SECRET}"},
            headers={"Authorization": f"Bearer {token}"},
        )
        assert reply.is_success, reply.text
    assert "My card is ###" in stored(lanebus, "s")
    assert SECRET not in stored(lanebus, "s")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("shop", "this is neither module:attribute nor path/to/file.py:attribute"),
        ("nosuch:hide", "there is no module 'nosuch'"),
        ("{file}x.py:hide", "there is no file"),
        ("{file}:nosuch", "has no attribute 'nosuch'"),
        ("{file}:is_async", "it cannot be called, is async, or is a class"),
        ("{file}:is_async_object", "it cannot be called, is async, or is a class"),
        ("{file}:IsAsync", "it cannot be called, is async, or is a class"),
        ("{file}:number", "it cannot be called, is async, or is a class"),
    ],
)
@pytest.mark.parametrize("words", [("publish", "s", "hi"), ("worker", "{file}:agent")], ids=["publish", "worker"])
def test_what_is_no_plain_function_is_refused_before_anything_is_opened(
    unopened: CommandLine, file: Path, words: tuple[str, ...], target: str, reason: str
) -> None:
    given = [word.format(file=file) for word in (*words, "--redact", target)]
    answer = unopened(*given)
    assert answer.code == 2, answer.err
    assert f"error: redact {given[-1]!r}: " in answer.err
    assert reason in answer.err
    assert "hint: name a plain function that takes and returns a message, as module:attribute" in answer.err
    assert "Traceback" not in answer.err
    assert not unopened.data_dir.exists() or not [*unopened.data_dir.iterdir()]


def test_a_module_that_raises_shows_its_own_traceback_and_opens_nothing(unopened: CommandLine, file: Path) -> None:
    file.write_text("1 / 0\n")
    answer = unopened("publish", "s", "hi", "--redact", f"{file}:hide")
    assert answer.code == 1
    assert f"error: {file}:hide raised ZeroDivisionError while it was imported" in answer.err
    assert "lanebus/handlers" not in answer.err
    assert not unopened.data_dir.exists() or not [*unopened.data_dir.iterdir()]


def test_an_empty_target_is_refused(unopened: CommandLine) -> None:
    answer = unopened("publish", "s", "hi", "--redact", "")
    assert (answer.code, "--redact is empty" in answer.err) == (2, True)


def test_a_completion_does_not_import_the_module(lanebus: CommandLine, file: Path) -> None:
    lanebus("publish", "support-1", "hi")
    file.write_text("raise SystemExit('imported')\n")
    assert complete(lanebus, "lanebus", "--redact", f"{file}:hide", "tail", "sup") == ["support-1"]
