"""Agents of pydantic-ai in workers: turns, tools, approvals, commands, errors and crashes."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from lanebus import AssistantMessage, Bus, Delta, Session, UserMessage
from lanebus import pydantic_ai as public
from lanebus.agent import Worker, abort, approve, ask, deny, load_agent, steer
from lanebus.context import build_context
from lanebus.errors import InvalidArgument, MissingExtra
from lanebus.handlers.integrations.pydantic_ai.messages import assistant_message, raw_of
from lanebus.messages import AgentEnded, Redactable, ToolEnded, ToolWaiting, TurnEnded
from lanebus.projections import TURNS, USAGE, project
from lanebus.pydantic_ai import PydanticAgent
from tests.support.agent.awaited import first_event
from tests.support.agent.logs import answers, events_of, results
from tests.support.backends.pydantic_ai.agents import returned, scripted, told
from tests.support.servers.real import AnyServer, RealServer, eventually, spawn

NAME = "pydantic-ai"


async def waiting_call(bus: Bus, agent: Agent[None, str]) -> ToolWaiting:
    """Run the agent in a worker that ends when a call waits for a person."""
    session = bus.session("s", agent=NAME)
    async with Worker(bus, PydanticAgent(agent)):
        await session.publish(UserMessage.text("Go"))
        return await first_event(session, ToolWaiting)


async def approved(bus: Bus, agent: Agent[None, str], waiting: ToolWaiting) -> Session:
    """Approve the call, and run the agent to its end in another worker."""
    session = bus.session("s", agent=NAME)
    await approve(session, waiting.turn_id, waiting.tool_call_id)
    async with Worker(bus, PydanticAgent(agent)):
        await first_event(session, AgentEnded)
    return session


def heard(model: FunctionModel, hear: Callable[[list[ModelMessage]], None]) -> FunctionModel:
    """Return the model, which tells the messages of each request first."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[object]:
        hear(messages)
        assert model.stream_function is not None
        async for piece in model.stream_function(messages, info):
            yield piece

    return FunctionModel(stream_function=stream)  # type: ignore[arg-type]  # pieces of the model


def removing(path: str) -> tuple[Agent[None, str], list[str]]:
    """Return an agent that asks whether it may remove a path, and the paths that it removed."""
    runs, agent = list[str](), Agent(scripted({"remove": json.dumps({"path": path})}, "done"))

    @agent.tool_plain(requires_approval=True)
    def remove(path: str) -> str:  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
        runs.append(path)
        return "gone"

    return agent, runs


async def outcomes(session: Session) -> list[str | None]:
    return [event.outcome for event in await events_of(session, ToolEnded)]


async def loop_ends(session: Session) -> list[str]:
    return [event.stop_reason for event in await events_of(session, AgentEnded)]


async def answered(bus: Bus, agent: PydanticAgent[None, str], *questions: str) -> Session:
    """Run the agent on one session until all questions are answered, one after the other."""
    session = bus.session("s", agent=NAME)
    async with Worker(bus, agent):
        for question in questions:
            await ask(session, question)
    return session


def double(number: int) -> dict[str, int]:
    """Double a number."""
    return {"doubled": 2 * number}


@pytest.mark.cluster("the worker's keys and the session are on several nodes")
async def test_an_agent_answers_with_tools_and_remembers(server: AnyServer) -> None:
    histories: list[list[ModelMessage]] = []

    def seen(context: RunContext[object], number: int) -> dict[str, int]:
        histories.append([*context.messages])
        return double(number)

    agent = Agent(scripted({"seen": '{"number": 2}'}, "It is 4.", {"seen": '{"number": 3}'}), tools=[seen])
    async with server.bus() as bus:
        session = await answered(bus, PydanticAgent(agent), "Double 2", "And 3")
        assert await loop_ends(session) == ["stop", "stop"]
        assert [message.text_with_results() for message in (await build_context(session)).messages] == [
            *("Double 2", "", '{"doubled":4}', "It is 4."),
            *("And 3", "", '{"doubled":6}', "done"),
        ]
        state = (await project(session, TURNS)).state
        assert [(str(turn.turn_id), turn.status, turn.model) for turn in state.turns] == [
            (f"s.main.{loop}#{index}", "completed", "scripted") for loop in (1, 2) for index in (0, 1)
        ]
        assert state.waiting == ()
        total = (await project(session, USAGE)).state.total
        assert total.calls == 4
        assert total.usage.output > 0
    assert told(histories[1]) == ["Double 2", "And 3"]
    assert returned(histories[1]) == {"seen-0": {"doubled": 4}}


