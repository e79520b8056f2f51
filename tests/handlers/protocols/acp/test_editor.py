"""The official client of ACP on the agent's side of it, in one process, with scripted models."""

import asyncio
import base64

import anyio
import pytest
from acp.exceptions import RequestError
from acp.schema import (
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, ExtensionMessage, TextBlock, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, pause, tool
from lanebus.bus.messages import Approve, ToolWaiting
from lanebus.handlers.agent import ToolContext, Worker, approve
from lanebus.handlers.protocols.acp.editor_session import EditorBounds
from lanebus.handlers.providers import Piece
from lanebus.messages import ImageBlock, ThinkingBlock
from tests.support.agent.agents import (
    Pause,
    ScriptedModel,
    Step,
    answer,
    bus,
    calls,
    events,
    messages,
    opening,
    said,
    until,
    wait_for,
)
from tests.support.agent.editor import CWD, Decide, allow, cancelled, editing, never, reject
from tests.support.agent.served_agent import paused_answer
from tests.support.servers.real import eventually

__all__ = ("bus", "opening")

DISK = ToolCallBlock(id="call-1", name="format_disk", arguments={"disk": "é1"})
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


@tool(approval=True)
def format_disk(disk: str) -> str:
    """Format a disk."""
    return f"{disk} is empty"


@tool
def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


async def test_a_prompt_gets_its_answer_once_and_is_stored_in_the_log_of_its_agent(bus: Bus) -> None:
    model = ScriptedModel(answer("Hello, you."), answer("Hello again."), answer("Half", stop_reason="length"))
    async with editing(bus, AgentLoop(model, name="support")) as editor:
        session = await editor.open()
        first, second, third = [await editor.say(session, text) for text in ("hi", "and again", "and more")]
        head = await bus.session(session).head()
        user, said, *_ = await messages(bus.session(session))
    assert editor.told(session) == ["agent: Hello, you.", "agent: Hello again.", "agent: Half"]
    assert [each.stop_reason for each in (first, second, third)] == ["end_turn", "end_turn", "max_tokens"]
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.total_tokens, second.usage.total_tokens) == (12, 24)
    assert (head.agent, said.text_content()) == ("support", "Hello, you.")
    assert user.metadata == {"lanebus.by": "editor", "lanebus.cwd": CWD}


async def test_a_resumed_session_tells_only_what_is_new_and_workers_elsewhere_answer(bus: Bus) -> None:
    agent = AgentLoop(ScriptedModel(answer("First."), answer("Second.")))
    async with editing(bus, agent) as editor:
        session = await editor.open()
        await editor.say(session, "one")
    async with Worker(bus, agent, name="w1"), editing(bus, agent, has_worker=False) as editor:
        await editor.client.resume_session(session_id=session, cwd=CWD, mcp_servers=[])
        assert editor.updates == []
        await editor.say(session, "two")
    assert editor.told(session) == ["agent: Second."]


async def test_a_tool_knows_the_folder_of_the_newest_prompt(bus: Bus) -> None:
    @tool
    def folder(context: ToolContext) -> str:
        """Return the folder."""
        assert context.run is not None
        named = [(message.metadata or {}).get("lanebus.cwd") for message in context.run.snapshot.context.messages]
        return next(str(each) for each in reversed(named) if each)

    ask = calls(ToolCallBlock(id="c1", name="folder", arguments={}))
    agent = AgentLoop(ScriptedModel(ask, answer("There."), ask, answer("Here.")), tools=[folder])
    async with editing(bus, agent) as editor:
        session = await editor.open("/one")
        await editor.say(session, "where?")
        await editor.client.resume_session(session_id=session, cwd="/two", mcp_servers=[])
        await editor.say(session, "and now?")
    results = [line for line in editor.told(session) if "completed" in line]
    assert results == ["tool 1 completed: /one", "tool 2 completed: /two"]


