"""Sample cases of events, turns, loops and usage."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus import ExtensionMessage, LlmMessage, UserMessage
from lanebus.agent import AgentLoop
from lanebus.bus.messages import AssistantMessage, MessageEnded, Rates, TurnEnded, Usage
from lanebus.codecs import GRAPH_V1, EventReader, EventWriter
from lanebus.context import build_context, context_tokens, usage_tokens
from lanebus.handlers.formats.two_lane_agent.codec import CONTINUATION, TRIGGER, to_theirs, write_usage
from lanebus.handlers.projections import (
    SESSIONS,
    TURNS,
    USAGE,
    Loop,
    Turn,
    TurnsState,
    chain_to,
    children,
    find_loop,
    loop_messages,
    loop_turns,
    siblings,
    total_usage,
)
from lanebus.handlers.projections.turns import abandoned, loop_usage, roots
from lanebus.messages import TurnId
from lanebus.providers import from_anthropic, from_openai_responses
from tests.support.agent.agents import ScriptedModel, answer, fresh_bus, log, messages, take_run
from tests.support.agent.folding import fold, log_of
from tests.support.log.entries import context_of
from tests.support.messages.events_001 import Through, message_end, prompt, through, turn_start
from tests.support.messages.events_001 import answer as answer_ids
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import Json, dumped


@cases("event_json")
def test_an_event_comes_back_as_it_was(case: Case) -> None:
    match cast("Json", case.given), case.expect:
        case {"json": dict() as event}, {"variant": variant}:
            found = through([event])
            assert found.written == [event]
            assert event["type"] == variant
            assert found.log or found.live
        case _:
            pytest.fail("no such case")


@cases("event_order")
async def test_a_turn_tells_of_itself_in_the_documented_order(case: Case) -> None:
    match case.given, case.expect:
        case (
            {"prompt": str() as prompt, "provider_reply": str() as reply},
            {
                "new_message_roles": roles,
                "context_len": length,
                "must_contain_events": needed,
                "documented_order": order,
            },
        ):
            async with fresh_bus() as bus:
                session = bus.session("s1")
                await session.publish(UserMessage.text(prompt))
                await AgentLoop(ScriptedModel(answer(reply)))(await take_run(session))
                assert [cast("Json", dumped(message))["role"] for message in await messages(session)] == roles
                assert len((await build_context(session)).messages) == length
                writer = EventWriter()
                told = [word(value) for entry in await log(session) for value in writer.write(entry).values]
            assert told == order
            assert {str(event) for event in cast("list[object]", needed)} <= {event.partition("(")[0] for event in told}
        case _:
            pytest.fail("no such case")


def word(event: JsonValue) -> str:
    match event:
        case {"type": str() as kind, "message": {"role": str() as role}} if kind.startswith("Message"):
            return f"{kind}({role})"
        case {"type": str() as kind}:
            return kind
        case other:
            pytest.fail(f"no event: {other}")


@cases("turn_ids")
def test_a_turn_is_named(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given:
        case {"loop_id": str() as loop_id}:
            turn = TurnId(loop_id=loop_id, turn_index=0)
            assert {"session_id": turn.session, "config_segment": turn.config_segment} == expect
        case {"prompt": str() as text}:
            reader = EventReader()
            reader.read(turn_start())
            user, *_ = reader.read(message_end(prompt(text)))
            assistant, *_ = reader.read(message_end(answer_ids("Hello")))
            assert isinstance(user, UserMessage)
            assert isinstance(assistant, AssistantMessage)
            assert user.turn_id == assistant.turn_id == TurnId(loop_id="s.m.1", turn_index=0)
            assert str(expect["recommended"]).startswith("stamp the prompt with turn_index 0")
        case {"event": "MessageEnd(assistant)"}:
            turn_id = TurnId(loop_id="s.m.1", turn_index=0)
            said = AssistantMessage.text("x").with_turn_id(turn_id)
            ended = TurnEnded(turn_id=turn_id, stop_reason="stop", usage=Usage(), message=1)
            entries = log_of(said, MessageEnded(turn_id=turn_id, position=1).as_extension(), ended.as_extension())
            writer = EventWriter()
            events = [cast("Json", value) for entry in entries for value in writer.write(entry).values]
            has_turn = {str(event["type"]): "turnId" in cast("Json", event["message"]) for event in events}
            assert has_turn["MessageEnd"] is expect["phi_event_message_has_turnId"]
            assert has_turn["TurnEnd"] is expect["TurnEnd.message_has_turnId"]
        case _:
            pytest.fail("no such case")


@cases("projection")
def test_a_session_is_folded_from_its_events(case: Case) -> None:
    match case.given:
        case {"events": list()}:
            given, expect = cast("Json", case.given), cast("Json", case.expect)
            view = View(given)
            compared = {key: view.look(key, wanted) for key, wanted in expect.items() if key not in ORIGINAL_S}
            assert compared == {key: expect[key] for key in compared}
            assert compared
            view.require_agreement()
        case {"loop_record_json_without": "turns"}:
            loop = Loop(loop_id="s.m.1", started=1.0)
            stored = f'{{"loop_chunks":[[{loop.to_json()}]]}}'
            state = TURNS.state.validate_json(stored)
            turn = state.turn(TurnId(loop_id="s.m.1", turn_index=0))
            found = {"turns": [*state.turns], "turn_count": len(state.turns), "get_turn(0)": turn}
            assert find_loop(state, "s.m.1") == loop
            assert found == case.expect
        case _:
            pytest.fail("no such case")


ORIGINAL_S = {"phi_turn0_input_roles", "loop.messages_phi"}


"""Answers of the system that the cases are from, beside the recommended ones."""


class View:
    """What our projections say of a session, under the names that the cases use."""

    def __init__(self, given: Json) -> None:
        self.found: Through = through(cast("list[JsonValue]", given["events"]), "s1")
        self.state: TurnsState = fold(TURNS, self.found.log)
        self.is_cut = given.get("then") == "flush"
        if self.is_cut:
            self.state = abandoned(self.state, 99.0)
        self.loops = self.state.loops
        self.messages = {entry.position: entry.message for entry in self.found.log}
        self.events = cast("list[Json]", self.found.written)

    def look(self, key: str, wanted: JsonValue) -> JsonValue:
        """Our answer; of an object, the keys that are wanted."""
        name, _, argument = key.removesuffix(")").partition("(")
        if name not in self.answers:
            pytest.fail(f"nothing is compared with {key}")
        found = self.answers[name](argument) if argument else self.answers[name]()
        if key.endswith("_set"):
            assert isinstance(wanted, list)
            return wanted if sorted(map(str, wanted)) == sorted(map(str, cast("list[str]", found))) else found
        if isinstance(wanted, dict) and isinstance(found, dict):
            return {field: found[field] for field in wanted}
        return found

    @property
    def answers(self) -> dict[str, Callable[..., JsonValue]]:
        loop, child = self.loops[0], self.loops[-1]
        total = partial(write_usage, total_usage(self.state))
        return {
            "sessions": lambda: len({entry.session for entry in self.found.log}),
            "session_id": lambda: self.found.log[0].session,
            "agent_id": lambda: loop.agent,
            "loops": lambda: len(self.loops),
            "loop.status": loop.status.capitalize,
            "loop.rejection": lambda: loop.rejection,
            "loop.usage": lambda: write_usage(loop_usage(self.state, loop.loop_id)),
            "loop.messages": lambda: [*loop_messages(self.state, loop.loop_id)],
            "turn_count": lambda: len([turn for turn in self.turns() if turn.status == "completed"]),
            "turn0": lambda: self.turn(0),
            "turn1": lambda: self.turn(1),
            "turn0.input_roles": lambda: self.turn(0)["input_roles"],
            "recommended_turn0_input_roles": lambda: self.turn(0)["input_roles"],
            "recommended_llm_lane_inputs": lambda: self.turn(0)["input_roles"],
            "recommended_extension_lane": lambda: [
                message.kind
                for message in self.messages.values()
                if isinstance(message, ExtensionMessage) and not message.kind.startswith("agent.")
            ],
            "recorded_events": lambda: len(self.events),
            "recorded_message_updates": lambda: len([e for e in self.events if e["type"] == "MessageUpdate"]),
            "sequences": lambda: [*range(len([e for e in self.events if e["loop_id"] == loop.loop_id]))],
            "session.total_usage": total,
            "total_usage": total,
            "session.total_usage.input": lambda: total()["input"],
            "parent.children_loop_ids": lambda: [*children(self.state, loop.loop_id)],
            "parent.children_loop_ids_set": lambda: [*children(self.state, loop.loop_id)],
            "child.parent_loop_id": lambda: child.parent,
            "child.continuation_kind": lambda: to_theirs(CONTINUATION, child.continuation or ""),
            "root_loops": lambda: [*roots(self.state)],
            "loop_chain_to": self.chain,
            "parallel_siblings": self.siblings,
            "selected_count": lambda: len([loop for loop in self.loops if loop.is_selected]),
        }

    def chain(self, loop_id: str) -> JsonValue:
        return [*chain_to(self.state, loop_id)]

    def siblings(self, loop_id: str) -> JsonValue:
        return len(siblings(self.state, loop_id))

    def turns(self) -> tuple[Turn, ...]:
        return loop_turns(self.state, self.loops[0].loop_id)

    def turn(self, index: int) -> Json:
        turn = self.state.turn(TurnId(loop_id=self.loops[0].loop_id, turn_index=index))
        assert turn is not None
        assert turn.turn_id is not None
        stamps = [stamp for place in turn.results if (stamp := self.spoken(place).turn_id)]
        return {
            "turn_index": turn.turn_id.turn_index,
            "turn_id": turn.turn_id.model_dump(),
            "triggered_by": to_theirs(TRIGGER, turn.trigger or ""),
            "has_tool_calls": turn.has_tool_calls,
            "input_roles": [self.role(place) for place in turn.prompts],
            "output_role": None if turn.message is None else self.role(turn.message),
            "tool_results": len(turn.results),
            "tool_result_turn_id": stamps[0].model_dump() if len(stamps) == len(turn.results) > 0 else None,
        }

    def spoken(self, position: int) -> LlmMessage:
        message = self.messages[position]
        assert isinstance(message, LlmMessage)
        return message

    def role(self, position: int) -> JsonValue:
        return cast("Json", dumped(self.spoken(position)))["role"]

    def require_agreement(self) -> None:
        """The other projections say the same, and what was cut short keeps its messages."""
        answered = Usage()
        for turn in self.state.turns:
            answered = answered.combine(turn.usage or Usage())
        assert fold(USAGE, self.found.log).total.usage == answered
        assert fold(SESSIONS, self.found.log).usage == answered
        spoken = [place for place, message in self.messages.items() if isinstance(message, LlmMessage)]
        assert sorted(place for loop in self.loops for place in loop_messages(self.state, loop.loop_id)) == spoken
        assert not self.is_cut or spoken


CONTRADICTED_USAGES = {
    "att.usage.add_none_none": "every count is a number in our JSON, as in seed 001's; 0 stands for what was not told",
    "phi.usage.responses_cache_not_read": "cached tokens are read: they would be charged as fresh ones otherwise",
}
_NAMES = {
    "input_tokens": "input",
    "output_tokens": "output",
    "reasoning_tokens": "reasoning",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
}


def usage_of(value: object) -> Usage:
    fields = cast("Object", value)
    return Usage.model_validate({_NAMES.get(key, key): item for key, item in fields.items() if item is not None})


def require_fields(usage: Usage, expect: object) -> None:
    for name, count in cast("Object", expect).items():
        assert getattr(usage, _NAMES.get(name, name)) == count, name


def total(usages: object) -> Usage:
    result = Usage()
    for usage in cast("list[object]", usages):
        result = result.combine(usage_of(usage))
    return result


def including_cache(fields: Object) -> Usage:
    """Ours, of counts whose input has the cached tokens in it."""
    usage = usage_of({key: item for key, item in fields.items() if key in {*_NAMES, *_NAMES.values(), "total_tokens"}})
    return usage.model_copy(update={"input": usage.input - usage.cache_read})


def last_counted(answers: list[Object]) -> Usage:
    """The usage that a context's size is told by."""
    messages = [
        AssistantMessage.model_validate({"stop_reason": fields.pop("stop"), "usage": usage_of(fields)})
        for fields in ({**answer} for answer in answers)
    ]
    tokens = context_tokens(context_of(*messages))
    (usage,) = (one.usage for one in messages if one.usage and usage_tokens(one.usage) == tokens)
    return usage


