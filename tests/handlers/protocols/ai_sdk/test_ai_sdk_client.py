"""The clients of AI SDK 5, 6 and 7, unmodified, with `useChat`'s transport, on a real server and a real worker."""

from pathlib import Path
from typing import cast

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, ExtensionMessage, TextBlock, ToolCallBlock
from lanebus.agent import AgentLoop, tool
from lanebus.handlers.agent import ToolContext, Worker
from lanebus.handlers.providers import Piece
from lanebus.messages import ThinkingBlock
from tests.support.agent.agents import Pause, ScriptedModel, answer, calls, wait_for
from tests.support.agent.agents import Step as Said
from tests.support.agent.served_agent import served_agent, wait_for_worker
from tests.support.node.chat import Seen, chat, texts
from tests.support.page.serving import serving, temporary_bus
from tests.support.servers.real import eventually

VERSIONS = pytest.mark.parametrize("version", [5, 6, 7])
WITH_APPROVALS = pytest.mark.parametrize("version", [6, 7])
Step = dict[str, JsonValue]
HI: Step = {"do": "send", "text": "hi"}
SETTLE: Step = {"do": "settle"}
RESUME: Step = {"do": "resume"}
APPROVE: Step = {"do": "approval", "command": "approve"}
REPLIED: Step = {"do": "replied", "count": 2}