async def test_thinking_tools_and_results_are_told_in_their_order_and_a_load_tells_the_same(bus: Bus) -> None:
    sums = [ToolCallBlock(id=f"c{n}", name="add", arguments={"a": 1, "b": n}) for n in (1, 2)]
    thought = AssistantMessage(
        content=(ThinkingBlock(text="They want sums."), TextBlock(text="Let me add."), *sums), stop_reason="toolUse"
    )
    first: list[Step] = [
        *(Piece("thinking", "They want ", 0), Piece("thinking", "sums.", 0), Piece("text", "Let me add.", 1)),
        *(Piece("toolCall", '{"a": 1', 2, "add"), Piece("toolCall", ', "b": 1}', 2), thought),
    ]
    async with editing(bus, AgentLoop(ScriptedModel(first, answer("Two and three.")), tools=[add])) as editor:
        session = await editor.open()
        await editor.say(session, "hi")
        live, count = editor.told(session), len(editor.updates)
        await editor.client.load_session(cwd=CWD, session_id=session, mcp_servers=[])
        replayed = editor.told(session, after=count)
    wanted = {
        *("tool 1 add pending", "tool 1 {'a': 1, 'b': 1}", "tool 1 in_progress", "tool 1 completed: 2"),
        *("tool 2 add pending", "tool 2 {'a': 1, 'b': 2}", "tool 2 in_progress", "tool 2 completed: 3"),
    }
    for told in (live, replayed):
        said = [line for line in told if not line.startswith("tool")]
        assert said[-3:] == ["agent thought: They want sums.", "agent: Let me add.", "agent: Two and three."]
        assert {line for line in told if line.startswith("tool")} == wanted
        assert len(told) == len(set(told))
        for number in (1, 2):
            assert told.index(f"tool {number} in_progress") < told.index(f"tool {number} completed: {number + 1}")
    assert replayed[0] == "user: hi"


@pytest.mark.parametrize(
    ("decide", "result", "reason"),
    [
        (allow, "completed: é1 is empty", "end_turn"),
        (reject, "failed: ", "end_turn"),
        (cancelled, "failed: ", "cancelled"),
    ],
)
async def test_a_call_that_needs_approval_asks_the_person(bus: Bus, decide: Decide, result: str, reason: str) -> None:
    model = ScriptedModel(calls(DISK), answer("Finished."))
    async with editing(bus, AgentLoop(model, tools=[format_disk]), decide) as editor:
        session = await editor.open()
        ended = await editor.say(session, "format it")
        commands = [e.message async for e in bus.session(session).read(kinds={"control.*"})]
    (asked,) = editor.asked
    assert (asked.title, asked.raw_input) == ("format_disk", {"disk": "é1"})
    assert ended.stop_reason == reason
    told = [line for line in editor.told(session) if line.startswith("tool 1")]
    assert told[-1].startswith(f"tool 1 {result}")
    assert {str(update["toolCallId"]) for _, update in editor.updates if "toolCallId" in update} == {asked.tool_call_id}
    (command,) = commands
    assert isinstance(command, ExtensionMessage)
    assert isinstance(command.data, dict)
    assert command.data["by"] == "editor"
    if decide is allow:
        assert Approve.read(command.data).call_hash == DISK.call_hash
        assert editor.told(session)[-1] == "agent: Finished."


async def test_a_call_that_another_person_approves_is_asked_no_more(bus: Bus) -> None:
    model = ScriptedModel(calls(DISK), answer("Finished."))
    async with editing(bus, AgentLoop(model, tools=[format_disk]), never) as editor, anyio.create_task_group() as tasks:
        session = await editor.open()

        async def approve_elsewhere() -> None:
            await eventually(lambda: bool(editor.asked))
            (waiting,) = [event for event in await events(bus.session(session)) if isinstance(event, ToolWaiting)]
            await approve(bus.session(session), waiting.turn_id, DISK.id, by="Ada")

        tasks.start_soon(approve_elsewhere)
        ended = await editor.say(session, "format it")
        assert (ended.stop_reason, editor.told(session)[-1]) == ("end_turn", "agent: Finished.")
        assert len(editor.asked) == 1


