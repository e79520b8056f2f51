"""The usage of a cut call is requested from its provider and recorded once."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from lanebus import AssistantMessage, Bus, Envelope, Session, TextBlock, Usage, UserMessage
from lanebus.agent import AgentLoop, ModelRequest, Piece, RunBounds, abort
from lanebus.handlers.agent.loop import UsageReconciler, reconcilable, reconcile
from lanebus.handlers.agent.models.model import PartialResponse
from lanebus.handlers.agent.models.provider_model import OpenAIResponsesModel
from lanebus.messages import TurnId, UsageSettled
from lanebus.projections import USAGE, project
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, Step, answer, take_run
from tests.support.agent.logs import events, events_of, log, said
from tests.support.agent.runs import at_work
from tests.support.log.entries import context_of
from tests.support.models.model_api import Json, ModelApi, Status, serve_api
from tests.support.models.model_dialects import DIALECTS, Said
from tests.support.servers.real import background

BOUNDS = RunBounds()
TURN = TurnId(loop_id="s1.main.1", turn_index=0)
DIALECT = DIALECTS["openai-responses"]
WHOLE = DIALECT.stream(Said())[-1]["response"]
PAID = Usage(input=100, output=7, cache_read=40, total_tokens=147)
CUT = AssistantMessage(
    stop_reason="aborted",
    provider="openai",
    model="gpt-test",
    response_id="resp_1",
    turn_id=TURN,
    usage=Usage(input=90, output=1, total_tokens=91, estimated=True),
)


async def asked(
    answer: Status, message: AssistantMessage = CUT, *, store: bool | None = None
) -> tuple[Usage | None, ModelApi]:
    """Return the usage that the model reports for a message, and the server that it asked."""
    async with serve_api(DIALECT.frame, [answer]) as (api, url), DIALECT.make(url, store=store) as model:
        assert isinstance(model, OpenAIResponsesModel)
        usage = await model.settle(message)
    return usage and usage.model_copy(update={"raw": None}), api


def told(**changes: object) -> Json:
    assert isinstance(WHOLE, dict)
    return {**WHOLE, **changes}  # type: ignore[dict-item]  # JSON, as the tests say it


async def test_openai_is_asked_for_the_usage_of_finished_and_stored_responses_by_id() -> None:
    for status in ("completed", "incomplete", "cancelled", "failed"):
        usage, api = await asked(Status(200, told(status=status)))
        assert (usage, [request.target for request in api.asked]) == (PAID, ["GET /v1/responses/resp_1"])
    for message, store in ((CUT, False), (CUT.model_copy(update={"response_id": None}), None)):
        usage, api = await asked(Status(200, told()), message, store=store)
        assert (usage, api.asked) == (None, [])


@pytest.mark.parametrize(
    "answer",
    [
        Status(200, told(status="in_progress")),
        Status(200, told(status="queued")),
        Status(200, told(usage=None)),
        Status(200, told(usage="x")),
        Status(404, {"error": {"message": "no such response"}}),
        Status(500, {}),
    ],
)
async def test_an_unfinished_or_missing_response_has_no_usage(answer: Status) -> None:
    assert (await asked(answer))[0] is None


async def test_a_cut_answer_has_its_response_id() -> None:
    async with serve_api(DIALECT.frame, [*DIALECT.stream(Said())]) as (_, url), DIALECT.make(url) as model:
        draft = PartialResponse(model)
        stream = model.stream(ModelRequest(context_of(UserMessage.text("hi"))))
        draft.add(await anext(stream))
        await stream.aclose()
    assert draft.cut("aborted", "stopped").response_id == "resp_1"


class Teller(ScriptedModel):
    """A model whose provider can report usage later."""

    provider, name = "openai", "gpt-test"

    def __init__(self, usage: Usage | None = PAID, *answers: list[Step]) -> None:
        super().__init__(*answers)
        self.usage = usage

    async def settle(self, message: AssistantMessage) -> Usage | None:
        del message
        return self.usage


async def cut_session(bus: Bus, message: AssistantMessage = CUT) -> tuple[Session, Envelope]:
    session = bus.session("s1")
    await session.publish(UserMessage.text("hi"), message)
    return session, (await log(session))[1]


async def test_usage_is_recorded_once_over_repeats_and_leases(bus: Bus) -> None:
    session, envelope = await cut_session(bus)
    for _ in range(3):
        run = await take_run(session)
        assert await reconcile(run, Teller(PAID.model_copy(update={"raw": {"n": 1}})), envelope)
    assert await events(session) == [UsageSettled(turn_id=TURN, message=2, usage=PAID)]
    total = (await project(session, USAGE)).state.total
    assert (total.usage, total.calls, total.pending) == (PAID, 1, None)


async def test_unknown_usage_is_not_recorded(bus: Bus) -> None:
    session, envelope = await cut_session(bus)
    run = await take_run(session)
    assert not await reconcile(run, Teller(None), envelope)
    assert not await reconcile(run, ScriptedModel(), envelope)
    assert await events(session) == []


@pytest.mark.parametrize(
    "change",
    [{"usage": PAID}, {"usage": None}, {"turn_id": None}, {"model": "another"}, {"provider": "another"}],
    ids=str,
)
def test_only_an_estimate_of_this_model_is_reconciled(change: dict[str, object]) -> None:
    entry = Envelope("s1", 2, CUT.lane, CUT, 0.0, "test")
    assert reconcilable(Teller(), entry)
    assert not reconcilable(Teller(), entry._replace(message=CUT.model_copy(update=change)))


# --- when it is asked ---------------------------------------------------------------------------------------------


class Asked(Teller):
    """Notes each request for usage, and computes the answer at that moment."""

    def __init__(self, *answers: list[Step], told: Callable[[], Awaitable[Usage | None]]) -> None:
        super().__init__(None, *answers)
        self.asked: list[str] = []
        self._told = told

    async def settle(self, message: AssistantMessage) -> Usage | None:
        self.asked.append(message.text_content())
        return await self._told()


async def paid() -> Usage | None:
    return PAID


async def unknown() -> Usage | None:
    return None


def cut(text: str) -> list[Step]:
    """An answer of unknown usage."""
    return [CUT.model_copy(update={"content": (TextBlock(text=text),), "stop_reason": "length"})]


async def talk(session: Session, loop: AgentLoop, text: str = "hi", *, bounds: RunBounds = BOUNDS) -> None:
    await session.publish(UserMessage.text(text))
    await loop(await take_run(session, bounds=bounds))


async def settled(session: Session) -> list[UsageSettled]:
    return await events_of(session, UsageSettled)


async def test_a_cut_answer_is_reconciled_once_at_the_end_of_its_run(session: Session) -> None:
    model = Asked(cut("one"), answer("Two."), answer("Three."), told=paid)
    for loop in (agent := AgentLoop(model), agent, AgentLoop(model)):  # the last one stands for another process
        await talk(session, loop)
    assert model.asked == ["one"]
    (event,) = await settled(session)
    assert event.usage == PAID
    total = (await project(session, USAGE)).state.total
    assert total.pending is None


async def test_unknown_usage_is_requested_in_later_runs_up_to_a_limit(session: Session) -> None:
    tries = BOUNDS.usage_attempts
    model = Asked(cut("one"), *(answer(f"{n}.") for n in range(tries + 2)), told=unknown)
    loop = AgentLoop(model)
    for _ in range(tries + 2):
        await talk(session, loop)
    assert model.asked == ["one"] * tries
    other = Asked(answer("Yes."), told=paid)
    await talk(session, AgentLoop(other))
    assert (other.asked, len(await settled(session))) == (["one"], 1)


async def test_an_aborted_answer_is_reconciled_after_the_abort_is_answered(session: Session) -> None:
    stop = Pause()
    begun = Usage(input=90, total_tokens=90)
    said_at_asking: list[list[str]] = []

    async def looks() -> Usage | None:
        said_at_asking.append(await said(session))
        return PAID

    model = Asked([Piece("text", "On"), begun, stop], told=looks)
    await session.publish(UserMessage.text("hi"))
    async with at_work(session, AgentLoop(model, drain_seconds=0), stop):
        await abort(session)
    assert model.asked == ["On"]
    assert {"agent.control.answered", "agent.ended"} <= {*said_at_asking[0]}
    assert [event.usage for event in await settled(session)] == [PAID]


async def test_a_new_message_does_not_wait_for_the_reconciliation(session: Session) -> None:
    is_asked, is_over = anyio.Event(), anyio.Event()

    async def hangs() -> Usage | None:
        is_asked.set()
        await anyio.sleep_forever()
        return None

    async def work() -> None:
        await talk(session, AgentLoop(Asked(cut("one"), told=hangs)), bounds=RunBounds(usage_seconds=SECONDS * 2))
        is_over.set()

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await is_asked.wait()
            await session.publish(UserMessage.text("are you there?"))
            await is_over.wait()
    assert await settled(session) == []


async def test_a_reconciliation_that_hangs_or_fails_does_not_fail_the_run(bus: Bus) -> None:
    async def hangs() -> Usage | None:
        await anyio.sleep_forever()
        return None

    async def fails() -> Usage | None:
        raise RuntimeError("out of paper")

    for name, told in (("s1", hangs), ("s2", fails)):
        session = bus.session(name)
        await talk(session, AgentLoop(Asked(cut("one"), told=told)), bounds=RunBounds(usage_seconds=0.05))
        assert (await said(session))[-1] == "agent.ended"
        assert await settled(session) == []


async def test_usage_is_requested_again_after_a_crash_before_the_event(session: Session) -> None:
    is_asked = anyio.Event()

    async def dies() -> Usage | None:
        is_asked.set()
        await anyio.sleep_forever()
        return None

    async with background() as tasks:
        tasks.start_soon(talk, session, AgentLoop(Asked(cut("one"), told=dies)))
        await is_asked.wait()
    model = Asked(answer("Yes."), told=paid)
    await talk(session, AgentLoop(model))
    assert (model.asked, len(await settled(session))) == (["one"], 1)


async def test_a_fork_does_not_reconcile_its_parents_answers(session: Session) -> None:
    await talk(session, AgentLoop(Asked(cut("one"), told=unknown)))
    fork = await session.fork(id="s2")
    model = Asked(cut("two"), told=paid)
    await talk(fork, AgentLoop(model))
    assert model.asked == ["two"]
    assert len(await settled(fork)) == 1
    assert await settled(session) == []
    inherited = next(each for each in await log(fork) if isinstance(each.message, AssistantMessage))
    assert not await reconcile(await take_run(fork), model, inherited)


async def test_a_lost_lease_ends_the_reconciliation(session: Session) -> None:
    async def deposed() -> Usage | None:
        await take_run(session)
        return PAID

    await session.publish(UserMessage.text("hi"))
    run = await take_run(session)
    await AgentLoop(Asked(cut("one"), told=deposed))(run)
    assert run.is_lease_lost
    assert await settled(session) == []


async def test_a_model_without_reconciliation_causes_no_read_of_the_log(bus: Bus, session: Session) -> None:
    await cut_session(bus)
    run = await take_run(session)
    await UsageReconciler(ScriptedModel()).reconcile_open(run)
    assert run.position == 0