PAY = ToolCallBlock(id="call-1", name="pay", arguments={"amount": 3})


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(name="pay")
async def pay_freely(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def shows(text: str) -> Step:
    return {"do": "shows", "text": text}


def awaits(path: Path) -> Step:
    return {"do": "await", "path": str(path)}


def signal(path: Path) -> Step:
    return {"do": "signal", "path": str(path)}


async def release(pause: Pause, path: Path) -> None:
    """Release a pause once the chat has written a file."""
    await eventually(path.exists)
    pause.over.set()


def is_answered(seen: Seen, text: str = "Done.", *, state: str = "output-available") -> bool:
    """Whether the only message of the agent has one call in a state, and a text."""
    assert (seen.status, seen.errors, states(seen), texts(seen)) == ("ready", [], [state], [text])
    return [each["role"] for each in seen.messages] == ["user", "assistant"]


def states(seen: Seen) -> list[JsonValue]:
    return [part["state"] for part in seen.parts if part["type"] == "dynamic-tool"]


@VERSIONS
async def test_a_message_gets_its_answer_a_second_one_another_and_there_is_nothing_to_resume_meanwhile(
    referees: Path, version: int
) -> None:
    async with served_agent(AgentLoop(ScriptedModel(answer("Hello, you."), answer("Goodbye.")))) as served:
        steps: list[Step] = [RESUME, SETTLE, HI, SETTLE, RESUME, SETTLE, {"do": "send", "text": "bye"}, SETTLE]
        seen = await chat(referees, served, version, "c1", *steps)
    assert [each["id"] for each in seen.messages if each["role"] == "assistant"] == ["c1.main.1", "c1.main.2"]
    assert (seen.status, seen.errors, texts(seen)) == ("ready", [], ["Goodbye."])
    assert [reply[0] for reply in seen.replies] == [204, 200, 204, 200]
    assert [reply for reply in seen.replies if reply[0] == 200] == [[200, "v1"], [200, "v1"]]
    assert seen.finishes[-1]["finishReason"] == "stop"
    usage = seen.parts[-1]
    assert (usage["type"], usage["id"]) == ("data-usage", "usage")
    counts = {
        **{"input": 10, "output": 2, "reasoning": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 12, "cost": None}
    }
    assert seen.messages[-1]["metadata"] == {
        "outcome": "finished",
        "stopReason": "stop",
        "usage": {**counts, "models": [{"provider": None, "model": None, **counts}]},
    }


@VERSIONS
async def test_reasoning_tools_their_progress_and_notes_of_the_extension_lane_arrive(
    referees: Path, version: int
) -> None:
    look = ToolCallBlock(id="call-1", name="look", arguments={"at": "x"})
    fail = ToolCallBlock(id="call-2", name="fail", arguments={})

    async with temporary_bus() as bus:

        @tool(name="look")
        async def looking(context: ToolContext, at: str) -> dict[str, str]:
            """Look."""
            await bus.session(context.session).publish(ExtensionMessage.of("weather", {"rain": True}))
            return {"seen": at}

        @tool(name="fail")
        async def failing() -> str:
            """Fail."""
            raise ValueError("no such thing")

        thought = AssistantMessage(
            content=(ThinkingBlock(text="Well, well."), TextBlock(text="I look."), look, fail), stop_reason="toolUse"
        )
        first: list[Said] = [
            Piece("thinking", "Well, "),
            Piece("thinking", "well."),
            Piece("text", "I look.", 1),
            Piece("toolCall", '{"at":', 2, "look"),
            Piece("toolCall", '"x"}', 2),
            thought,
        ]
        model = ScriptedModel(first, answer("Done."))
        async with serving(bus) as served, Worker(bus, AgentLoop(model, [looking, failing]), name="w1"):
            await wait_for_worker(bus)
            seen = await chat(referees, served, version, "c1", HI, SETTLE)
    assert (seen.status, seen.errors) == ("ready", [])
    assert [part["type"] for part in seen.parts] == [
        *("step-start", "reasoning", "text", "dynamic-tool", "dynamic-tool"),
        *("step-start", "text", "data-usage"),
    ]
    assert (texts(seen, "reasoning"), texts(seen)) == (["Well, well."], ["I look.", "Done."])
    assert states(seen) == ["output-available", "output-error"]
    made, failed = seen.parts[3], seen.parts[4]
    assert (made["toolName"], made["input"], made["output"]) == ("look", {"at": "x"}, {"seen": "x"})
    assert "no such thing" in str(failed["errorText"])
    assert [(part["type"], part["data"]) for part in seen.data if part.get("transient")] == [
        ("data-weather", {"rain": True})
    ]


@WITH_APPROVALS
@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_that_was_answered_runs_or_is_denied_and_the_same_message_goes_on(
    referees: Path, version: int, *, approved: bool
) -> None:
    async with served_agent(AgentLoop(ScriptedModel(calls(PAY), answer("Done.")), [pay])) as served:
        given: Step = {"do": "answer", "approved": approved, "reason": "because"}
        seen = await chat(referees, served, version, "c1", HI, SETTLE, given)
        commands = [e.message async for e in served.bus.session("c1").read(kinds={"control.*"})]
    assert is_answered(seen, state="output-available" if approved else "output-denied")
    assert [each["finishReason"] for each in seen.finishes] == ["tool-calls", "stop"]
    assert [part["type"] for part in seen.parts].count("data-usage") == 1
    (command,) = commands
    assert isinstance(command, ExtensionMessage)
    if approved:
        assert (command.kind, seen.parts[1]["output"]) == ("control.approve", "paid 3")
    else:
        turn = {"loopId": "c1.main.1", "turnIndex": 0}
        assert command.kind == "control.deny"
        assert command.data == {"turnId": turn, "toolCallId": "call-1", "reason": "because", "by": "page"}


@pytest.mark.parametrize(("version", "is_named"), [(5, True), (5, False), (6, False), (7, False)])
async def test_a_client_of_no_named_version_approves_by_a_command_and_resumes(
    referees: Path, version: int, is_named: bool
) -> None:
    async with served_agent(AgentLoop(ScriptedModel(calls(PAY), answer("Done.")), [pay])) as served:
        steps: list[Step] = [HI, SETTLE, APPROVE, RESUME, SETTLE]
        assert is_answered(await chat(referees, served, version, "c1", *steps, is_named=is_named))


@VERSIONS
@pytest.mark.parametrize("place", ["in the tool", "in the answer", "after the end"])
async def test_a_resumed_answer_shows_the_result_however_far_the_agent_is(
    referees: Path, version: int, place: str, tmp_path: Path
) -> None:
    in_tool, in_answer = Pause(), Pause()
    paused = {"in the tool": in_tool, "in the answer": in_answer}.get(place)

    @tool(name="pay", approval=True)
    async def paying(amount: int) -> str:
        """Pay."""
        if paused is in_tool:
            await in_tool.wait()
        return f"paid {amount}"

    piece, rest, whole = answer("Done.")
    model = ScriptedModel(calls(PAY), [piece, *([in_answer] if paused is in_answer else []), rest, whole])
    async with served_agent(AgentLoop(model, [paying])) as served, anyio.create_task_group() as tasks:

        async def let_it_resume() -> None:
            if paused is None:
                await wait_for(served.bus.session("c1"), "agent.ended")
            else:
                await paused.reached.wait()
            (tmp_path / "ready").touch()

        tasks.start_soon(let_it_resume)
        if paused is not None:
            tasks.start_soon(release, paused, tmp_path / "resumed")
        before = [HI, SETTLE, APPROVE, awaits(tmp_path / "ready"), RESUME]
        steps = [*before, REPLIED, signal(tmp_path / "resumed"), SETTLE]
        assert is_answered(await chat(referees, served, version, "c1", *steps, is_named=False))


@VERSIONS
async def test_a_waiting_approval_is_shown_again_after_a_reload(referees: Path, version: int) -> None:
    async with served_agent(AgentLoop(ScriptedModel(calls(PAY), answer("Done.")), [pay])) as served:
        steps: list[Step] = [HI, SETTLE, {"do": "reload", "keep": "user"}, RESUME, SETTLE]
        seen = await chat(referees, served, version, "c1", *steps)
    assert (seen.status, seen.errors, seen.replies) == ("ready", [], [[200, "v1"], [200, "v1"]])
    if version == 5:
        assert [part["type"] for part in seen.parts] == ["step-start", "dynamic-tool", "data-approval", "data-usage"]
    else:
        assert states(seen) == ["approval-requested"]


@VERSIONS
async def test_an_abort_ends_the_message_with_its_text(referees: Path, version: int) -> None:
    pause = Pause()
    model = ScriptedModel([Piece("text", "Once upon"), pause, *answer("Once upon a time.")])
    abort: Step = {"do": "post", "path": "/api/sessions/c1/commands", "body": {"command": "abort"}}
    async with served_agent(AgentLoop(model)) as served:
        seen = await chat(referees, served, version, "c1", HI, shows("Once upon"), abort, SETTLE)
    assert (seen.status, seen.errors, texts(seen)) == ("ready", [], ["Once upon"])
    assert [part["state"] for part in seen.parts if part["type"] == "text"] == ["done"]
    about = seen.messages[-1]["metadata"]
    assert isinstance(about, dict)
    assert (about["outcome"], about["stopReason"]) == ("aborted", "aborted")


@VERSIONS
async def test_a_failure_reaches_the_application_without_its_secrets(referees: Path, version: int) -> None:
    fault = ValueError("cannot reach redis://user:hunter2@db/0")
    async with served_agent(AgentLoop(ScriptedModel([fault]))) as served:
        seen = await chat(referees, served, version, "c1", HI, SETTLE)
    assert (seen.status, len(seen.errors)) == ("error", 1)
    assert "cannot reach" in seen.errors[0]
    assert "hunter2" not in seen.errors[0]


@VERSIONS
@pytest.mark.parametrize("keep", ["none", "user", "all"])
async def test_a_page_that_is_reloaded_in_mid_answer_goes_on_with_the_same_message(
    referees: Path, version: int, keep: str, tmp_path: Path
) -> None:
    pause = Pause()
    model = ScriptedModel(calls(PAY), [Piece("text", "Once upon "), pause, *answer("Once upon a time.")[2:]])
    again: list[Step] = [{"do": "reload", "keep": keep}, RESUME, REPLIED, shows("Once upon")]
    async with served_agent(AgentLoop(model, [pay_freely])) as served, anyio.create_task_group() as tasks:
        tasks.start_soon(release, pause, tmp_path / "resumed")
        steps = [HI, shows("Once upon"), *again, signal(tmp_path / "resumed"), SETTLE]
        seen = await chat(referees, served, version, "c1", *steps)
        assert (seen.status, seen.errors, texts(seen)) == ("ready", [], ["Once upon a time."])
        assert [each["id"] for each in seen.messages if each["role"] == "assistant"] == ["c1.main.1"]
        assert states(seen) == ["output-available"]


@VERSIONS
@pytest.mark.parametrize("keep", ["none", "user"])
async def test_an_application_is_told_that_no_worker_serves_the_agent_and_no_message_keeps_it(
    referees: Path, version: int, keep: str, tmp_path: Path
) -> None:
    told: Step = {"do": "gets", "type": "data-no-worker"}
    reload: list[Step] = [{"do": "reload", "keep": keep}, RESUME, {**told, "count": 2}]
    async with temporary_bus() as bus, serving(bus) as served, anyio.create_task_group() as tasks:

        async def answer_later() -> None:
            await eventually((tmp_path / "told").exists)
            async with Worker(bus, AgentLoop(ScriptedModel(answer("Hello."))), name="w1"):
                await anyio.sleep_forever()

        tasks.start_soon(answer_later)
        seen = await chat(referees, served, version, "c1", HI, told, *reload, signal(tmp_path / "told"), SETTLE)
        assert (seen.status, seen.errors, texts(seen)) == ("ready", [], ["Hello."])
        text = "No worker serves the agent 'agent' now: the answer waits until one does."
        about = {"agent": "agent", "text": text}
        notice = {"type": "data-no-worker", "id": "no-worker", "data": about, "transient": True}
        assert [part for part in seen.data if part["type"] == "data-no-worker"] == [notice, notice]
        assert "no-worker" not in str(seen.messages)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("version", "how"), [(6, "resume"), (7, "resume"), (5, "load"), (6, "load"), (7, "load")])