async def test_a_load_asks_again_for_a_permission_that_was_not_given(bus: Bus) -> None:
    agent = AgentLoop(ScriptedModel(calls(DISK), answer("Finished.")), tools=[format_disk])
    async with editing(bus, agent, never) as editor:
        session = await editor.open()
        asking = asyncio.create_task(editor.say(session, "format it"))
        await eventually(lambda: bool(editor.asked))
        asking.cancel()
    async with editing(bus, agent, allow) as editor:
        await editor.client.load_session(cwd=CWD, session_id=session, mcp_servers=[])
        await editor.until(session, "Finished.")
    assert editor.told(session)[0] == "user: format it"
    assert len(editor.asked) == 1


async def test_a_cancelled_prompt_keeps_its_text_and_the_next_one_is_answered(bus: Bus) -> None:
    model = ScriptedModel(paused_answer(Pause(), "As I was saying"), answer("Yes?"))
    async with editing(bus, AgentLoop(model)) as editor:
        session = await editor.open()
        saying = asyncio.create_task(editor.say(session, "talk"))
        await editor.until(session, "As I wa")
        await editor.client.cancel(session_id=session)
        first = await saying
        again = await editor.say(session, "hello?")
    assert (first.stop_reason, again.stop_reason) == ("cancelled", "end_turn")
    assert editor.told(session) == ["agent: As I wa", "agent: Yes?"]


@pytest.mark.parametrize("seconds", [0.01, 60.0])
async def test_a_prompt_that_is_cancelled_at_once_ends_also_without_a_worker(bus: Bus, seconds: float) -> None:
    agent, has_worker = AgentLoop(ScriptedModel(answer("Only this."))), seconds > 1
    async with editing(bus, agent, has_worker=has_worker, bounds=EditorBounds(cancel_seconds=seconds)) as editor:
        session = await editor.open()
        saying = asyncio.create_task(editor.say(session, "never mind"))
        await asyncio.sleep(0)  # sends the prompt
        await editor.client.cancel(session_id=session)
        ended = await saying
        kinds = await said(bus.session(session))
    assert ended.stop_reason == "cancelled"
    assert kinds.index("user: never mind") < kinds.index("control.abort")


async def test_a_second_prompt_is_refused_while_one_is_under_way(bus: Bus) -> None:
    paused = Pause()
    async with editing(bus, AgentLoop(ScriptedModel(paused_answer(paused, "As I was saying")))) as editor:
        session = await editor.open()
        saying = asyncio.create_task(editor.say(session, "talk"))
        await paused.reached.wait()
        with pytest.raises(RequestError, match="under way") as caught:
            await editor.say(session, "me too")
        paused.over.set()
        await saying
    assert caught.value.code == -32600


async def test_a_load_or_a_close_ends_a_prompt_that_is_under_way(bus: Bus) -> None:
    model = ScriptedModel(paused_answer(Pause(), "As I was saying"))
    async with editing(bus, AgentLoop(model)) as editor:
        session = await editor.open()
        saying = asyncio.create_task(editor.say(session, "talk"))
        await editor.until(session, "As I wa")
        again = [editor.client.load_session(cwd=CWD, session_id=session, mcp_servers=[]) for _ in range(3)]
        await asyncio.gather(*again, return_exceptions=True)
        assert (await saying).stop_reason == "cancelled"
        saying = asyncio.create_task(editor.say(session, "and?"))
        await wait_for(bus.session(session), "user: and?")
        await editor.client.close_session(session_id=session)
        assert (await saying).stop_reason == "cancelled"
        with pytest.raises(RequestError) as caught:
            await editor.client.close_session(session_id=session)
    assert caught.value.code == -32002


