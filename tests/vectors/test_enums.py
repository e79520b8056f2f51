"""Words: variants of the seeds' enums and what they are in JSON."""

from collections.abc import Callable
from typing import cast

from pydantic import JsonValue

from lanebus import AssistantMessage, LlmMessage
from lanebus.bus.messages import Delta, Lane, TurnId
from lanebus.bus.wire import Envelope
from lanebus.codecs import TWO_LANE_AGENT, EventWriter
from lanebus.handlers.formats.two_lane_agent.codec import node_text, parse_node_id
from lanebus.handlers.formats.two_lane_agent.seen import SCOPE
from tests.support.messages.events_001 import answer, through, turn_start
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json, native

__all__ = ()

MEDIA: Json = {"media": {"kind": "url", "url": "https://x/y"}}
NEEDS: dict[str, Json] = {
    "text": {"text": "t"},
    "image": MEDIA,
    "audio": MEDIA,
    "document": MEDIA,
    "tool_call": {"id": "c", "name": "n"},
    "tool_result": {"tool_call_id": "c", "content": "t"},
    "thinking": {"text": "t"},
}


@cases("enums")
def test_a_word_is_the_variant_s(case: Case) -> None:
    family, _, rest = case.id.partition(".")
    word = rest.partition(".")[0]
    CHECKS[f"{family}.{word}"](cast("Json", case.given), cast("Json", case.expect))


def stop_reason(given: Json, expect: Json) -> None:
    (message,) = TWO_LANE_AGENT.read({**answer("x"), "stopReason": expect["json"]})
    assert isinstance(message, AssistantMessage)
    variant = str(given["variant"])
    assert message.stop_reason == variant[0].lower() + variant[1:]
    assert TWO_LANE_AGENT.write([message], False).values == ({**answer("x"), "stopReason": expect["json"]},)


def node_id(given: Json, expect: Json) -> None:
    found = parse_node_id(str(given["parse"]))
    assert found == expect["node_id"]
    assert found is None or parse_node_id(node_text(found)) == found


def turn_trigger(given: Json, expect: Json) -> None:
    found = through([turn_start(trigger=str(given["json"]))]).written
    assert found == through([turn_start(trigger=str(expect["variant"]))]).written
    assert found == [turn_start(trigger=str(expect["reserialised"]))]


def stream_delta(given: Json, expect: Json) -> None:
    names = {"Text": "text", "Thinking": "thinking", "ToolCallDelta": "toolCall"}
    pieces: list[JsonValue] = []
    for variant in cast("list[str]", given["variants"]):
        name, _, text = variant.removesuffix(")").partition("(")
        turn_id = TurnId(loop_id="s.m.1", turn_index=0)
        delta = Delta.model_validate({"kind": names[name], "message_id": "m", "turn_id": turn_id, "delta": text})
        (event,) = EventWriter().write(Envelope("s", 1, Lane.LLM, delta, 0.0, "test", 1)).values
        pieces.append(cast("Json", event)["delta"])
    assert pieces == expect["json"]


def session_scope(given: Json, expect: Json) -> None:
    assert [SCOPE[variant] for variant in cast("list[str]", given["variants"])] == expect["json"]


def role(given: Json, expect: Json) -> None:
    message = native({"role": expect["json"], "content": "x"})
    assert isinstance(message, LlmMessage)
    assert type(message).__name__ == f"{str(given['variant']).capitalize()}Message"


def kind(given: Json, expect: Json) -> None:
    word = str(expect["json"])
    blocks = [block(spelled, word) for spelled in (word, str(given["variant"]))]
    assert blocks[0] == blocks[1]
    assert type(blocks[0]).__name__ == "".join(map(str.capitalize, word.split("_"))) + "Block"


def block(spelled: str, word: str) -> object:
    message = native({"role": "assistant", "content": [{"kind": spelled, **NEEDS[word]}]})
    assert isinstance(message, LlmMessage)
    return message.content[0]


CHECKS: dict[str, Callable[[Json, Json], None]] = {
    "phi.stopreason": stop_reason,
    "phi.nodeid": node_id,
    "phi.turntrigger": turn_trigger,
    "phi.streamdelta": stream_delta,
    "phi.sessionscope": session_scope,
    "att.role": role,
    "att.kind": kind,
}
