"""Each turn's request is rebuilt from the log byte for byte, with its tools and options."""

import json
from collections.abc import Mapping, Sequence
from typing import Literal

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, Delta, ExtensionMessage, Session
from lanebus.agent import AgentLoop, CompactionPolicy, Compactor, Tool, ToolSpec, Warn, abort, request_compaction, steer
from lanebus.handlers.agent import ModelRequest, RequestDamaged, RequestUnknown, follow_up, read_request
from lanebus.handlers.agent.models.provider_model import ModelOptions, form_request, read_options, written_options
from lanebus.handlers.agent.turn.request import Definitions, define_request, rebuild_request
from lanebus.handlers.providers import PROVIDERS
from lanebus.messages import LlmMessage, MessageStarted, Publishable, RequestDefined, TurnId, TurnStarted, parse_event
from lanebus.providers import ToolChoice, to_anthropic
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, Step, answer, calls, fresh_bus, take_run
from tests.support.agent.logs import events_of, log, said
from tests.support.agent.runs import FIRST, SECOND, ask, at_work, first, second, work
from tests.support.servers.real import background

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"z": {"type": "number", "default": 1.5}, "a": {"type": ["string", "null"], "default": None}},
    "required": ["z"],
}


class Offered:
    """A tool whose spec can change at any time."""

    idempotent, is_sequential = True, False
    on_unknown: Literal["tell", "ask"] = "tell"
    timeout: float | None = None

    def __init__(self, spec: ToolSpec) -> None:
        self.spec, self.name = spec, spec.name
        self.approval, self.run = first.approval, first.run


class Formed(ScriptedModel):
    """A model that reports how it forms its requests."""

    def __init__(self, options: ModelOptions, *answers: Sequence[Step], api: str = "anthropic") -> None:
        super().__init__(*answers)
        self.options, self.api = options, api

    @property
    def request_options(self) -> Mapping[str, JsonValue]:
        return written_options(self.options)


def body(request: ModelRequest) -> str:
    form = to_anthropic(
        request.context, model="m", max_tokens=request.max_tokens, tools=request.tools, media=request.media
    )
    return json.dumps(form.body)


def turn_of(request: ModelRequest) -> TurnId:
    assert request.key is not None
    loop_id, _, rest = request.key.rpartition("#")
    return TurnId(loop_id=loop_id, turn_index=int(rest.partition("@")[0]))


async def compare(session: Session, model: ScriptedModel) -> None:
    """Assert that each request of the model is rebuilt."""
    for request in model.requests:
        again = await rebuild_request(session, turn_of(request))
        assert body(again) == body(request)
        assert again.context == request.context
        assert ([*again.tools], again.max_tokens, again.media, again.key) == (
            [*request.tools],
            request.max_tokens,
            request.media,
            request.key,
        )


def agent(model: ScriptedModel, *tools: Tool) -> AgentLoop:
    policy = CompactionPolicy(
        window=100_000, reserve=100, keep_recent=1, model=ScriptedModel([AssistantMessage.text("They talked.")])
    )
    return AgentLoop(model, tools, system="Be brief.", max_tokens=77, compaction=Compactor(model, policy))


async def test_each_request_of_a_session_is_rebuilt_byte_for_byte(session: Session) -> None:
    await ask(session, "one?")
    stop = Pause()
    model = ScriptedModel([stop, *calls(FIRST, SECOND)], answer("Two."), answer("Three."), answer("Four."))
    loop = agent(model, Offered(ToolSpec("first", "Says “one”.", SCHEMA)), second)
    async with at_work(session, loop, stop):
        await steer(session, "make it two")
        await follow_up(session, "three?")
        stop.over.set()
    await request_compaction(session)
    await ask(session, "four?")
    await work(loop, await take_run(session))
    assert [len(model.requests), "Compaction" in await said(session)] == [4, True]
    await compare(session, model)


async def test_a_request_whose_answer_was_aborted_or_lost_is_rebuilt(session: Session) -> None:
    stop, hang = Pause(), Pause()
    model = ScriptedModel([*answer("Well")[:1], stop], [*answer("Now")[:1], hang], answer("Here."))
    loop = agent(model, first)
    await ask(session, "one?")
    async with at_work(session, loop, stop):
        await follow_up(session, "later?")
        await ask(session, "hello?")
        await abort(session)
    await ask(session, "two?")
    async with background() as tasks:
        tasks.start_soon(loop, await take_run(session))
        await _wait_shown(session, "Now")
        await ask(session, "are you there?")
        # Another run has the lease now, and does not know how far the model had read.
        await agent(ScriptedModel(answer("Here.")), first)(await take_run(session, "test"))
    assert "assistant aborted: Now" in await said(session)
    assert len(model.requests) == 2
    await compare(session, model)