async def test_a_prompt_of_a_session_that_is_not_open_opens_it(bus: Bus) -> None:
    agent = AgentLoop(ScriptedModel(answer("First."), answer("Second.")))
    async with editing(bus, agent, bounds=EditorBounds(sessions=1)) as editor:
        session = await editor.open()
        await editor.say(session, "one")
        with pytest.raises(RequestError, match="close one first"):
            await editor.open()
        await editor.client.close_session(session_id=session)
        await editor.say(session, "two")
        user = [m for m in await messages(bus.session(session)) if isinstance(m, UserMessage)][-1]
    assert editor.told(session) == ["agent: First.", "agent: Second."]
    assert (user.metadata or {})["lanebus.cwd"] == CWD


async def test_a_fork_goes_on_by_itself(bus: Bus) -> None:
    agent = AgentLoop(ScriptedModel(answer("First."), answer("Second.")))
    async with editing(bus, agent) as editor:
        session = await editor.open()
        await editor.say(session, "one")
        fork = (await editor.client.fork_session(session_id=session, cwd="/fork")).session_id
        count = len(editor.updates)
        await editor.say(fork, "two")
        assert editor.told(fork, after=count) == ["agent: Second."]
        await editor.client.load_session(cwd="/fork", session_id=fork, mcp_servers=[])
        assert len(await messages(bus.session(session))) == 2
    assert editor.told(fork, after=count + 1) != []
    assert [line for line in editor.told(fork) if line.startswith("user")] == ["user: one", "user: two"]


async def test_sessions_are_listed_a_page_at_a_time_with_their_folders_and_titles(bus: Bus) -> None:
    agent = AgentLoop(ScriptedModel(answer("First.")), name="mine")
    async with editing(bus, agent, bounds=EditorBounds(page=2)) as editor:
        await bus.session("other", agent="someone").publish(UserMessage.text("not mine"))
        first = await editor.open("/one")
        await editor.say(first, "What is this?")
        fork = (await editor.client.fork_session(session_id=first, cwd="/two")).session_id
        await bus.session("plain", agent="mine").publish(ExtensionMessage.of("note", None))
        page = await editor.client.list_sessions()
        await bus.session(fork).publish(ExtensionMessage.of("note", None), wake=False)  # moves to the front
        rest = await editor.client.list_sessions(cursor=page.next_cursor)
        of_two = await editor.client.list_sessions(cwd="/two")
    assert [(each.session_id, each.title) for each in page.sessions] == [("plain", None), (fork, "What is this?")]
    assert [(each.session_id, each.cwd, each.title) for each in rest.sessions] == [(first, "/one", "What is this?")]
    assert rest.next_cursor is None
    assert [each.session_id for each in of_two.sessions] == [fork]
    assert rest.sessions[0].updated_at


async def test_images_and_resources_reach_the_model_and_come_back_with_a_load(bus: Bus) -> None:
    small, large = (base64.b64encode(PNG + b"\0" * more).decode() for more in (0, 60_000))
    text = TextResourceContents(uri="file:///project/a.txt", text="alpha")
    blob = BlobResourceContents(uri="file:///project/b.png", blob=small, mime_type="image/png")
    async with editing(bus, AgentLoop(ScriptedModel(answer("I see.")))) as editor:
        session = await editor.open()
        await editor.client.prompt(
            session_id=session,
            prompt=[
                TextContentBlock(type="text", text="Look:"),
                ImageContentBlock(type="image", data=large, mime_type="image/png"),
                ResourceContentBlock(type="resource_link", name="main.py", uri="file:///project/main.py"),
                EmbeddedResourceContentBlock(type="resource", resource=text),
                EmbeddedResourceContentBlock(type="resource", resource=blob),
            ],
        )
        await editor.client.load_session(cwd=CWD, session_id=session, mcp_servers=[])
        (user, _) = await messages(bus.session(session))
    assert [block.type for block in user.content] == ["text", "image", "text", "text", "image"]
    pictures = [block.media for block in user.content if isinstance(block, ImageBlock)]
    assert [media.kind for media in pictures] == ["sha256", "data"]  # a large one is stored beside the log
    assert pictures[1].filename == "b.png"
    assert "[main.py](file:///project/main.py)" in user.text_content()
    assert '<resource uri="file:///project/a.txt">\nalpha\n</resource>' in user.text_content()
    sent = [update["content"] for _, update in editor.updates if update["sessionUpdate"] == "user_message_chunk"]
    assert [each["data"] for each in sent if isinstance(each, dict) and each["type"] == "image"] == [large, small]
    async with editing(bus, AgentLoop(ScriptedModel()), bounds=EditorBounds(media_bytes=10)) as editor:
        await editor.client.load_session(cwd=CWD, session_id=session, mcp_servers=[])
    assert "[image: image/png]" in editor.told(session)[0]  # over the bound