async def test_an_answer_that_ended_while_the_client_was_away_is_whole(
    referees: Path, version: int, how: str, tmp_path: Path
) -> None:
    pause = Pause()
    model = ScriptedModel(calls(PAY), [Piece("text", "Once upon "), pause, *answer("Once upon a time.")[2:]])
    back: Step = {"do": "resume", "missed": True} if how == "resume" else {"do": "load"}
    away: list[Step] = [{"do": "stop"}, signal(tmp_path / "stopped"), awaits(tmp_path / "ended")]
    async with served_agent(AgentLoop(model, [pay_freely])) as served, anyio.create_task_group() as tasks:

        async def end() -> None:
            await release(pause, tmp_path / "stopped")
            await wait_for(served.bus.session("c1"), "agent.ended")
            (tmp_path / "ended").touch()

        tasks.start_soon(end)
        steps = [HI, shows("Once upon"), *away, back, SETTLE, RESUME, SETTLE]
        assert is_answered(await chat(referees, served, version, "c1", *steps), "Once upon a time.")


@VERSIONS
async def test_an_answer_that_ends_after_the_messages_were_loaded_is_whole(
    referees: Path, version: int, tmp_path: Path
) -> None:
    pause = Pause()
    model = ScriptedModel(answer("Hello."), [Piece("text", "Once upon "), pause, *answer("Once upon a time.")[2:]])
    before: list[Step] = [HI, SETTLE, {"do": "send", "text": "tell"}, shows("Once upon"), {"do": "load"}]
    async with served_agent(AgentLoop(model)) as served, anyio.create_task_group() as tasks:

        async def end() -> None:
            await release(pause, tmp_path / "loaded")
            await wait_for(served.bus.session("c1"), "agent.ended", count=2)
            (tmp_path / "ended").touch()

        tasks.start_soon(end)
        steps = [*before, signal(tmp_path / "loaded"), awaits(tmp_path / "ended"), RESUME, SETTLE]
        seen = await chat(referees, served, version, "c1", *steps)
        assert (seen.status, seen.errors, texts(seen)) == ("ready", [], ["Once upon a time."])
        assert [each["role"] for each in seen.messages] == ["user", "assistant", "user", "assistant"]
        first = cast("list[Step]", seen.messages[1]["parts"])
        assert [part["text"] for part in first if "text" in part] == ["Hello."]


