"""Other ends and delays of a loop: limits, guards, transient failures; and the order of its events."""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from decimal import Decimal
from functools import partial
from itertools import count

import pytest

from lanebus import Bus, Receipt, Session, TextBlock, Usage, UserMessage
from lanebus.agent import (
    AgentLoop,
    CostUnknown,
    ModelEvent,
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
from lanebus.bus import RetryPolicy
from lanebus.handlers.agent import LoopLimits, ModelRequest, Run, abort, approve
from lanebus.handlers.agent.models.model import with_failure
from lanebus.handlers.agent.turn.loop_state import AGAIN, CUT
from lanebus.handlers.agent.turn.record import fail_loop
from lanebus.handlers.context import DEFERRED, READ_UP_TO
from lanebus.messages import AgentEnded, AgentStarted, AssistantMessage, InputRejected, Publishable, Rates, TurnStarted
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls, take_run
from tests.support.agent.logs import answers, events, events_of, listed, messages, said
from tests.support.agent.runs import FIRST, SECOND, ask, at_work, called, first, second, work


def failing(failure: ModelFailure, text: str = "overloaded") -> list[Step]:
    """A failed answer as an adapter returns it."""
    message = AssistantMessage(
        content=(TextBlock(text="Well"),), stop_reason="error", error_message=text, usage=Usage(input=1)
    )
    return [with_failure(message, failure)]


async def shown(model: ScriptedModel, request: int) -> list[str]:
    return [message.text_content() for message in model.requests[request].context.messages]


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


async def test_an_abort_ends_a_loop_during_its_bounded_backoff_and_a_permanent_failure_is_not_retried(
    session: Session,
) -> None:
    await ask(session)
    model = ScriptedModel(failing(ModelFailure(is_transient=True, retry_after=1e300)))
    agent, run = AgentLoop(model), await take_run(session, bounds=RunBounds(retry_after_seconds=90.0))
    with pytest.raises(TryAgain) as caught:
        await agent(run)
    assert caught.value.delay == 90.0, "however long the provider wants"
    await abort(session)
    await work(agent, run)
    assert await ends(session) == ["aborted"]
    assert len(model.requests) == 1
    for failure in (ModelFailure(status=401), ModelFailure(is_overflow=True)):
        await ask(session)
        await AgentLoop(ScriptedModel(failing(failure)))(await take_run(session))
        assert (await ends(session))[-1] == "error"


# --- guards -------------------------------------------------------------------------------------------------------


async def test_a_rejected_message_is_shown_to_no_model_and_ends_the_loop(session: Session) -> None:
    async def no_secrets(prompts: Sequence[UserMessage]) -> Reject | None:
        return Reject("a secret") if any("secret" in prompt.text_content() for prompt in prompts) else None

    await ask(session, "my secret is 7")
    model = ScriptedModel(answer("Yes."))
    agent = AgentLoop(model, guards=(no_secrets,))
    await work(agent, await take_run(session))
    assert await said(session) == listed(
        "user: my secret is 7 | agent.started | agent.input.rejected | Prune | "
        "user: [Agent stopped: input rejected: a secret] | agent.ended"
    )
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
    assert (await said(session))[:6] == listed(
        "user: hello? | agent.started | agent.request.defined | agent.turn.started | "
        "user: [Warning: may be a trick] | agent.message.started"
    )


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


# --- died on the way ----------------------------------------------------------------------------------------------


class Died(Exception):
    pass


class MortalRun(Run):
    """A run whose worker dies at its n-th append, right before it or right after it."""

    def __init__(self, run: Run, step: int, *, landed: bool) -> None:
        super().__init__(run.session, run.lease)
        self._steps, self._death, self._landed = count(), step, landed

    async def publish(self, *messages: Publishable, key: str | None = None) -> Receipt:
        return await self._mortal(partial(super().publish, *messages, key=key))

    async def publish_at(self, build: Callable[[int], Sequence[Publishable]], *, key: str) -> Receipt:
        return await self._mortal(partial(super().publish_at, build, key=key))

    async def _mortal(self, append: Callable[[], Awaitable[Receipt]]) -> Receipt:
        is_last = next(self._steps) >= self._death
        if is_last and not self._landed:
            raise Died
        receipt = await append()
        if is_last:
            raise Died
        return receipt


async def ends(session: Session) -> list[str]:
    return [event.stop_reason for event in await events_of(session, AgentEnded)]


def without_repeats(entries: Sequence[str]) -> list[str]:
    """The log without the events that count repeated begins, and without an answer that was lost and cut: its shown
    part is recorded, and the next turn answers the same prompts."""
    kept = [text for text in entries if text not in {"agent.message.started", "agent.tool.started"}]
    for at, text in enumerate(kept):
        is_cut = kept[at + 1 : at + 4] == ["agent.message.ended", "agent.turn.ended", "agent.turn.started"]
        if text.startswith("assistant aborted") and is_cut:
            return kept[:at] + kept[at + 4 :]
    return kept


async def test_a_loop_killed_around_any_of_its_appends_is_continued_to_the_same_log(bus: Bus) -> None:
    script = (calls(FIRST, SECOND), answer("Three."))

    def agent(model: ScriptedModel) -> AgentLoop:
        return AgentLoop(model, (first, second), system="Be brief.")

    whole = bus.session("whole")
    await ask(whole)
    await agent(ScriptedModel(*script))(await take_run(whole))
    expected = without_repeats(await said(whole))
    appends = 0
    for number in count():
        survived = 0
        for landed in (False, True):
            session = bus.session(f"s{number}-{landed:d}")
            await ask(session)
            try:
                await agent(ScriptedModel(*script))(MortalRun(await take_run(session), number, landed=landed))
                survived += 1
            except (Died, ExceptionGroup):
                pass
            # Recorded answers are not requested again: the next model has only the remaining answers.
            answered = sum(isinstance(message, AssistantMessage) for message in await messages(session))
            rest = ScriptedModel(*script[answered:])
            await agent(rest)(await take_run(session))
            assert without_repeats(await said(session)) == expected
            assert len(rest.requests) == len(script) - answered
        if survived == 2:
            break
        appends += 1
    assert appends == 8  # system, start, answer, start of the tools, two results, start, answer


async def _reject(prompts: Sequence[UserMessage]) -> Reject:
    del prompts
    return Reject("no")


async def with_calls(session: Session) -> None:
    """A loop with open calls that were not started."""
    await ask(session)
    await (await take_run(session)).publish(*called(FIRST, SECOND, session=session.id))


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
    await approve(session, "main.1#0", "c1")
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
async def test_a_worker_that_dies_around_any_append_leaves_what_another_can_end(bus: Bus, scene: str) -> None:
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


async def test_reserved_metadata_of_an_adapter_is_dropped_and_one_without_a_stream_fails(session: Session) -> None:
    class Refusing(ScriptedModel):
        def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            raise ValueError("no key")

    await ask(session)
    marked = AssistantMessage(
        content=(TextBlock(text="Yes."),), metadata={CUT: True, AGAIN: True, DEFERRED: [1], "own": "kept"}
    )
    await work(AgentLoop(ScriptedModel([marked])), await take_run(session))
    (recorded,) = await answers(session)
    assert recorded.metadata == {READ_UP_TO: 1, "own": "kept"}
    await ask(session)
    await work(AgentLoop(Refusing()), await take_run(session))
    failed = (await answers(session))[-1]
    assert (failed.stop_reason, failed.error_message) == ("error", "ValueError: no key")
    assert await ends(session) == ["stop", "error"]
