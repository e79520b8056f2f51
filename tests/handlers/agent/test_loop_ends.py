"""Other ends and delays of a loop: limits, guards, transient failures; and the order of its events."""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from decimal import Decimal
from itertools import count

import pytest

from lanebus import AssistantMessage, Bus, Rates, Session, TextBlock, Usage, UserMessage
from lanebus.agent import (
    AgentLoop,
    CostUnknown,
    ModelFailure,
    Reject,
    RunBounds,
    TryAgain,
    Warn,
    load_model,
    pause,
    resume,
    steer,
)
from lanebus.groups import RetryPolicy
from lanebus.handlers.agent import LoopLimits, ModelRequest, Run, abort, approve, follow_up
from lanebus.handlers.agent.metadata_keys import AGAIN, CUT
from lanebus.handlers.agent.models.model import with_failure
from lanebus.handlers.agent.turn.decision import CompactContext
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot
from lanebus.handlers.agent.turn.record import fail_loop
from lanebus.handlers.context import DEFERRED, READ_UP_TO, build_context, visible_context
from lanebus.messages import AgentEnded, AgentStarted, Cost, InputRejected, TurnEnded, TurnId, TurnStarted
from lanebus.providers import ModelEvent
from tests.handlers.agent.test_commands import ends
from tests.handlers.agent.test_loop import Died, MortalRun
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls, take_run
from tests.support.agent.logs import answers, events, events_of, said
from tests.support.agent.runs import FIRST, SECOND, ask, at_work, first, second, work

__all__ = ()


def failing(failure: ModelFailure, text: str = "overloaded") -> list[Step]:
    """A failed answer as an adapter returns it."""
    message = AssistantMessage(
        content=(TextBlock(text="Well"),), stop_reason="error", error_message=text, usage=Usage(input=1)
    )
    return [with_failure(message, failure)]


async def shown(model: ScriptedModel, request: int) -> list[str]:
    return [message.text_content() for message in model.requests[request].context.messages]


# --- limits -------------------------------------------------------------------------------------------------------


async def test_a_loop_at_its_cost_limit_is_stopped_before_the_next_call(session: Session) -> None:
    await ask(session)
    spent = Usage(input=1, cost=Cost(total=Decimal("0.3")))
    whole = AssistantMessage(content=(FIRST,), stop_reason="toolUse", usage=spent)
    model = ScriptedModel([whole], [whole], answer("Never."), answer("Yes."))
    agent = AgentLoop(model, (first,), limits=LoopLimits(cost=Decimal("0.5")))
    await work(agent, await take_run(session))
    assert (await said(session))[-2:] == ["user: [Agent stopped: cost limit of $0.5 reached]", "agent.ended"]
    (end,) = await events_of(session, AgentEnded)
    assert (end.stop_reason, end.turns) == ("guardRail", 2)
    assert end.usage.cost is not None
    assert end.usage.cost.total == Decimal("0.6")
    assert len(model.requests) == 2