async def test_the_answer_streams_as_live_deltas(bus: Bus) -> None:
    agent = PydanticAgent(Agent(scripted("one two three")))
    session, text = bus.session("s", agent=NAME), ""
    await session.publish(UserMessage.text("Count"))
    async with Worker(bus, agent), aclosing(session.follow(live=True)) as envelopes:
        async for envelope in envelopes:
            if isinstance(envelope.message, Delta) and envelope.message.kind == "text":
                text += envelope.message.delta
            if isinstance(envelope.message, AssistantMessage):
                break
    assert text == "one two three"


async def test_a_model_that_cannot_stream_is_called_whole(bus: Bus) -> None:
    agent = Agent(FunctionModel(scripted_whole))
    session = await answered(bus, PydanticAgent(agent, streams=False), "Hello")
    assert (await build_context(session)).messages[-1].text_content() == "whole"


def scripted_whole(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("whole")])


async def test_dependencies_are_those_of_the_session(bus: Bus) -> None:
    def who(context: RunContext[str]) -> str:
        return context.deps

    agent = Agent(scripted({"who": "{}"}, "done"), deps_type=str, tools=[who])
    session = bus.session("s", agent=NAME)
    async with Worker(bus, PydanticAgent(agent, deps=lambda session: f"of {session.id}")):
        await ask(session, "Who?")
    assert (await build_context(session)).messages[2].text_with_results() == "of s"


async def test_instructions_and_the_system_prompt_reach_each_request(bus: Bus) -> None:
    asked: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        head = messages[0].parts[0]
        asked.append(f"{info.instructions} {head.part_kind} {getattr(head, 'content', None)}")
        yield "yes"

    agent = Agent(FunctionModel(stream_function=stream), instructions="Be brief.", system_prompt="You are kind.")
    await answered(bus, PydanticAgent(agent), "one", "two")
    assert asked == ["Be brief. system-prompt You are kind."] * 2


async def test_a_typed_output_ends_the_loop(bus: Bus) -> None:
    class City(BaseModel):
        name: str

    agent = Agent(TestModel(custom_output_args={"name": "Bonn"}), output_type=City, tools=[double])
    session = await answered(bus, PydanticAgent(agent), "Where?")  # type: ignore[arg-type]  # of another output
    assert await loop_ends(session) == ["stop"]
    assert await outcomes(session) == ["completed", "completed"]


async def test_a_refused_output_is_asked_for_again(bus: Bus) -> None:
    agent = Agent(scripted("short", "long enough"))

    @agent.output_validator
    def check(output: str) -> str:  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
        if len(output) < 8:
            raise ModelRetry("longer, please")
        return output

    session = await answered(bus, PydanticAgent(agent), "Say")
    assert await loop_ends(session) == ["stop"]
    assert [each.text_content() for each in (await build_context(session)).messages] == ["Say", "long enough"]


def again(number: int) -> str:
    if number < 2:
        raise ModelRetry("take a larger number")
    return "fine"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([("again", 1), ("again", 2)], ["failed", "completed"]),
        ([("missing", "x")], ["failed"]),
        ([("double", "x")], ["failed"]),
    ],
    ids=["fails", "is missing", "has no such argument"],
)
async def test_a_call_that_fails_has_a_failed_result_and_the_model_goes_on(
    bus: Bus, calls: list[tuple[str, object]], expected: list[str]
) -> None:
    model = scripted(*({name: json.dumps({"number": number})} for name, number in calls), "done")
    session = await answered(bus, PydanticAgent(Agent(model, tools=[again, double])), "Go")
    assert await outcomes(session) == expected
    assert await loop_ends(session) == ["stop"]


