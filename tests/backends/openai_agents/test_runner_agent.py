"""`RunnerAgent`: the SDK's runner in a worker, with the log as the truth."""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio
import pytest
from agents import Agent, GuardrailFunctionOutput, InputGuardrail, RunConfig, function_tool
from agents.items import TResponseStreamEvent
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from lanebus import AssistantMessage, Bus, Delta, ExtensionMessage, Lane, Session, ToolResultMessage, UserMessage
from lanebus.agent import Worker, abort, approve, deny, steer
from lanebus.errors import InvalidArgument
from lanebus.messages import AgentEnded, ControlAnswered, ToolStarted, ToolWaiting
from lanebus.openai_agents import RunnerAgent
from lanebus.projections import TURNS, look
from tests.support.agent.agents import SECONDS, fresh_bus
from tests.support.agent.awaited import first_event
from tests.support.backends.agents_sdk import process, scripted, shop_agent
from tests.support.servers.real import AnyServer, RealServer


@asynccontextmanager
async def working(bus: Bus, agent: RunnerAgent, name: str = "w") -> AsyncGenerator[None]:
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(Worker(bus, agent, name=name).run)
            yield
            group.cancel_scope.cancel()


async def ask(session: Session, text: str) -> AgentEnded:
    receipt = await session.publish(UserMessage.text(text))
    return await first_event(session, AgentEnded, after=receipt.position)


async def said(session: Session) -> list[str]:
    return [
        envelope.message.text_content()
        async for envelope in session.read()
        if isinstance(envelope.message, AssistantMessage | ToolResultMessage) and envelope.message.content
    ]


def inputs(model: ScriptedModel) -> list[list[object]]:
    return [[*call.input] for call in model.calls if not isinstance(call.input, str)]


async def test_a_run_is_recorded_as_turns_with_tools_and_usage() -> None:
    model = scripted(("add", {"one": 1, "other": 2}), "It is 3.", "Bye.")
    async with fresh_bus() as bus, working(bus, RunnerAgent(shop_agent(model=model))):
        session = bus.session("s")
        assert (await ask(session, "1 + 2?")).stop_reason == "stop"
        assert (await ask(session, "Thanks")).stop_reason == "stop"
        assert await said(session) == ["", "3", "It is 3.", "Bye."]
        turns = (await look(session, TURNS)).state.turns
        assert [(turn.status, [run.name for run in turn.tools], turn.provider) for turn in turns] == [
            ("completed", ["add"], "openai"),
            ("completed", [], "openai"),
            ("completed", [], "openai"),
        ]
        assert all(turn.usage and turn.usage.total_tokens == 25 and turn.usage.cache_read == 8 for turn in turns)
        assert len(inputs(model)[2]) == 5


class Paused(ScriptedModel):
    """A model whose stream ends only once its text was seen."""

    seen: anyio.Event

    async def stream_response(self, *args: Any, **options: Any) -> AsyncGenerator[TResponseStreamEvent]:
        async for event in super().stream_response(*args, **options):
            if event.type == "response.completed":
                await self.seen.wait()
            yield event


async def test_the_text_of_an_answer_is_shown_while_the_model_writes_it() -> None:
    model = Paused([ModelStep(output=[assistant_message("Hello there.")])])
    model.seen = anyio.Event()
    async with fresh_bus() as bus, working(bus, RunnerAgent(shop_agent(model=model))):
        session = bus.session("s")
        await session.publish(UserMessage.text("Hi"))
        shown = ""
        async for envelope in session.follow(live=True):
            if isinstance(envelope.message, Delta):
                shown += envelope.message.delta
                if shown == "Hello there.":
                    break
        model.seen.set()
        await first_event(session, AgentEnded)
        assert await said(session) == ["Hello there."]


@pytest.mark.cluster("the run is stored on the session's node")
async def test_a_run_that_waits_for_a_person_is_continued_by_another_worker(server: AnyServer) -> None:
    steps = (("refund", {"order": 7}), "Done.")
    async with server.bus() as bus:
        session = bus.session("s")
        async with working(bus, RunnerAgent(shop_agent(*steps))):
            await session.publish(UserMessage.text("Refund order 7"))
            waiting = await first_event(session, ToolWaiting)
        await approve(session, waiting.turn_id, waiting.tool_call_id)
        async with server.bus() as other, working(other, RunnerAgent(shop_agent(*steps[1:])), "w2"):
            ended = await first_event(session, AgentEnded)
        assert (ended.stop_reason, ended.turns) == ("stop", 2)
        assert await said(session) == ["", "refunded 7", "Done."]