@pytest.mark.parametrize("lists", [True, False], ids=["price lists", "no price lists"])
def test_a_cost_limit_is_refused_for_a_model_of_unknown_price(lists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    if not lists:
        monkeypatch.setitem(sys.modules, "genai_prices", None)
    limits = LoopLimits(cost=Decimal("0.5"))
    with pytest.raises(
        CostUnknown, match=r"'claude-house'.* pass `rates` to the model, or install .*lanebus\[cost\]"
    ) as no:
        AgentLoop(load_model("anthropic/claude-house"), limits=limits)
    assert no.value.model == "claude-house"
    priced = load_model("anthropic/claude-house", rates=Rates(input=Decimal(1), output=Decimal(5)))
    assert AgentLoop(priced, limits=limits).settings.limits == limits
    assert AgentLoop(load_model("anthropic/claude-house")).settings.limits.cost is None
    if lists:
        assert AgentLoop(load_model("anthropic/claude-sonnet-4-5"), limits=limits).settings.limits == limits


async def test_a_model_that_always_fails_transiently_is_stopped_at_the_turn_limit(session: Session) -> None:
    await ask(session)
    model = ScriptedModel(*[failing(ModelFailure(is_transient=True))] * 9)
    agent = AgentLoop(model, max_turns=2, retry=RetryPolicy(attempts=9, base=0))
    run = await take_run(session)
    for _ in range(2):
        with pytest.raises(TryAgain):
            await agent(run)
    await work(agent, run)
    assert await ends(session) == ["maxTurns"]
    assert len(model.requests) == 2


# --- a model that fails transiently -------------------------------------------------------------------------------


async def test_a_model_that_fails_transiently_is_called_again_in_the_same_loop(session: Session) -> None:
    await ask(session)
    model = ScriptedModel(
        failing(ModelFailure(is_transient=True)),
        failing(ModelFailure(is_transient=True, retry_after=70.0)),
        answer("Here."),
    )
    agent = AgentLoop(model, retry=RetryPolicy(attempts=3, base=8.0, jitter="equal"))
    run = await take_run(session)
    with pytest.raises(TryAgain) as caught:
        await agent(run)
    assert 4.0 <= caught.value.delay <= 8.0
    assert caught.value.reason == "overloaded"
    assert (await said(session))[-3:] == ["assistant error: Well", "agent.message.ended", "agent.turn.ended"]
    with pytest.raises(TryAgain) as caught:
        await agent(run)
    assert caught.value.delay == 70.0, "as long as the provider wants, which is more than we would wait"
    await work(agent, run)
    assert await ends(session) == ["stop"]
    assert await shown(model, 2) == ["hello?"]
    started = await events_of(session, TurnStarted)
    assert [turn.prompts for turn in started] == [(1,)] * 3
    keys = [request.key for request in model.requests]
    assert len(set(keys)) == 3
    assert all(keys)


async def test_a_provider_may_ask_for_no_longer_wait_than_the_bound(session: Session) -> None:
    await ask(session)
    agent = AgentLoop(ScriptedModel(failing(ModelFailure(is_transient=True, retry_after=1e300))))
    with pytest.raises(TryAgain) as caught:
        await agent(await take_run(session, bounds=RunBounds(retry_after_seconds=90.0)))
    assert caught.value.delay == 90.0


async def test_attempts_are_counted_from_the_log_and_the_last_one_ends_the_loop(session: Session) -> None:
    await ask(session)
    retry = RetryPolicy(attempts=3, base=0)
    for attempt in range(1, 4):
        agent = AgentLoop(ScriptedModel(failing(ModelFailure(is_transient=True))), retry=retry)
        if attempt < 3:
            with pytest.raises(TryAgain):
                await agent(await take_run(session))
        else:
            await agent(await take_run(session))
    assert await ends(session) == ["error"]
    told = await answers(session)
    assert [bool((message.metadata or {}).get(AGAIN)) for message in told] == [True, True, False]
    (end,) = await events_of(session, AgentEnded)
    assert end.usage.input == 3


async def test_a_permanent_failure_is_not_retried(session: Session) -> None:
    await ask(session)
    await AgentLoop(ScriptedModel(failing(ModelFailure(status=401))))(await take_run(session))
    assert await ends(session) == ["error"]


async def test_an_abort_ends_a_loop_during_its_backoff(session: Session) -> None:
    await ask(session)
    model = ScriptedModel(failing(ModelFailure(is_transient=True)))
    agent, run = AgentLoop(model), await take_run(session)
    with pytest.raises(TryAgain):
        await agent(run)
    await abort(session)
    await work(agent, run)
    assert await ends(session) == ["aborted"]
    assert len(model.requests) == 1


# --- compaction ---------------------------------------------------------------------------------------------------


class Shortener:
    """Wants to compact after an overflow, but only ends the loop and answers the command."""

    def __init__(self, log: list[CompactContext]) -> None:
        self.log = log

    def wants(self, view: SessionSnapshot) -> bool:
        newest = view.context.path[-1].message if view.context.path else None
        return isinstance(newest, AssistantMessage) and newest.is_context_overflow()

    async def compact(self, run: Run, view: SessionSnapshot, step: CompactContext) -> None:
        del view
        self.log.append(step)
        end = AgentEnded(
            loop_id=step.turn_id.loop_id, stop_reason="contextCompacted", turns=step.turn_id.turn_index, usage=Usage()
        )
        await run.publish(UserMessage.text("short").with_turn_id(step.turn_id), end.as_extension())


async def test_a_request_that_was_too_long_is_sent_again_when_it_is_shorter(session: Session) -> None:
    await ask(session)
    too_long = failing(ModelFailure(is_overflow=True), "prompt is too long: 9 tokens > 8 maximum")
    log: list[CompactContext] = []
    model = ScriptedModel(too_long, too_long, answer("Never."))
    agent = AgentLoop(model, compaction=Shortener(log))
    await work(agent, await take_run(session))
    assert [step.is_open for step in log] == [True]
    assert await ends(session) == ["contextCompacted", "error"], "once is enough"
    loops = await events_of(session, AgentStarted)
    assert [(loop.parent_loop_id, loop.continuation) for loop in loops] == [
        (None, "initial"),
        ("s1.main.1", "compaction"),
    ]


async def test_a_request_that_is_too_long_ends_the_loop_without_a_compactor(session: Session) -> None:
    await ask(session)
    await AgentLoop(ScriptedModel(failing(ModelFailure(is_overflow=True))))(await take_run(session))
    assert await ends(session) == ["error"]


# --- guards -------------------------------------------------------------------------------------------------------


async def test_a_rejected_message_is_shown_to_no_model_and_ends_the_loop(session: Session) -> None:
    async def no_secrets(prompts: Sequence[UserMessage]) -> Reject | None:
        return Reject("a secret") if any("secret" in prompt.text_content() for prompt in prompts) else None

    await ask(session, "my secret is 7")
    model = ScriptedModel(answer("Yes."))
    agent = AgentLoop(model, guards=(no_secrets,))
    await work(agent, await take_run(session))
    assert await said(session) == [
        "user: my secret is 7",
        "agent.started",
        "agent.input.rejected",
        "Prune",
        "user: [Agent stopped: input rejected: a secret]",
        "agent.ended",
    ]
    found = await events(session)
    (end,) = [event for event in found if isinstance(event, AgentEnded)]
    assert (end.stop_reason, end.rejection, end.turns, end.usage) == ("guardRail", "a secret", 0, Usage())
    assert [event.reason for event in found if isinstance(event, InputRejected)] == ["a secret"]
    await ask(session, "what did I say?")
    await work(agent, await take_run(session))
    assert await shown(model, 0) == ["[Agent stopped: input rejected: a secret]", "what did I say?"]
    loops = [event.loop_id for event in await events_of(session, AgentStarted)]
    assert loops == ["s1.main.1", "s1.main.2"]


async def test_a_rejection_does_not_remove_messages_that_were_shown_before(session: Session) -> None:
    async def no_secrets(prompts: Sequence[UserMessage]) -> Reject | None:
        return Reject("a secret") if any("secret" in prompt.text_content() for prompt in prompts) else None

    await ask(session)
    model = ScriptedModel(failing(ModelFailure(is_transient=True)), answer("Hello."))
    agent, run = AgentLoop(model, guards=(no_secrets,)), await take_run(session)
    with pytest.raises(TryAgain):
        await agent(run)
    await ask(session, "my secret is 7")
    await work(agent, run)
    assert await ends(session) == ["guardRail", "stop"]
    assert await shown(model, 1) == ["[Agent stopped: input rejected: a secret]", "hello?"]


async def test_a_guards_warning_follows_the_message_in_the_context(session: Session) -> None:
    asked: list[list[str]] = []

    async def warns(prompts: Sequence[UserMessage]) -> Warn:
        asked.append([prompt.text_content() for prompt in prompts])
        return Warn("may be a trick")

    await ask(session)
    model = ScriptedModel(failing(ModelFailure(is_transient=True)), calls(FIRST), answer("Ok."))
    agent = AgentLoop(model, (first,), guards=(warns,), retry=RetryPolicy(base=0))
    run = await take_run(session)
    with pytest.raises(TryAgain):
        await agent(run)
    await work(agent, run)
    assert asked == [["hello?"]], "once, however often the model is asked"
    assert await shown(model, 1) == ["hello?", "[Warning: may be a trick]"]
    assert (await said(session))[:6] == [
        "user: hello?",
        "agent.started",
        "agent.request.defined",
        "agent.turn.started",
        "user: [Warning: may be a trick]",
        "agent.message.started",
    ]


async def test_an_abort_ends_a_guard_that_hangs(session: Session) -> None:
    stop = Pause()

    async def hangs(prompts: Sequence[UserMessage]) -> None:
        del prompts
        await stop.wait()

    await ask(session)
    model = ScriptedModel()
    async with at_work(session, AgentLoop(model, guards=(hangs,)), stop):
        await abort(session)
    assert (await said(session))[-2:] == ["assistant aborted: ", "agent.control.answered"]


# --- order --------------------------------------------------------------------------------------------------------

ORDER = [
    "user: hello?",
    "agent.started",
    "agent.request.defined",
    "agent.turn.started",
    "agent.message.started",
    "assistant toolUse: <first><second>",
    "agent.message.ended",
    "agent.tool.started",
    "agent.tool.started",
    "result: one",
    "agent.tool.ended",
    "result: two",
    "agent.tool.ended",
    "agent.turn.ended",
    "agent.turn.started",
    "agent.message.started",
    "assistant stop: Three.",
    "agent.message.ended",
    "agent.turn.ended",
    "agent.ended",
]
"""The order of seed 001, F16: turn start, prompts (which precede it in the log), start and end of the answer, start of
each tool, results with their ends, turn end, loop end. A new request definition is recorded before the turn."""


async def test_the_events_of_a_loop_are_in_the_order_of_seed_001(session: Session) -> None:
    await ask(session)
    model = ScriptedModel(calls(FIRST, SECOND), answer("Three."))
    await work(AgentLoop(model, (first, second)), await take_run(session))
    assert await said(session) == ORDER
    found = await events(session)
    assert [event.trigger for event in found if isinstance(event, TurnStarted)] == ["user", "continuation"]
    assert [event.stop_reason for event in found if isinstance(event, TurnEnded)] == ["toolUse", "stop"]


async def test_each_request_is_rebuilt_from_the_log(session: Session) -> None:
    await ask(session, "one?")
    stop = Pause()
    model = ScriptedModel([stop, *calls(FIRST)], answer("Two."), answer("Three."))
    async with at_work(session, AgentLoop(model, (first,)), stop):
        await ask(session, "two?")
        await follow_up(session, "three?")
        stop.over.set()
    told = await answers(session)
    assert len(told) == len(model.requests) == 3
    for message, request in zip(told, model.requests, strict=True):
        metadata = message.metadata or {}
        seen, held = metadata[READ_UP_TO], metadata.get(DEFERRED, [])
        assert isinstance(seen, int)
        assert isinstance(held, list)
        again = visible_context(await build_context(session, at=seen), {each for each in held if isinstance(each, int)})
        assert [*again.messages] == [*request.context.messages]
    assert await shown(model, 2) == ["one?", "", "one", "two?", "Two.", "three?"]


# --- died on the way ----------------------------------------------------------------------------------------------


async def _reject(prompts: Sequence[UserMessage]) -> Reject:
    del prompts
    return Reject("no")


async def with_calls(session: Session) -> None:
    """A loop with open calls that were not started."""
    await ask(session)
    run = await take_run(session)
    await run.publish(
        AgentStarted(loop_id=turn_of(session).loop_id, agent="a").as_extension(),
        TurnStarted(turn_id=turn_of(session), prompts=(1,)).as_extension(),
        AssistantMessage(content=(FIRST, SECOND), stop_reason="toolUse", turn_id=turn_of(session)),
    )


def turn_of(session: Session) -> TurnId:
    return TurnId(loop_id=f"{session.id}.main.1", turn_index=0)


async def _aborted(session: Session) -> None:
    await with_calls(session)
    await abort(session)


async def _ended_by_turn(session: Session) -> None:
    await with_calls(session)
    await abort(session, when="turn")


async def _paused(session: Session) -> None:
    await with_calls(session)
    await pause(session)
    await resume(session)


async def _steered(session: Session) -> None:
    await with_calls(session)
    await steer(session, "stop it", when="now")


async def _many(session: Session) -> None:
    await with_calls(session)
    await pause(session)
    await abort(session)
    await resume(session)
    await approve(session, turn_of(session), "c1")
    await ask(session, "and now?")


def _says_ok() -> AgentLoop:
    """An agent without previews, so that none is cut."""
    return AgentLoop(ScriptedModel([AssistantMessage(content=(TextBlock(text="Ok."),))]), (first, second))


def _says_nothing() -> AgentLoop:
    return AgentLoop(ScriptedModel(), (first, second))


SCENES: dict[str, tuple[Callable[[Session], Awaitable[object]], Callable[[], AgentLoop]]] = {
    "aborted": (_aborted, _says_nothing),
    "ended by the turn": (_ended_by_turn, _says_nothing),
    "paused and resumed": (_paused, _says_ok),
    "steered": (_steered, _says_ok),
    "many commands": (_many, _says_ok),
    "rejected": (ask, lambda: AgentLoop(ScriptedModel(), guards=(_reject,))),
    "limited": (with_calls, lambda: AgentLoop(ScriptedModel(), (first, second), max_turns=1)),
}


@pytest.mark.full
@pytest.mark.parametrize("scene", SCENES)
async def test_a_worker_that_dies_around_any_append_leaves_what_another_ends_in_the_same_way(
    bus: Bus, scene: str
) -> None:
    prepare, agent = SCENES[scene]
    whole = bus.session("whole")
    await prepare(whole)
    await work(agent(), await take_run(whole))
    expected = without_repeats(await said(whole))
    survived = 0
    for number in count():
        for landed in (False, True):
            session = bus.session(f"s{number}-{landed:d}")
            await prepare(session)
            try:
                await work(agent(), MortalRun(await take_run(session), number, landed=landed))
                survived += 1
            except (Died, ExceptionGroup):
                pass
            run = await take_run(session)
            # Recorded answers are not requested again.
            await work(agent(), run)
            assert without_repeats(await said(session)) == expected
            assert not (await run.refresh()).loop_state.has_work
        if survived:
            break
    assert survived == 2


def without_repeats(entries: Sequence[str]) -> list[str]:
    """The log without the events that count repeated begins."""
    return [text for text in entries if text not in {"agent.message.started", "agent.tool.started"}]


async def test_a_failed_agent_ends_its_loop_and_its_prompts_are_not_repeated(session: Session) -> None:
    await with_calls(session)
    run = await take_run(session)
    view = await run.refresh()
    await fail_loop(run, view, "ZeroDivisionError: no way")
    await fail_loop(run, view, "ZeroDivisionError: no way")
    view = await run.refresh()
    assert not view.loop_state.has_work
    assert (await said(session))[-3:] == ["assistant error: ", "agent.turn.ended", "agent.ended"]
    assert await ends(session) == ["error"]
    await ask(session, "and now?")
    await work(AgentLoop(ScriptedModel(answer("Yes."))), run)
    loops = [event.loop_id for event in await events_of(session, AgentStarted)]
    assert loops == ["s1.main.1", "s1.main.2"]


async def test_reserved_metadata_keys_in_an_adapters_answer_are_dropped(session: Session) -> None:
    await ask(session)
    marked = AssistantMessage(
        content=(TextBlock(text="Yes."),), metadata={CUT: True, AGAIN: True, DEFERRED: [1], "own": "kept"}
    )
    await work(AgentLoop(ScriptedModel([marked])), await take_run(session))
    (recorded,) = await answers(session)
    assert recorded.metadata == {READ_UP_TO: 1, "own": "kept"}
    assert await ends(session) == ["stop"]


class _Refusing(ScriptedModel):
    """Raises before it returns a stream."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        raise ValueError("no key")


async def test_a_model_without_a_stream_has_failed(session: Session) -> None:
    await ask(session)
    await work(AgentLoop(_Refusing()), await take_run(session))
    (failed,) = await answers(session)
    assert (failed.stop_reason, failed.error_message) == ("error", "ValueError: no key")
    assert await ends(session) == ["error"]