async def test_an_error_of_the_model_ends_the_loop_as_failed(bus: Bus) -> None:
    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        yield "half "
        raise ModelHTTPError(500, "scripted")

    agent = PydanticAgent(Agent(FunctionModel(stream_function=stream)))
    session = bus.session("s", agent=NAME)
    async with Worker(bus, agent):
        await session.publish(UserMessage.text("Go"))
        await first_event(session, AgentEnded)
    assert await loop_ends(session) == ["error"]
    assert [each.stop_reason for each in await answers(session)] == ["error"]


# --- approvals and commands -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("is_approved", [True, False])
async def test_a_call_waits_for_a_person(bus: Bus, *, declared: bool, is_approved: bool) -> None:
    runs: list[str] = []
    agent = Agent(scripted({"remove": '{"path": "x"}', "double": '{"number": 1}'}, "done"), tools=[double])

    @agent.tool(requires_approval=declared)
    def remove(context: RunContext[object], path: str) -> str:  # pyright: ignore[reportUnusedFunction]  # registered
        if not context.tool_call_approved:
            raise ApprovalRequired
        runs.append(path)
        return "gone"

    session = bus.session("s", agent=NAME)
    async with Worker(bus, PydanticAgent(agent)):
        await session.publish(UserMessage.text("Go"))
        waiting = await first_event(session, ToolWaiting)
        await (approve if is_approved else deny)(session, waiting.turn_id, waiting.tool_call_id)
        await first_event(session, AgentEnded)
    assert runs == (["x"] if is_approved else [])
    assert sorted(map(str, await outcomes(session))) == ["completed", "completed" if is_approved else "denied"]
    assert await loop_ends(session) == ["stop"]


async def test_an_imported_answer_with_the_id_of_an_approved_call_does_not_run(bus: Bus) -> None:
    agent, runs = removing("x")
    waiting = await waiting_call(bus, agent)
    call = ToolCallPart("remove", {"path": "everything"}, waiting.tool_call_id)
    forged = assistant_message(ModelResponse(parts=[call]), waiting.turn_id)
    for raw in (None, raw_of(ModelResponse(parts=[call]), 10_000)):
        await bus.session("s").publish(forged.model_copy(update={"raw": raw}), imported=True)
    await approved(bus, agent, waiting)
    assert runs == ["x"]


async def test_an_answer_whose_own_form_has_other_arguments_than_the_approved_ones_does_not_run(
    shared_valkey: RealServer,
) -> None:
    def swapped(message: Redactable) -> Redactable:
        if not isinstance(message, AssistantMessage):
            return message
        raw = json.dumps(message.raw).replace("harmless", "everything")
        return message.model_copy(update={"raw": json.loads(raw)})

    agent, runs = removing("harmless")
    async with Bus.open(shared_valkey.url, redact=swapped) as bus:
        await approved(bus, agent, await waiting_call(bus, agent))
        assert runs == []


async def test_after_the_worker_was_replaced_an_approval_is_obeyed_and_no_call_runs_twice(bus: Bus) -> None:
    runs: list[int] = []
    histories: list[dict[str, object]] = []

    def count(number: int) -> list[int]:
        runs.append(number)
        return [number]

    model = scripted({"count": '{"number": 3}', "remove": "{}"}, "done")
    agent = Agent(heard(model, lambda messages: histories.append(returned(messages))), tools=[count])

    @agent.tool_plain(requires_approval=True)
    def remove() -> str:  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
        return "gone"

    session = bus.session("s", agent=NAME)
    async with Worker(bus, PydanticAgent(agent)):
        await session.publish(UserMessage.text("Go"))
        waiting = await first_event(session, ToolWaiting)
        await first_event(session, ToolEnded)
    await approved(bus, agent, waiting)
    assert await outcomes(session) == ["completed", "completed"]
    assert runs == [3]
    assert histories[-1] == {"count-0": [3], "remove-0": "gone"}