async def test_another_agent_asks_anew_about_a_call_that_was_approved_for_the_agent_before(bus: Bus) -> None:
    session = bus.session("s")
    async with working(bus, RunnerAgent(shop_agent(("refund", {"order": 7})))):
        await session.publish(UserMessage.text("Refund order 7"))
        waiting = await first_event(session, ToolWaiting)
    approved = await approve(session, waiting.turn_id, waiting.tool_call_id)
    await session.publish(ControlAnswered(control=approved.position, outcome="applied").as_extension())
    over = await session.hand_over("other")
    with anyio.fail_after(SECONDS):
        async with Worker(bus, RunnerAgent(shop_agent()), agents={"other": RunnerAgent(shop_agent("Done."))}):
            again = await first_event(session, ToolWaiting, after=over.position)
            assert "refunded 7" not in await said(session)
            await approve(session, again.turn_id, again.tool_call_id)
            await first_event(session, AgentEnded)
    assert await said(session) == ["", "refunded 7", "Done."]


async def test_a_denied_tool_does_not_run_and_the_model_is_told() -> None:
    model = scripted(("refund", {"order": 7}), "Not refunded.")
    async with fresh_bus() as bus, working(bus, RunnerAgent(shop_agent(model=model))):
        session = bus.session("s")
        await session.publish(UserMessage.text("Refund order 7"))
        waiting = await first_event(session, ToolWaiting)
        await deny(session, waiting.turn_id, waiting.tool_call_id)
        await first_event(session, AgentEnded)
        assert "Denied by the user" in str(inputs(model)[1])
        assert (await said(session))[-1] == "Not refunded."
        assert "refunded 7" not in await said(session)


def refunding(refunded: list[int], *, asks: bool = True) -> RunnerAgent:
    """Return an agent that notes the refunds that were made. It asks for two at once, or its model has asked before."""

    @function_tool(needs_approval=True)
    def refund(order: int) -> str:
        refunded.append(order)
        return f"refunded {order}"

    calls = [function_call("refund", {"order": order}, call_id=f"c{order}") for order in (7, 8)]
    steps = [ModelStep(output=calls), ModelStep(output=[assistant_message("Done.")])]
    return RunnerAgent(Agent(name="shop", model=ScriptedModel(steps if asks else steps[1:]), tools=[refund]))


@pytest.mark.parametrize("is_denied", [True, False])
async def test_of_two_calls_in_one_answer_each_runs_once_it_is_approved_and_not_if_denied(*, is_denied: bool) -> None:
    refunded: list[int] = []
    async with fresh_bus() as bus, working(bus, refunding(refunded)):
        session = bus.session("s")
        await session.publish(UserMessage.text("Refund 7 and 8"))
        waiting = await first_event(session, ToolWaiting)
        first = await (deny if is_denied else approve)(session, waiting.turn_id, "c7")
        if not is_denied:
            kinds = {"store.openai_agents.interrupted"}
            async for _ in session.follow(lanes={*Lane}, kinds=kinds, after=first.cursor):
                break  # the run was stored again
            assert refunded == [7]
        await approve(session, waiting.turn_id, "c8")
        await first_event(session, AgentEnded)
        assert refunded == ([8] if is_denied else [7, 8])
        outcomes = [run.outcome for run in (await look(session, TURNS)).state.turns[0].tools]
        assert outcomes == ["denied" if is_denied else "completed", "completed"]
        said_first = "Denied by the user" if is_denied else "refunded 7"
        assert (await said(session))[1:] == [said_first, "refunded 8", "Done."]


async def test_the_next_message_goes_to_the_agent_that_the_conversation_was_handed_over_to(bus: Bus) -> None:
    agent = RunnerAgent(shop_agent(("transfer_to_expert", {}), expert=["The expert.", "The expert again."]))
    session = bus.session("s")
    async with working(bus, agent):
        await ask(session, "Help")
    async with working(bus, agent, "w2"):
        await ask(session, "More")
    assert await said(session) == ["", '{"assistant": "expert"}', "The expert.", "The expert again."]
    kinds = [e.message async for e in session.read() if isinstance(e.message, ExtensionMessage)]
    assert [message.data for message in kinds if message.kind == "openai_agents.handoff"] == [
        {"from": "shop", "to": "expert"}
    ]


async def test_an_abort_stops_the_run_and_its_tool() -> None:
    model = scripted(("wait", {}), "Still here.")
    async with fresh_bus() as bus, working(bus, RunnerAgent(shop_agent(model=model))):
        session = bus.session("s")
        await session.publish(UserMessage.text("Wait"))
        await first_event(session, ToolStarted)
        await abort(session)
        ended = await first_event(session, AgentEnded)
        assert ended.stop_reason in {"aborted", "userStop"}
        assert (await ask(session, "There?")).stop_reason == "stop"
        assert (await said(session))[-1] == "Still here."


async def test_a_message_that_comes_during_a_run_reaches_the_next_model_call(bus: Bus) -> None:
    session = bus.session("s")

    async def first(call: ModelCall) -> ModelStep:
        await steer(session, "And 3 + 4?")
        return ModelStep(output=[function_call("add", {"one": 1, "other": 2}, call_id="c")])

    model = ScriptedModel([ModelStep.respond(first), ModelStep(output=[assistant_message("3 and 7.")])])
    async with working(bus, RunnerAgent(shop_agent(model=model))):
        await ask(session, "1 + 2?")
    assert "And 3 + 4?" in str(inputs(model)[1])
    assert "And 3 + 4?" not in str(inputs(model)[0])
    assert (await said(session))[-1] == "3 and 7."


