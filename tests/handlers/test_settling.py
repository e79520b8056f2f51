"""What a cut call really took is asked for, and told in the log, once."""

import pytest

from bus import Bus, Envelope, Session, Usage, UserMessage
from bus.messages.events import UsageSettled
from bus.messages.message import AssistantMessage
from bus.messages.turn import TurnId
from handlers.agent.draft import Draft
from handlers.agent.model import ModelRequest
from handlers.agent.openai_model import OpenAIResponsesModel
from handlers.agent.settling import is_settleable, settle
from handlers.projections.projection import project
from handlers.projections.usage import USAGE
from tests.handlers.agents import ScriptedModel, Step, events, fresh_bus, log, take_run
from tests.handlers.entries import context_of
from tests.handlers.model_api import Json, ModelApi, Status, serve_api
from tests.handlers.model_dialects import DIALECTS, Said

__all__ = ()

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
    """What the model says a message took, and the server it asked."""
    async with serve_api(DIALECT.frame, [answer]) as (api, url), DIALECT.make(url, store=store) as model:
        assert isinstance(model, OpenAIResponsesModel)
        usage = await model.settle(message)
    return usage and usage.model_copy(update={"raw": None}), api


def told(**changes: object) -> Json:
    assert isinstance(WHOLE, dict)
    return {**WHOLE, **changes}  # type: ignore[dict-item]  # JSON, as the tests say it


async def test_openai_is_asked_for_the_answer_by_its_id() -> None:
    usage, api = await asked(Status(200, told()))
    assert usage == PAID
    assert [request.target for request in api.asked] == ["GET /v1/responses/resp_1"]


@pytest.mark.parametrize("status", ["completed", "incomplete", "cancelled", "failed"])
async def test_an_answer_that_is_over_tells_what_it_took(status: str) -> None:
    assert (await asked(Status(200, told(status=status))))[0] == PAID


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
async def test_what_cannot_be_learnt_yet_is_not_known(answer: Status) -> None:
    assert (await asked(answer))[0] is None


async def test_nobody_is_asked_where_nothing_was_kept() -> None:
    for message, store in ((CUT, False), (CUT.model_copy(update={"response_id": None}), None)):
        usage, api = await asked(Status(200, told()), message, store=store)
        assert (usage, api.asked) == (None, [])


async def test_a_draft_that_was_cut_knows_the_id_to_ask_by() -> None:
    async with serve_api(DIALECT.frame, [*DIALECT.stream(Said())]) as (_, url), DIALECT.make(url) as model:
        draft = Draft(model)
        stream = model.stream(ModelRequest(context_of(UserMessage.text("hi"))))
        draft.add(await anext(stream))
        await stream.aclose()
    assert draft.cut("aborted", "stopped").response_id == "resp_1"


class Teller(ScriptedModel):
    """A model whose provider can be asked afterwards."""

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


async def test_it_is_told_once_however_often_it_is_done_and_under_whichever_lease() -> None:
    async with fresh_bus() as bus:
        session, envelope = await cut_session(bus)
        for _ in range(3):
            run = await take_run(session)
            assert await settle(run, Teller(PAID.model_copy(update={"raw": {"n": 1}})), envelope)
        assert await events(session) == [UsageSettled(turn_id=TURN, message=2, usage=PAID)]
        total = (await project(session, USAGE)).state.total
        assert (total.usage, total.calls, total.pending) == (PAID, 1, None)


async def test_nothing_is_told_of_what_is_not_known() -> None:
    async with fresh_bus() as bus:
        session, envelope = await cut_session(bus)
        run = await take_run(session)
        assert not await settle(run, Teller(None), envelope)
        assert not await settle(run, ScriptedModel(), envelope)
        assert await events(session) == []


@pytest.mark.parametrize(
    "change",
    [{"usage": PAID}, {"usage": None}, {"turn_id": None}, {"model": "another"}, {"provider": "another"}],
    ids=str,
)
def test_only_an_estimate_of_this_model_can_be_settled(change: dict[str, object]) -> None:
    entry = Envelope("s1", 2, CUT.lane, CUT, 0.0, "test")
    assert is_settleable(Teller(), entry)
    assert not is_settleable(Teller(), entry._replace(message=CUT.model_copy(update=change)))
