"""The loops, turns and usage of a session, folded from seed 001's events by our own projections."""

from collections.abc import Callable
from functools import partial
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus import ExtensionMessage, LlmMessage
from lanebus.bus.messages import Usage
from lanebus.handlers.formats.two_lane_agent.codec import write_usage
from lanebus.handlers.formats.two_lane_agent.seen import CONTINUATION, TRIGGER, to_theirs
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
from tests.support.agent.folding import fold
from tests.support.messages.events_001 import Through, through
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json, dumped

__all__ = ()


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