@VERSIONS
async def test_another_worker_takes_over_in_mid_answer(referees: Path, version: int, tmp_path: Path) -> None:
    pause = Pause()
    first = AgentLoop(ScriptedModel([Piece("text", "Once upon "), pause]))
    second = AgentLoop(ScriptedModel(answer("There was a king.")))
    async with temporary_bus() as bus, serving(bus) as served, anyio.create_task_group() as tasks:

        async def hand_over() -> None:
            async with Worker(bus, first, name="w1", drain_seconds=0.05) as worker:
                await eventually((tmp_path / "shown").exists)
                worker.stop()
            tasks.start_soon(Worker(bus, second, name="w2").run)

        tasks.start_soon(hand_over)
        seen = await chat(referees, served, version, "c1", HI, shows("Once upon"), signal(tmp_path / "shown"), SETTLE)
        assert (seen.status, seen.errors) == ("ready", [])
        # Before version 7, a client cannot take back what it has shown.
        assert texts(seen) == (["There was a king."] if version == 7 else ["Once upon ", "There was a king."])
        assert [each["id"] for each in seen.messages if each["role"] == "assistant"] == ["c1.main.1"]
        tasks.cancel_scope.cancel()


@VERSIONS
async def test_an_answer_cannot_be_generated_again_in_place(referees: Path, version: int) -> None:
    async with served_agent(AgentLoop(ScriptedModel(answer("Hello.")))) as served:
        seen = await chat(referees, served, version, "c1", HI, SETTLE, {"do": "regenerate"}, SETTLE)
    assert seen.status == "error"
    assert "fork the session" in seen.errors[0]
