"""`lanebus acp` as an editor runs it: the official client of ACP, and a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from acp.schema import TextContentBlock
from pydantic import JsonValue

from tests.support.agent.editor import CWD, editing_process
from tests.support.cli.command_line import SECONDS
from tests.support.node.running import run_node
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer, eventually

AGENT = "tests.support.agent.editor_agents:agent"


@pytest.fixture
def env(valkey: RealServer, tmp_path: Path) -> dict[str, str]:
    return {"LANEBUS_URL": valkey.url, "LANEBUS_TEST_GATE": str(tmp_path / "gate")}


@pytest.mark.full
async def test_stdout_has_only_the_protocol_whatever_an_agent_and_its_tools_print(
    env: dict[str, str], tmp_path: Path
) -> None:
    with (tmp_path / "stderr").open("wb") as stderr:
        async with editing_process(AGENT, env=env, stderr=stderr.fileno()) as editor:
            session = await editor.open()
            ended = await editor.say(session, "print")
    assert editor.process is not None
    assert (editor.process.returncode, ended.stop_reason) == (0, "end_turn")
    assert editor.told(session)[-1] == "agent: The tool says: read ''"
    errors = (tmp_path / "stderr").read_text()
    for text in ("the module is imported", "a tool prints", "a tool writes", "a program prints"):
        assert text in errors
    assert "Traceback" not in errors


@pytest.mark.full
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "end of stdin"])
async def test_an_answer_goes_on_after_the_process_ended_in_its_middle(env: dict[str, str], *, is_killed: bool) -> None:
    text = "wait: once upon a time there was a log"
    async with editing_process(AGENT, env=env) as editor:
        session = await editor.open()
        block = TextContentBlock(type="text", text=text)
        saying = asyncio.create_task(editor.client.prompt(session_id=session, prompt=[block]))
        await editor.until(session, "once")
        assert editor.process is not None
        if is_killed:
            editor.process.kill()
            with pytest.raises(ConnectionError):
                await saying
    if not is_killed:
        assert editor.process.returncode == 0
        with pytest.raises(ConnectionError):
            await saying
        await anyio.Path(env["LANEBUS_TEST_GATE"]).touch()
    async with editing_process(AGENT, env=env) as editor:
        await editor.client.load_session(cwd=CWD, session_id=session, mcp_servers=[])
        assert editor.told(session)[0] == f"user: {text}"
        await anyio.Path(env["LANEBUS_TEST_GATE"]).touch()
        await eventually(lambda: editor.told(session)[-1] == f"agent: {text}", SECONDS)
        again = await editor.say(session, "wait: that was all")
        assert again.stop_reason == "end_turn"
    assert editor.told(session)[-1] == "agent: wait: that was all"


@pytest.mark.full
async def test_the_typescript_client_prompts_allows_loads_and_forks(
    referees: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**env, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    script, command = Path(__file__).with_name("editor.mjs"), ("-W", "error", "-m", "lanebus", "acp", AGENT)
    seen = json.loads(await run_node(referees, script, sys.executable, *command))
    assert seen["ready"]["agentCapabilities"]["loadSession"] is True
    assert (seen["stops"], seen["asked"]) == (["end_turn", "end_turn"], ["format_disk"])
    kinds = [[each["update"]["sessionUpdate"] for each in seen[name]] for name in ("live", "loaded")]
    assert kinds[1] == ["user_message_chunk", *kinds[0]]
    assert kinds[0] == ["tool_call", *["tool_call_update"] * 3, "agent_message_chunk"]
    assert seen["last"]["update"]["content"]["text"] == "The tool says: read ''"
    assert (seen["sessions"], seen["missing"], seen["code"]) == (2, -32002, 0)


def talk(env: dict[str, str], *lines: object, answers: int) -> list[dict[str, JsonValue]]:
    """Send lines to a process that runs no worker, and return its answers."""
    said = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "lanebus", "acp", AGENT, "--no-worker"],
        env={**os.environ, **env},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(said)
        process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for _ in range(answers)]
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(SECONDS) == 0
    return found


@pytest.mark.full
def test_a_wrong_line_is_answered_and_the_next_one_is_read(env: dict[str, str]) -> None:
    def request(id: int, method: str, **params: object) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    answers = talk(
        env,
        "not JSON\n",
        "\n",
        "[" * 100_000 + "\n",
        "[1, 2]\n",
        {"jsonrpc": "2.0", "id": 1, "method": 7},
        request(2, "no/such"),
        {"jsonrpc": "2.0", "method": "no/such", "params": {}},
        {"jsonrpc": "2.0", "id": 99, "result": {}},
        request(3, "session/load", cwd="/", mcpServers=[]),
        request(4, "session/load", cwd="/", mcpServers=[], sessionId="nope"),
        request(5, "session/load", cwd="/", mcpServers=[], sessionId="../x"),
        request(6, "session/new", cwd="relative", mcpServers=[]),
        request(7, "session/prompt", sessionId="nope", prompt=[{"type": "text", "text": "hi"}]),
        request(8, "session/list", cursor="***"),
        request(9, "session/close", sessionId="nope"),
        {"jsonrpc": "2.0", "method": "session/cancel", "params": {}},
        request(10, "initialize", protocolVersion=9),
        answers=13,
    )
    found = {(each["id"], _code(each)) for each in answers if each["id"] is not None}
    assert found == {
        *((2, -32601), (3, -32602), (4, -32002), (5, -32602), (6, -32602), (7, -32002), (8, -32602), (9, -32002)),
        (10, 0),
    }
    assert [_code(each) for each in answers if each["id"] is None] == [-32700, -32700, -32600, -32600]
    (without_id,) = [each for each in answers if each["id"] == 3]
    assert "sessionId" in str(without_id["error"])
    (ready,) = [each for each in answers if each["id"] == 10]
    assert isinstance(ready["result"], dict)
    assert ready["result"]["protocolVersion"] == 1


def _code(answer: dict[str, JsonValue]) -> JsonValue:
    error = answer.get("error")
    return error["code"] if isinstance(error, dict) else 0


@pytest.mark.full
def test_the_command_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['acp'] = None; from lanebus.handlers.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, "acp", AGENT],
        env={**os.environ, "LANEBUS_DATA_DIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert "pip install 'lanebus[acp]'" in run.stderr