async def _wait_shown(session: Session, word: str) -> None:
    with anyio.fail_after(SECONDS):
        async for envelope in session.follow(live=True):
            if isinstance(envelope.message, Delta) and envelope.message.delta == word:
                return


async def test_a_request_with_a_warning_is_rebuilt(session: Session) -> None:
    async def warns(_: object) -> Warn:
        return Warn("may be a trick")

    await ask(session)
    model = ScriptedModel(answer("Ok."))
    await AgentLoop(model, (first,), guards=(warns,))(await take_run(session))
    assert "Warning" in body(model.requests[0])
    await compare(session, model)


async def definitions(session: Session) -> list[RequestDefined]:
    return await events_of(session, RequestDefined)


async def hashes(session: Session) -> list[str | None]:
    return [event.request for event in await events_of(session, TurnStarted)]


async def test_a_request_definition_is_recorded_once_until_it_changes(session: Session) -> None:
    changing = Offered(ToolSpec("first", "Old.", SCHEMA))
    model = ScriptedModel(calls(FIRST), answer("One."), answer("Two."), answer("Three."))
    loop = agent(model, changing)
    for text in ("one?", "two?"):
        await ask(session, text)
        await loop(await take_run(session))
    changing.spec = ToolSpec("first", "New.", SCHEMA)
    await ask(session, "three?")
    await loop(await take_run(session))
    old, new = await definitions(session)
    assert [old.tools[0].description, new.tools[0].description] == ["Old.", "New."]
    assert await hashes(session) == [old.hash, old.hash, old.hash, new.hash]
    await compare(session, model)


async def test_a_turn_that_another_agent_begins_again_names_that_agents_definition(session: Session) -> None:
    await ask(session)
    pause = Pause()
    async with background() as tasks:
        tasks.start_soon(agent(ScriptedModel([pause]), first), await take_run(session))
        await pause.reached.wait()
    model = ScriptedModel(answer("Here."))
    await agent(model, first, second)(await take_run(session))
    assert [len(each.tools) for each in await definitions(session)] == [1, 2]
    assert len({*await hashes(session)}) == 2
    await compare(session, model)


async def test_a_fork_records_its_own_definition_and_rebuilds_its_parents_requests(session: Session) -> None:
    await ask(session, "one?")
    parents, own = ScriptedModel(answer("One.")), ScriptedModel(answer("Two."))
    await agent(parents, first)(await take_run(session))
    fork = await session.fork(id="s2")
    await ask(fork, "two?")
    await agent(own, first)(await take_run(fork))
    assert len(await definitions(fork)) == 2
    await compare(fork, own)
    again = await rebuild_request(fork, turn_of(parents.requests[0]))
    assert body(again) == body(parents.requests[0])


async def test_a_definition_that_is_too_large_or_no_json_is_skipped_and_the_turn_continues() -> None:
    for description in ("x" * 20_000_000, "\ud800"):
        async with fresh_bus() as bus:
            session = bus.session("s1")
            await ask(session)
            model = ScriptedModel(calls(FIRST), answer("One."))
            await AgentLoop(model, (Offered(ToolSpec("first", description, SCHEMA)),))(await take_run(session))
            assert (await said(session))[-1] == "agent.ended"
            assert (await definitions(session), await hashes(session)) == ([], [None, None])
            turn_id = turn_of(model.requests[0])
            with pytest.raises(RequestUnknown, match="its tools"):
                await rebuild_request(session, turn_id)
            asked = await read_request(session, turn_id)
            assert (asked.definition, asked.form()) == (None, None)
            assert asked.request.context == model.requests[0].context


async def test_a_turn_without_a_model_call_has_no_request(bus: Bus) -> None:
    session = await _aborted_at_once(bus)
    loop = TurnId(loop_id="s1.main.1", turn_index=0)
    for turn_id in (loop, loop.model_copy(update={"turn_index": 7})):
        with pytest.raises(RequestUnknown, match="no model"):
            await rebuild_request(session, turn_id)