async def test_a_failure_is_an_error_without_its_secrets(bus: Bus) -> None:
    model = ScriptedModel([RuntimeError("no such model for sk-abcdefgh12345678")])
    async with editing(bus, AgentLoop(model)) as editor:
        session = await editor.open()
        with pytest.raises(RequestError, match="no such model") as caught:
            await editor.say(session, "hi")
    assert caught.value.code == -32603
    assert "abcdefgh" not in str(editor.raw)


async def test_a_paused_session_says_so_and_keeps_the_message(bus: Bus) -> None:
    async with editing(bus, AgentLoop(ScriptedModel(answer("First.")))) as editor:
        session = await editor.open()
        await editor.say(session, "one")
        await pause(bus.session(session))
        ended = await editor.say(session, "two")
        last = (await messages(bus.session(session)))[-1]
    assert ended.stop_reason == "end_turn"
    assert f"lanebus control resume {session}" in editor.told(session)[-1]
    assert last.text_content() == "two"


async def test_what_other_clients_write_is_told_between_prompts(bus: Bus) -> None:
    plan: JsonValue = {"entries": [{"content": "Look", "status": "completed"}, {"content": "Leap", "priority": "odd"}]}
    async with editing(bus, AgentLoop(ScriptedModel(answer("Hello, Ada.")))) as editor:
        session = await editor.open()
        await bus.session(session).publish(ExtensionMessage.of("plan", plan), ExtensionMessage.of("plan", "none"))
        await bus.session(session).publish(UserMessage.text("Ada here"))
        await editor.until(session, "Hello, Ada.")
    steps = [
        {"content": "Look", "status": "completed", "priority": "medium"},
        {"content": "Leap", "status": "pending", "priority": "medium"},
    ]
    assert [update["entries"] for _, update in editor.updates if update["sessionUpdate"] == "plan"] == [steps]
    assert editor.told(session)[1:] == ["user: Ada here", "agent: Hello, Ada."]


async def test_a_closed_session_refuses_a_prompt_an_erased_one_is_not_found_and_a_trimmed_one_loaded(bus: Bus) -> None:
    async def is_refused(session: str) -> bool:
        with pytest.raises(RequestError):
            await editor.say(session, "hi")
        return True

    for text in ("one", "two", "three"):
        await bus.session("s1").publish(UserMessage.text(text), wake=False)
    await bus.session("s1").trim(3)
    async with editing(bus, AgentLoop(ScriptedModel()), has_worker=False) as editor:
        await editor.client.load_session(cwd=CWD, session_id="s1", mcp_servers=[])
        assert [each.session_id for each in (await editor.client.list_sessions()).sessions] == ["s1"]
        assert editor.told("s1") == ["user: three"]
    async with editing(bus, AgentLoop(ScriptedModel())) as editor:
        session = await editor.open()
        await bus.session(session).close()
        with pytest.raises(RequestError, match="closed"):
            await editor.say(session, "hi")
        other = await editor.open()
        await bus.session(other).erase()
        await until(lambda: is_refused(other))
        with pytest.raises(RequestError) as caught:
            await editor.client.load_session(cwd=CWD, session_id=other, mcp_servers=[])
    assert caught.value.code == -32002
