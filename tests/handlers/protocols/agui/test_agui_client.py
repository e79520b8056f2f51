"""`@ag-ui/client` 1.0.0 and 0.0.59, unmodified, on a real server and a real worker."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, ExtensionMessage, TextBlock, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, SubAgent, pause, tool
from lanebus.handlers.agent import Worker, demo_agent
from lanebus.handlers.providers import Piece
from lanebus.messages import ThinkingBlock
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls
from tests.support.agent.served_agent import paused_answer, served_agent
from tests.support.cli.starter import Starter
from tests.support.node.agui import AguiSeen, agui, dig, types_of
from tests.support.page.serving import serving
from tests.support.servers.real import RealServer, eventually

VERSIONS = pytest.mark.parametrize("version", [1, 0])
SAY = {"do": "say", "id": "m1", "content": "hi"}
SETTLE = {"do": "settle"}
DISK = ToolCallBlock(id="call-1", name="format_disk", arguments={"disk": "é1"})


@tool(approval=True)
def format_disk(disk: str) -> str:
    """Format a disk."""
    return f"{disk} is empty"


@tool
def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


def outcome(seen: AguiSeen, run: int = -1) -> JsonValue:
    return seen.events(run)[-1].get("outcome")


def only_grows(seen: AguiSeen, run: int, text: str) -> bool:
    """Whether each change that a client showed has a beginning of `text`, once."""
    shown = seen.runs[run]["shown"]
    assert isinstance(shown, list)
    return not any(isinstance(each, str) and each.count(text[:4]) > 1 for each in shown)


@asynccontextmanager
async def told(path: Path, pause: Pause) -> AsyncGenerator[None]:
    """Release a pause when the client has written a file."""

    async def watch() -> None:
        await eventually(path.exists)
        pause.over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        yield
        tasks.cancel_scope.cancel()


@VERSIONS
async def test_messages_get_answers_without_the_tools_of_the_client_also_on_a_page_without_the_conversation(
    referees: Path, version: int
) -> None:
    offered: list[dict[str, object]] = [{"name": "paint", "description": "Paints.", "parameters": {}}]
    async with served_agent(AgentLoop(ScriptedModel(answer("Hello, you."), answer("Second.")))) as served:
        seen = await agui(
            *(referees, served, version, "t1", {**SAY, "tools": offered}, SETTLE, {"do": "reload", "keep": False}),
            *({"do": "say", "id": "m2", "content": "and?"}, SETTLE),
        )
    assert seen.roles == ["user", "assistant", "user", "assistant"]
    assert seen.texts == ["hi", "Hello, you.", "and?", "Second."]
    assert [each["id"] for each in seen.messages[:2]] == ["m1", "t1.main.1#0.1"]
    assert (seen.events()[-1]["type"], outcome(seen)) == ("RUN_FINISHED", {"type": "success"})
    assert seen.events()[-1]["usage"] == [
        {
            **{"inputTokens": 10, "outputTokens": 2, "totalTokens": 12, "reasoningTokens": 0, "cachedInputTokens": 0},
            **({"cacheWriteInputTokens": 0} if version else {}),
        }
    ]
    told = next(each for each in seen.events(0) if each["type"] == "CUSTOM")
    assert (told["name"], dig(told, "value", "tools")) == ("lanebus.toolsIgnored", ["paint"])
    assert seen.warnings == []


@VERSIONS
async def test_thinking_tools_and_results_are_shown_in_their_order(referees: Path, version: int) -> None:
    sums = [ToolCallBlock(id=f"c{n}", name="add", arguments={"a": 1, "b": n}) for n in (1, 2)]
    thought = AssistantMessage(
        content=(ThinkingBlock(text="They want sums."), TextBlock(text="Let me add."), *sums), stop_reason="toolUse"
    )
    first: list[Step] = [
        *(Piece("thinking", "They want ", 0), Piece("thinking", "sums.", 0), Piece("text", "Let me add.", 1)),
        *(Piece("toolCall", '{"a": 1', 2, "add"), Piece("toolCall", ', "b": 1}', 2), thought),
    ]
    model = ScriptedModel(first, answer("Two and three."))
    async with served_agent(AgentLoop(model, tools=[add])) as served:
        seen = await agui(referees, served, version, "t2", SAY, SETTLE)
    assert seen.roles == ["user", "reasoning", "assistant", "tool", "tool", "assistant"]
    assert seen.texts == ["hi", "They want sums.", "Let me add.", "2", "3", "Two and three."]
    assert [dig(seen.messages[2], "toolCalls", at, "function") for at in (0, 1)] == [
        {"name": "add", "arguments": f'{{"a": 1, "b": {n}}}'} for n in (1, 2)
    ]
    assert [each["toolCallId"] for each in seen.messages[3:5]] == [
        dig(seen.messages[2], "toolCalls", at, "id") for at in (0, 1)
    ]
    assert types_of(seen.events()).count("STEP_STARTED") == 2
    assert seen.warnings == []


@VERSIONS
@pytest.mark.parametrize("given", ["approved", "denied", "cancelled"])
async def test_an_approval_is_an_interrupt_that_the_next_run_answers(referees: Path, version: int, given: str) -> None:
    model, approved = ScriptedModel(calls(DISK), answer("Finished.")), given == "approved"
    reply = {"status": "cancelled"} if given == "cancelled" else {"payload": {"approved": approved}}
    async with served_agent(AgentLoop(model, tools=[format_disk])) as served:
        seen = await agui(referees, served, version, "t3", SAY, {"do": "answer", **reply}, SETTLE)
        session = served.bus.session("t3")
        commands = [e.message async for e in session.read(kinds={"control.*"})]
    assert len(seen.runs) == 2
    interrupt = dig(outcome(seen, 0), "interrupts", 0)
    assert dig(interrupt, "reason") == "tool_call"
    assert dig(interrupt, "toolCallId") == dig(seen.messages[1], "toolCalls", 0, "id")
    assert dig(interrupt, "metadata", "lanebus", "arguments") == {"disk": "é1"}
    assert (outcome(seen), seen.pending) == ({"type": "success"}, [])
    assert seen.texts[-2] == "é1 is empty" if approved else "denied" in str(seen.texts[-2]).lower()
    assert seen.texts[-1] == "Finished."
    (command,) = commands
    assert isinstance(command, ExtensionMessage)
    assert command.kind == ("control.approve" if approved else "control.deny")
    assert dig(command.data, "by")
    if approved:
        assert dig(command.data, "callHash") == DISK.call_hash


@VERSIONS
async def test_an_abort_cancels_the_run_and_keeps_the_text(referees: Path, version: int) -> None:
    model = ScriptedModel(paused_answer(Pause(), "As I was saying"))
    command = {"do": "post", "path": "/api/sessions/t4/commands", "body": {"command": "abort"}}
    async with served_agent(AgentLoop(model)) as served:
        seen = await agui(referees, served, version, "t4", SAY, {"do": "shows", "text": "As I wa"}, command, SETTLE)
    assert seen.texts == ["hi", "As I wa"]
    finished = seen.events()[-1]
    assert finished["type"] == "RUN_FINISHED"
    if version == 1:
        assert finished["outcome"] == {"type": "cancelled"}
    else:
        assert finished["result"] == {"cancelled": True}


@VERSIONS
async def test_a_failed_loop_is_a_run_error(referees: Path, version: int) -> None:
    async with served_agent(AgentLoop(ScriptedModel([RuntimeError("no such model")]))) as served:
        seen = await agui(referees, served, version, "t5", SAY, SETTLE)
    assert (seen.events()[-1]["type"], seen.events()[-1]["code"]) == ("RUN_ERROR", "error")
    assert "no such model" in str(seen.events()[-1]["message"])


@VERSIONS
@pytest.mark.parametrize("keep", [True, False])
async def test_a_reload_in_mid_answer_goes_on_with_the_same_message_and_repeats_nothing(
    referees: Path, version: int, tmp_path: Path, *, keep: bool
) -> None:
    paused, file = Pause(), tmp_path / "reloaded"
    model = ScriptedModel(answer("First answer."), paused_answer(paused, "Once upon a time."))
    async with served_agent(AgentLoop(model)) as served, told(file, paused):
        seen = await agui(
            *(referees, served, version, "t6", SAY, SETTLE),
            {"do": "say", "id": "m2", "content": "a tale"},
            *({"do": "shows", "text": "Once upo"}, {"do": "reload", "keep": keep}),
            {"do": "run", "runId": "run-2"},
            *({"do": "gets", "type": "MESSAGES_SNAPSHOT"}, {"do": "signal", "path": str(file)}, SETTLE),
        )
    assert seen.texts == ["hi", "First answer.", "a tale", "Once upon a time."]
    assert only_grows(seen, -1, "Once")
    (snapshot,) = [event for event in seen.events() if event["type"] == "MESSAGES_SNAPSHOT"]
    assert "Once upo" in str(snapshot)
    begun = [event["messageId"] for event in seen.events() if event["type"] == "TEXT_MESSAGE_START"]
    assert begun == [seen.messages[-1]["id"]]
    pieces = [event["delta"] for event in seen.events() if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert "".join(map(str, pieces)) == "n a time."


async def test_a_repeated_request_publishes_nothing_twice(referees: Path) -> None:
    async with served_agent(AgentLoop(ScriptedModel(answer("Hello, you.")))) as served:
        again = {"do": "run", "runId": "run-1"}
        seen = await agui(referees, served, 1, "t7", SAY, SETTLE, again, SETTLE, {"do": "reload"}, again, SETTLE)
        users = [e async for e in served.bus.session("t7").read(kinds={"user"})]
    assert len(users) == 1
    assert seen.texts == ["hi", "Hello, you."]
    assert types_of(seen.events()) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


@VERSIONS
async def test_a_page_that_got_a_picture_as_a_text_in_brackets_may_send_the_run_again(
    referees: Path, version: int, tmp_path: Path
) -> None:
    paused, file = Pause(), tmp_path / "reloaded"
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60_000)).decode()
    picture = {"type": "image", "source": {"type": "data", "value": data, "mimeType": "image/png"}}
    say = {"do": "say", "id": "m1", "content": [{"type": "text", "text": "see"}, picture]}
    model = ScriptedModel([paused, *answer("A white cat.")])
    async with served_agent(AgentLoop(model)) as served, told(file, paused):
        seen = await agui(
            *(referees, served, version, "t13", say, {"do": "gets", "type": "MESSAGES_SNAPSHOT"}, {"do": "reload"}),
            *({"do": "run", "runId": "run-2"}, {"do": "gets", "type": "MESSAGES_SNAPSHOT"}),
            *({"do": "signal", "path": str(file)}, SETTLE),
        )
        users = [each async for each in served.bus.session("t13").read(kinds={"user"})]
    assert (seen.statuses, len(users)) == ([200, 200], 1)
    assert "[image: image/png]" in str(seen.messages[0]["content"])
    assert seen.texts[-1] == "A white cat."


@VERSIONS
async def test_the_answer_of_a_killed_worker_gives_way_to_that_of_the_next(
    referees: Path, version: int, valkey: RealServer, starter: Starter, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    async with valkey.bus() as bus, serving(bus) as served, anyio.create_task_group() as tasks:

        async def take_over() -> None:
            with starter.running("tests.support.agent.agent_process", valkey.url):
                await eventually(killed.exists)
            async with Worker(bus, demo_agent(delay=0), name="heir", heartbeat=1):
                await anyio.sleep_forever()

        tasks.start_soon(take_over)
        seen = await agui(
            *(referees, served, version, "t8"),
            {"do": "say", "id": "m1", "content": "What can you do?"},
            *({"do": "shows", "text": '"role":"assistant","content":"'}, {"do": "signal", "path": str(killed)}, SETTLE),
        )
        # Clients keep thinking that a snapshot does not have, so that of the lost worker stays until the next reload.
        assert [role for role in seen.roles if role != "reasoning"] == ["user", "assistant"]
        begun = [event["messageId"] for event in seen.events() if event["type"] == "TEXT_MESSAGE_START"]
        assert len(begun) == 2
        assert seen.messages[-1]["id"] == begun[-1]
        assert outcome(seen) == {"type": "success"}
        tasks.cancel_scope.cancel()


@VERSIONS
async def test_a_sub_agent_notes_and_others_messages_are_shown(referees: Path, version: int) -> None:
    child = AgentLoop(ScriptedModel(answer("The child says yes.")))
    ask = ToolCallBlock(id="c1", name="helper", arguments={"task": "Ask."})
    paused = Pause()
    model = ScriptedModel(calls(ask), paused_answer(paused, "It says yes."), answer("Goodbye."))
    agent = AgentLoop(model, tools=[SubAgent("helper", child, "Helps.")])
    async with served_agent(agent) as served, anyio.create_task_group() as tasks:

        async def interfere() -> None:
            session = served.bus.session("t9")
            await paused.reached.wait()
            await session.publish(ExtensionMessage.of("acme.weather", {"sun": True}), wake=False)
            await session.publish(UserMessage.text("Me too!"))
            paused.over.set()

        tasks.start_soon(interfere)
        seen = await agui(referees, served, version, "t9", SAY, SETTLE)
        found = {str(event["type"]): event for event in seen.events()}
        assert found["SUBAGENT_STARTED"]["name"] == "helper"
        assert found["SUBAGENT_STARTED"]["subagentRunId"] == found["SUBAGENT_FINISHED"]["subagentRunId"]
        assert (found["CUSTOM"]["name"], found["CUSTOM"]["value"]) == ("acme.weather", {"sun": True})
        assert seen.texts[-3:] == ["It says yes.", "Me too!", "Goodbye."] or seen.texts[-3:] == [
            *("Me too!", "It says yes.", "Goodbye.")
        ]


@VERSIONS
async def test_a_paused_session_is_an_interrupt_that_a_resume_ends(referees: Path, version: int) -> None:
    async with served_agent(AgentLoop(ScriptedModel(answer("Here I am.")))) as served:
        await pause(served.bus.session("t10", agent="agent"))
        seen = await agui(referees, served, version, "t10", SAY, {"do": "answer"}, SETTLE)
    assert "paused" in str(outcome(seen, 0))
    assert (seen.texts, outcome(seen)) == (["hi", "Here I am."], {"type": "success"})