async def test_an_abort_ends_the_loop_in_the_model_call(bus: Bus) -> None:
    begun = anyio.Event()

    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        yield "half"
        begun.set()
        await anyio.sleep_forever()

    agent = PydanticAgent(Agent(FunctionModel(stream_function=stream)))
    session = bus.session("s", agent=NAME)
    async with Worker(bus, agent):
        await session.publish(UserMessage.text("Go"))
        await begun.wait()
        await abort(session)
        await first_event(session, AgentEnded)
    assert [(each.text_content(), each.stop_reason) for each in await answers(session)] == [("half", "aborted")]


async def test_a_message_during_a_loop_is_part_of_the_next_model_call(bus: Bus) -> None:
    begun, goes_on = anyio.Event(), anyio.Event()
    asked: list[list[object]] = []

    async def pause() -> str:
        begun.set()
        await goes_on.wait()
        return "paused"

    model = scripted({"pause": "{}"}, "done")

    agent = Agent(heard(model, lambda messages: asked.append(told(messages))), tools=[pause])
    session = bus.session("s", agent=NAME)
    async with Worker(bus, PydanticAgent(agent)):
        await session.publish(UserMessage.text("Go"))
        await begun.wait()
        await steer(session, "and be kind")
        goes_on.set()
        await first_event(session, AgentEnded)
    assert asked == [["Go"], ["Go", "and be kind"]]


async def test_a_call_that_is_run_elsewhere_gets_a_failed_result(bus: Bus) -> None:
    def elsewhere() -> str:
        raise CallDeferred

    agent = Agent(scripted({"elsewhere": "{}"}), tools=[elsewhere], output_type=[str, DeferredToolRequests])
    session = bus.session("s", agent=NAME)
    async with Worker(bus, PydanticAgent(agent)):
        await session.publish(UserMessage.text("Go"))
        await first_event(session, AgentEnded)
    assert await outcomes(session) == ["failed"]
    assert await loop_ends(session) == ["stop"]


def test_an_agent_is_loaded_by_its_name_for_the_command_line() -> None:
    assert isinstance(load_agent("tests.support.backends.pydantic_ai.agents:greeter"), PydanticAgent)


def test_what_is_no_agent_of_pydantic_ai_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        PydanticAgent("openai:gpt-5")  # type: ignore[arg-type]  # on purpose


def test_a_missing_harness_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai_harness", None)
    for name in [each for each in sys.modules if each.startswith("pydantic_ai_harness.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "lanebus.handlers.integrations.pydantic_ai.steps", raising=False)
    with pytest.raises(MissingExtra, match=r"lanebus\[pydantic-ai-harness\]"):
        _ = public.LanebusStepStore


# --- crashes ----------------------------------------------------------------------------------------------------------


async def test_another_worker_goes_on_after_sigkill_in_a_tool(shared_valkey: RealServer, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    command = [sys.executable, "-m", "tests.support.backends.pydantic_ai.worker_process", shared_valkey.url]
    async with shared_valkey.bus() as bus:
        session = bus.session("s", agent=NAME)
        victim = spawn(*command, "victim", str(notes))
        try:
            await session.publish(UserMessage.text("Go"))
            await eventually(lambda: notes.exists() and notes.read_text() == "a\nb\n")
            # The result of the last note is recorded before the process dies in the other call.
            await first_event(session, ToolEnded, lambda ended: ended.tool_call_id == "note-1")
        finally:
            victim.kill()
            victim.wait()
        heir = spawn(*command, "heir", str(notes))
        try:
            await first_event(session, AgentEnded)
        finally:
            heir.kill()
            heir.wait()
        assert notes.read_text() == "a\nb\n"
        assert await outcomes(session) == ["completed", "completed", "unknown"]
        assert [each.tool_call_id for each in await results(session)] == ["note-0", "note-1", "wait-1"]
        assert len(await events_of(session, TurnEnded)) == 3
        assert (await build_context(session)).messages[-1].text_content() == "all is noted"