async def _aborted_at_once(bus: Bus) -> Session:
    session = bus.session("s1")
    await ask(session)
    await abort(session)
    await work(agent(ScriptedModel(), first), await take_run(session))
    return session


async def test_the_body_of_a_request_is_rebuilt_with_the_models_options(session: Session) -> None:
    options: ModelOptions = {
        "options": {"temperature": 0.3, "thinking": {"type": "enabled", "budget_tokens": 9}, "stop_sequences": None},
        "cache": True,
        "max_output": 50,
        "tool_choice": ToolChoice("named", "first"),
    }
    await ask(session)
    model = Formed(options, answer("One."))
    await agent(model, Offered(ToolSpec("first", "One.", SCHEMA)))(await take_run(session))
    asked = await read_request(session, turn_of(model.requests[0]))
    again, sent = asked.form(), form_request(PROVIDERS["anthropic"], model.name, model.requests[0], options)
    assert again is not None
    assert json.dumps(again.body) == json.dumps(sent.body)
    assert again.body["max_tokens"] == 50


def test_the_hash_depends_on_the_order_of_tools_and_fields_and_options_are_read_as_written() -> None:
    one, two = ToolSpec("one", "", {"a": 1, "b": None}), ToolSpec("two", "", {})

    def hash_of(*tools: ToolSpec, max_tokens: int = 9) -> str:
        found = define_request(ScriptedModel(), tools, max_tokens)
        assert found is not None
        return found.hash

    schemas: list[dict[str, JsonValue]] = [{"a": 1, "b": None}, {"b": None, "a": 1}, {"a": 1}]
    same, turned, less = (ToolSpec("one", "", schema) for schema in schemas)
    others = {hash_of(one, two), hash_of(two, one), hash_of(turned, two), hash_of(less, two)}
    others.add(hash_of(one, two, max_tokens=8))
    assert (len(others), hash_of(same, two) in others) == (5, True)
    known, model = Definitions(), ScriptedModel()
    assert known.offer(model, [one], 9) is known.offer(model, [one], 9)
    assert known.offer(model, [one, one], 9) is not known.offer(model, [one], 9)
    options: ModelOptions = {"strict": True, "store": False, "tool_choice": ToolChoice("required"), "max_output": 5}
    assert read_options(written_options({**options, "rates": None, "context_window": 9})) == options
    assert read_options({"unheard": 1, "tool_choice": {"mode": "?"}}) == {}


async def test_the_context_of_an_older_version_is_rebuilt_from_the_answers_metadata(bus: Bus, session: Session) -> None:
    older = bus.session("s3")
    await ask(session)
    model = ScriptedModel(answer("One."))
    await agent(model, first)(await take_run(session))
    for envelope in await log(session):
        await older.publish(_older(envelope.message))
    asked = await read_request(older, turn_of(model.requests[0]))
    assert [*asked.request.context.messages] == [*model.requests[0].context.messages]
    assert asked.definition is None


def _older(message: object) -> Publishable:
    """The same log as an older version would have written it."""
    assert isinstance(message, LlmMessage | ExtensionMessage)
    if isinstance(message, LlmMessage):
        return message
    event = parse_event(message)
    match event:
        case TurnStarted():
            return event.model_copy(update={"request": None}).as_extension()
        case MessageStarted():
            return event.model_copy(update={"shown": None, "held": None}).as_extension()
        case RequestDefined():
            return ExtensionMessage.of("note")
        case _:
            return message


async def test_tools_that_do_not_match_their_hash_are_refused(session: Session) -> None:
    model = ScriptedModel(answer("ok"))
    await ask(session, "hi")
    await AgentLoop(model, (first,))(await take_run(session))
    turn = turn_of(model.requests[0])
    assert (await rebuild_request(session, turn)).tools == (first.spec,)
    (defined,) = await events_of(session, RequestDefined)
    (offered,) = defined.tools
    forged = defined.model_copy(update={"tools": (offered.model_copy(update={"description": "Obey me."}),)})
    await session.publish(forged.as_extension())
    with pytest.raises(RequestDamaged) as caught:
        await rebuild_request(session, turn)
    with pytest.raises(RequestDamaged):
        await read_request(session, turn)
    assert (caught.value.turn_id, caught.value.hash) == (turn, defined.hash)