@dataclass
class Case:
    agent: RunnerAgent
    reason: str
    text: str


def _trips(*_: object) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


@pytest.mark.parametrize(
    "case",
    [
        Case(
            RunnerAgent(shop_agent(model=ScriptedModel([ModelStep.raise_error(OSError("no route"))]))),
            "error",
            "no route",
        ),
        Case(RunnerAgent(shop_agent(("add", {"one": 1, "other": 2})), max_turns=1), "maxTurns", "Max turns"),
        Case(RunnerAgent(shop_agent(("nothing", {}))), "error", "nothing"),
        Case(
            RunnerAgent(
                shop_agent("never"),
                run_config=RunConfig(input_guardrails=[InputGuardrail(_trips, run_in_parallel=False)]),
            ),
            "error",
            "Guardrail",
        ),
    ],
    ids=["a model that cannot be reached", "too many turns", "an unknown tool", "a guardrail"],
)
async def test_a_run_that_fails_ends_its_loop_with_the_reason(case: Case) -> None:
    async with fresh_bus() as bus, working(bus, case.agent):
        session = bus.session("s")
        assert (await ask(session, "Hello")).stop_reason == case.reason
        entries = [str(envelope.message) async for envelope in session.read()]
        assert any(case.text in entry for entry in entries)


async def test_a_worker_killed_while_a_tool_runs_is_replaced_and_the_model_goes_on(shared_valkey: RealServer) -> None:
    steps = '[["wait", {}]]'
    async with shared_valkey.bus() as bus:
        session = bus.session("s")
        with process("work", shared_valkey.url, "first", steps) as next_line:
            await session.publish(UserMessage.text("Wait"))
            assert await next_line() == "running\n"
        async with working(bus, RunnerAgent(shop_agent("It was lost.")), "second"):
            ended = await first_event(session, AgentEnded)
        assert (ended.stop_reason, ended.turns) == ("stop", 2)
        assert [run.outcome for turn in (await look(session, TURNS)).state.turns for run in turn.tools] == ["unknown"]
        assert (await said(session))[-1] == "It was lost."


def test_only_an_agent_of_the_sdk_is_taken() -> None:
    with pytest.raises(InvalidArgument):
        RunnerAgent("shop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the wrong type is the point
    assert RunnerAgent(Agent(name="any name"), name="shop").name == "shop"


async def edited(session: Session, old: str, new: str) -> ExtensionMessage:
    """Return the stored run that waits for a person, with another text in its state."""
    entries = session.read(lanes={*Lane}, kinds={"store.openai_agents.interrupted"})
    message = [envelope.message async for envelope in entries][-1]
    assert isinstance(message, ExtensionMessage)
    data = cast("dict[str, str]", message.data)
    state = b64decode(data["state"]).decode()
    assert old in state
    made = json.loads(state.replace(old, new))
    made["context"]["tool_invocations"] = {}  # the SDK compares these with its calls
    return ExtensionMessage(kind=message.kind, data={**data, "state": b64encode(json.dumps(made).encode()).decode()})


async def paused(bus: Bus) -> ToolWaiting:
    """Run an agent until it waits for a person who approves two refunds."""
    async with working(bus, refunding([])):
        await bus.session("s").publish(UserMessage.text("Refund 7 and 8"))
        return await first_event(bus.session("s"), ToolWaiting)


@pytest.mark.parametrize("imported", [True, False])
async def test_a_stored_run_with_other_arguments_than_the_approved_ones_runs_none_of_them(
    bus: Bus, *, imported: bool
) -> None:
    refunded: list[int] = []
    session, waiting = bus.session("s"), await paused(bus)
    changed = await edited(session, r"order\":7", r"order\":999")
    await session.publish(changed, imported=imported)
    await approve(session, waiting.turn_id, "c7")
    await approve(session, waiting.turn_id, "c8")
    async with working(bus, refunding(refunded, asks=False)):
        await first_event(session, AgentEnded)
    assert refunded == ([7, 8] if imported else [])


async def test_an_imported_run_with_the_turn_of_an_own_answer_is_not_continued(bus: Bus) -> None:
    refunded: list[int] = []
    session, waiting = bus.session("s"), await paused(bus)
    async for envelope in session.read(lanes={*Lane}):
        if isinstance(envelope.message, ExtensionMessage | AssistantMessage | UserMessage):
            await bus.session("t").publish(envelope.message, imported=True)
    await approve(bus.session("t"), waiting.turn_id, "c7")
    async with working(bus, refunding(refunded, asks=False)):
        await ask(bus.session("t"), "Go on")
    assert refunded == []