def read_as_graph_message(usages: Object, expect: Object) -> None:
    (message,) = GRAPH_V1.read(
        {"message_id": "1", "role": "assistant", "content": [], "usages": cast("JsonValue", usages)}
    )
    assert isinstance(message, AssistantMessage)
    assert message.usage is not None
    names = {"reasoning": "reasoning_tokens", "cache_write": "cache_creation_input_tokens"}
    names |= {"cache_read": "cache_read_input_tokens", "image_tokens": "image_tokens", "audio_tokens": "audio_tokens"}
    assert {theirs: getattr(message.usage, ours) or 0 for ours, theirs in names.items()} == expect


def answered_with(counts: Object) -> Usage:
    plain = {name: counts[name] for name in ("input_tokens", "output_tokens", "total_tokens")}
    usage = {**plain, "input_tokens_details": {"cached_tokens": counts["cached_tokens"]}}
    response: Object = {"object": "response", "status": "completed", "model": "m", "output": [], "usage": usage}
    answer = from_openai_responses(cast("dict[str, JsonValue]", response))
    assert answer.usage is not None
    return answer.usage


@cases("usage", contradicted=CONTRADICTED_USAGES)
def test_tokens_and_money_come_out_as_told(case: Case) -> None:
    match case.given, case.expect:
        case {"usage": usage}, {"cache_hit_rate": rate}:
            assert usage_of(usage).cache_hit_rate() == rate
        case {"usage": usage}, {"context_tokens": tokens}:
            assert usage_tokens(usage_of(usage)) == tokens
        case {"usage": usage, "cost_per_million": rates}, {"estimated_cost": cost}:
            known = Rates.model_validate({name: Decimal(str(rate)) for name, rate in cast("Object", rates).items()})
            assert usage_of(usage).cost_at(known).total == Decimal(str(cost))
        case {"a": a, "b": b}, {"combined": expect} | {"sum": expect}:
            require_fields(usage_of(a).combine(usage_of(b)), expect)
        case {"a": a, "b": b}, {"sum.raw": None}:
            assert usage_of(a).raw is not None
            assert usage_of(a).combine(usage_of(b)).raw is None
        case {"turn_usages": turns}, {"AgentEnd.usage": expect}:
            require_fields(total(turns), expect)
        case {"turn_usages": turns}, {"AgentEnd.usage.reasoning": count}:
            assert total(turns).reasoning == count
        case {"loop_usages": loops}, {"total_usage": expect}:
            require_fields(total(loops), expect)
        case {"assistant_usages": answers}, {"last_usage.input": count}:
            assert last_counted(cast("list[Object]", answers)).input == count
        case {"rate_in": rate_in, "rate_out": rate_out}, {"cost": cost}:
            rates = Rates.by_discount(
                str(case.given["provider"]), input=Decimal(str(rate_in)), output=Decimal(str(rate_out))
            )
            assert including_cache(case.given).cost_at(rates).total == Decimal(str(cost))
        case {"completion_tokens": int()}, _:
            read_as_graph_message(case.given, case.expect)
        case {"cached_tokens": int()}, {"phi_usage": expect}:
            require_fields(answered_with(case.given), expect)
        case {"input_tokens": int()}, {"total_tokens": count}:
            answer = from_anthropic({"type": "message", "content": [], "usage": cast("JsonValue", case.given)})
            assert answer.usage is not None
            assert answer.usage.total_tokens == count
        case _:
            pytest.fail("no such case")
