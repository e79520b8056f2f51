"""Sample cases of messages in the JSON of five systems."""

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

import pytest
from pydantic import JsonValue, ValidationError

from lanebus import AgentMessage
from lanebus.bus import messages as our
from lanebus.bus.errors import BusError, DecodeError, InvalidContent, MessageError
from lanebus.bus.messages.base import (
    Id,
    IdKind,
    big_int_id,
    default_id,
    generate_id,
    generate_id_async,
    hex_id,
    int_id,
    short_id,
    timestamp_id,
)
from lanebus.bus.wire import Envelope, encode
from lanebus.codecs import GRAPH_V1, GRAPH_V2, TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL, UNIVERSAL_CLIENT, EventWriter
from lanebus.handlers.formats import Codec
from lanebus.handlers.formats.graph import (
    add_messages,
    attach_media,
    file_message,
    image_message,
    text_message,
    tool_message,
    without_tools,
)
from lanebus.handlers.formats.two_lane_agent.codec import SCOPE, node_text, parse_node_id, write_usage
from lanebus.messages import TurnId, extract_json, result_text, split_reasoning
from tests.support.log.entries import context_of
from tests.support.messages.events_001 import answer, through, turn_start
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import Json, dumped, native

_Role = Literal["system", "developer", "user", "assistant"]


@cases("agent_message_methods")
def test_both_lanes_answer_alike(case: Case) -> None:
    match case.given:
        case {"message": value, "with_turn_id": turn}:
            message = native(value).with_turn_id(TurnId.model_validate(turn))
            assert isinstance(message, our.ExtensionMessage)
            found = answers(message)
        case {"message_turn_id": turn, "with_turn_id": None}:
            stamped = our.UserMessage.text("x").with_turn_id(TurnId.model_validate(turn))
            assert stamped.turn_id is not None
            found = answers(stamped.with_turn_id(None))
        case {"with_node_identity": [int() as node, int() as parent]}:
            found = answers(our.UserMessage.text("x").with_node(node, parent))
        case _:
            pytest.fail("no such case")
    assert {key: found[key] for key in case.expect} == case.expect


def answers(message: AgentMessage) -> Object:
    """An extension's moment is None with us, as it stands in the envelope; 001 has 0."""
    found: Object = {"role": role_of(message), "turn_id": message.turn_id, "as_llm": message.as_llm()}
    if isinstance(message, our.LlmMessage):
        found |= {"node_id": message.node_id, "parent_id": message.parent_id, "tags": [*(message.tags or ())]}
    return {**found, "timestamp": message.timestamp or 0}


def role_of(message: AgentMessage) -> str:
    return message.role if isinstance(message, our.UserMessage | our.ExtensionMessage) else ""


@cases("llm_message_flatten")
def test_a_message_is_flat_with_its_turn(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given:
        case {"json": value}:
            for message in (native(value), *TWO_LANE_AGENT.read(value)):
                assert isinstance(message, our.LlmMessage)
                found = flat_fields(message)
                assert {key: found[key] for key in expect} == expect
        case {"message": value, "with_turn_id": turn}:
            message = bare(value).with_turn_id(turn_of(turn))
            assert dumped(message) == expect["json"]
            assert [*TWO_LANE_AGENT.write([message], False).values] == [expect["json"]]
            text = encode(message).decode()
            assert all(
                isinstance(key, str) and f'"{key}"' in text for key in cast("list[str]", expect["json_contains_keys"])
            )
            read = native(expect["json"]).turn_id
            assert read is not None
            assert read.turn_index == expect["decoded_turn_index"]
        case {"message": value, "turn_id": turn}:
            message = bare(value).with_turn_id(turn_of(turn))
            assert dumped(message) == our.parse_json(cast("str", expect["exact_text"]))
        case {"message": value, "node_id": int() as node, "parent_id": int() as parent, "tags": list() as tags}:
            tagged = tuple(our.NodeTag.model_validate(tag) for tag in tags)
            message = bare(value).with_node(node, parent).model_copy(update={"tags": tagged})
            assert dumped(message) == expect["json"]
            assert native(expect["json"]) == message
            assert [*TWO_LANE_AGENT.write(TWO_LANE_AGENT.read(expect["json"]), False).values] == [expect["json"]]
        case _:
            pytest.fail("no such case")


def bare(value: object) -> our.LlmMessage:
    message = native(value)
    assert isinstance(message, our.LlmMessage)
    return message


def turn_of(value: object) -> TurnId:
    return TurnId.model_validate(value)


def flat_fields(message: our.LlmMessage) -> Json:
    turn = message.turn_id
    return {
        "turn_id": None if turn is None else {"loop_id": turn.loop_id, "turn_index": turn.turn_index},
        "node_id": message.node_id,
        "parent_id": message.parent_id,
        "tags": [our.parse_json(tag.to_json()) for tag in message.tags or ()],
        "timestamp": message.timestamp,
        "content_len": len(message.content),
    }


@cases("json_roundtrip")
def test_what_is_read_is_written_the_same(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given, expect:
        case {"json": list() as many}, {"lanes": lanes, "reserialised": written}:
            messages = [message for value in many for message in TWO_LANE_AGENT.read(value)]
            assert [str(message.lane) for message in messages] == lanes
            assert [*TWO_LANE_AGENT.write(messages, False).values] == written
            assert [dumped(native(value)) for value in many] == written
        case {"json": value}, {"lane": lane, "reserialised": written}:
            (message,) = TWO_LANE_AGENT.read(value)
            assert (str(message.lane), TWO_LANE_AGENT.write([message], False).values[0]) == (lane, written)
            assert dumped(native(value)) == written
        case {"content_json": block}, {"reserialised": written}:
            assert through_codec(block) == written
        case {"json": dict() as call}, {"type": kind}:
            read = block_of("assistant", {"type": "tool_call", **call})
            assert isinstance(read, our.ToolCallBlock)
            assert read.effective_call_type == kind
        case {"image": dict() as image}, {"json": dict() as written}:
            read = block_of("user", {"type": "image", "media": {"kind": "url", **image}})
            assert isinstance(read, our.ImageBlock)
            assert our.parse_json(read.media.to_json()) == {"kind": "url", **written}
        case _:
            pytest.fail("no such case")


def through_codec(block: JsonValue) -> JsonValue:
    value: JsonValue = {"role": "user", "content": [block], "timestamp": 1}
    match TWO_LANE_AGENT.write(TWO_LANE_AGENT.read(value), False).values:
        case ({"content": [written]},):
            return written
        case other:
            pytest.fail(f"not one block: {other}")


def block_of(role: str, block: JsonValue) -> our.Block:
    message = native({"role": role, "content": [block]})
    assert isinstance(message, our.LlmMessage)
    assert role != "assistant" or isinstance(message, our.AssistantMessage)
    return message.content[0]


KNOWN = {"role", "content", "timestamp", "turnId", "kind", "data"}
CONTRADICTED_LANES = {
    "phi.dec.role_user_but_ext_shape": "the role alone decides: what says it is a user's is never an extension"
}


@cases("lane_decode", contradicted=CONTRADICTED_LANES)
def test_a_message_is_accepted_as_001_accepts_it(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given, expect:
        case {"json": value}, {"error": True}:
            with pytest.raises(MessageError):
                TWO_LANE_AGENT.read(value)
        case {"json": value}, {"lane": _}:
            assert {key: item for key, item in decoded_fields(value).items() if key in expect} == expect
        case {"json_keys": list() as keys}, {"decodes_both": both, "encodes": written}:
            read = [TWO_LANE_AGENT_CAMEL.read(answer_with_error_key(str(key))) for key in keys]
            assert (read[0] == read[1]) is both
            (value,) = TWO_LANE_AGENT_CAMEL.write(read[1], False).values
            assert value == answer_with_error_key(str(written))
        case _:
            pytest.fail("no such case")


def decoded_fields(value: JsonValue) -> Json:
    (message,) = TWO_LANE_AGENT.read(value)
    assert isinstance(message, our.LlmMessage | our.ExtensionMessage)
    (again,) = TWO_LANE_AGENT.write([message], False).values
    assert isinstance(value, dict)
    assert isinstance(again, dict)
    answer = message if isinstance(message, our.AssistantMessage) else our.AssistantMessage()
    usage = answer.usage or our.Usage()
    return {
        "lane": str(message.lane),
        "role": cast("str", again["role"]),
        "turn_id": None if message.turn_id is None else message.turn_id.model_dump(),
        "extra_keys_kept": bool(again.keys() & (value.keys() - KNOWN)),
        "reserialised": again,
        "error_message": answer.error_message,
        "usage": write_usage(usage),
        "usage.cache_read": usage.cache_read,
    }


def answer_with_error_key(key: str) -> Json:
    usage: Json = {"input": 1, "output": 2, "reasoning": 0, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10}
    return {
        "role": "assistant",
        "content": [],
        "stopReason": "error",
        "model": "m",
        "provider": "p",
        "usage": usage,
        "timestamp": 5,
        key: "boom",
    }


@cases("two_lane_routing")
def test_a_model_reads_the_one_lane_alone(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given:
        case {"messages": list() as values}:
            messages = [message for value in values for message in TWO_LANE_AGENT.read(value)]
            spoken = [message for message in messages if isinstance(message, our.LlmMessage) and message.as_llm()]
            read = context_of(*spoken).messages
            assert [json.loads(message.to_json())["role"] for message in read] == expect["llm_roles"]
            assert [*read] == spoken
            assert [each.kind for each in messages if isinstance(each, our.ExtensionMessage)] == expect[
                "extension_kinds"
            ]
        case {"attempt": _}:
            assert any(map(succeeds, ATTEMPTS)) is expect["possible"]
        case _:
            pytest.fail("no such case")


EXTENSION = our.ExtensionMessage.of("note", {"role": "user", "content": [{"type": "text", "text": "x"}]})
ATTEMPTS: tuple[Callable[[], object], ...] = (
    EXTENSION.as_llm,
    lambda: our.read_llm(EXTENSION.to_json()),
    lambda: our.UserMessage.model_validate(EXTENSION.model_dump()),
    lambda: our.UserMessage.model_validate(EXTENSION, from_attributes=True),
    lambda: EXTENSION.with_turn_id(None).as_llm(),
    lambda: EXTENSION.lane is our.Lane.LLM,
    lambda: context_of(EXTENSION).messages,
)


def succeeds(attempt: Callable[[], object]) -> bool:
    """Something that a model would read has come of it."""
    try:
        return bool(attempt())
    except (BusError, ValidationError):
        return False


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
    assert isinstance(message, our.AssistantMessage)
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
        delta = our.Delta.model_validate({"kind": names[name], "message_id": "m", "turn_id": turn_id, "delta": text})
        (event,) = EventWriter().write(Envelope("s", 1, our.Lane.LLM, delta, 0.0, "test", 1)).values
        pieces.append(cast("Json", event)["delta"])
    assert pieces == expect["json"]


def session_scope(given: Json, expect: Json) -> None:
    assert [SCOPE[variant] for variant in cast("list[str]", given["variants"])] == expect["json"]


def role(given: Json, expect: Json) -> None:
    message = native({"role": expect["json"], "content": "x"})
    assert isinstance(message, our.LlmMessage)
    assert type(message).__name__ == f"{str(given['variant']).capitalize()}Message"


def kind(given: Json, expect: Json) -> None:
    word = str(expect["json"])
    blocks = [block(spelled, word) for spelled in (word, str(given["variant"]))]
    assert blocks[0] == blocks[1]
    assert type(blocks[0]).__name__ == "".join(map(str.capitalize, word.split("_"))) + "Block"


def block(spelled: str, word: str) -> object:
    message = native({"role": "assistant", "content": [{"kind": spelled, **NEEDS[word]}]})
    assert isinstance(message, our.LlmMessage)
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
CONTRADICTED_TEXTS: dict[str, str] = {
    "af.text.non_list": "content that is neither blocks nor text is refused, not shown as the text of a Python object"
}


@cases("text_extraction", contradicted=CONTRADICTED_TEXTS)
def test_a_message_has_the_text_that_its_system_says(case: Case) -> None:
    match cast("dict[str, JsonValue]", case.given):
        case {"cases": [*given]}:
            wanted = cast("list[object]", case.expect["results"])
            found = [_structured(one) for one in given]
            assert found == wanted
        case {"text": str() as text}:
            said = split_reasoning(text)
            assert {"text": said.text, "reasoning": said.reasoning} == case.expect
        case {"content": [{"kind": str()}, *_] as content}:
            (part,) = UNIVERSAL_CLIENT.read({"role": "assistant", "content": content})
            assert isinstance(part, our.LlmMessage)
            assert part.text_content() == case.expect["text"]
        case {"content": content}:
            (message,) = GRAPH_V2.read({"role": "assistant", "content": content})
            assert isinstance(message, our.LlmMessage)
            assert message.text_with_results() == case.expect["text"]
        case _:
            pytest.fail("no such case")


def _structured(given: JsonValue) -> object:
    """The JSON that the message answers with, or the name that the cases have for there being none."""
    message = our.read_message(json.dumps({"role": "assistant", "content": [], **cast("Object", given)}))
    if not isinstance(message, our.AssistantMessage):
        return "SchemaMismatch"
    try:
        return extract_json(message)
    except DecodeError:
        return "SchemaMismatch"


def _part(case: Case) -> JsonValue:
    given = cast("dict[str, JsonValue]", case.given)
    match given:
        case {"part": part}:
            return part
        case {"image": image}:
            return {"kind": "image", "image": image}
        case _:
            pytest.fail("no such case")


@cases("validation")
def test_a_part_without_what_its_kind_needs_is_refused(case: Case) -> None:
    assert case.expect == {"error": True}
    with pytest.raises(DecodeError) as caught:
        UNIVERSAL_CLIENT.read({"role": "assistant", "content": [_part(case)]})
    assert caught.value.path.startswith("content.0.")


@pytest.mark.parametrize("codec", [GRAPH_V1, GRAPH_V2], ids=["002", "003"])
@cases("block_aliases")
def test_each_spelling_of_a_block_is_read_and_written_back(case: Case, codec: Codec) -> None:
    block = cast("dict[str, JsonValue]", case.given)
    message: dict[str, JsonValue] = {"role": "assistant", "content": [block]}
    (read,) = codec.read(message)
    assert isinstance(read, our.LlmMessage)
    assert as_expected(read.content[0]) == case.expect["canonical"]
    assert codec.write([read], False).values == (message,)


def as_expected(block: our.Block) -> Object:
    """What a block says, by the names that the cases have for it."""
    match block:
        case our.ToolResultBlock(content=content, structured=structured):
            said: object = result_text(content, None) if structured is None else structured
            return {
                "tool_call_id": block.tool_call_id,
                "content": said,
                "status": block.status,
                "is_error": block.is_error,
            }
        case our.ThinkingBlock():
            details = None if block.details is None else [*block.details]
            return {"thinking": block.text, "details": details, "signature": block.signature}
        case our.AnnotationBlock():
            spans = None if block.spans is None else [[*span] for span in block.spans]
            return {"kind": block.kind, "refs": [_ref(ref) for ref in block.refs], "spans": spans}
        case our.ErrorBlock():
            return {"message": block.message, "code": block.code, "data": block.data}
        case _:
            pytest.fail("no such case")


def _ref(ref: our.AnnotationRef) -> Object:
    return ref.model_dump(exclude_none=True)


# What each constructor is given.
GIVEN: dict[str, dict[str, JsonValue]] = {
    "TextBlock()": {"type": "text"},
    "ToolCallBlock(id,name)": {"type": "tool_call", "id": "c", "name": "n"},
    "RemoteToolCallBlock(id,name)": {"type": "remote_tool_call", "id": "c", "name": "n"},
}


@cases("block_defaults")
def test_what_is_left_out_has_its_default(case: Case) -> None:
    match cast("dict[str, JsonValue]", case.given), cast("dict[str, JsonValue]", case.expect):
        case {"blocks": [*names]}, {"defaults": [*wanted]}:
            blocks = [GIVEN[str(name)] for name in names]
        case _:
            pytest.fail("no such case")
    (read,) = GRAPH_V2.read({"role": "assistant", "content": [*blocks]})
    assert isinstance(read, our.AssistantMessage)
    # Only what was read: its origin knows what was left out, and would leave it out again.
    (value,) = GRAPH_V2.write([our.AssistantMessage(content=read.content, stop_reason="toolUse")], False).values
    assert isinstance(value, dict)
    written = value["content"]
    assert isinstance(written, list)
    for one, default in zip(written, wanted, strict=True):
        assert isinstance(one, dict)
        assert isinstance(default, dict)
        assert {**one, **default} == one


# What files begin with: their type is what they show, not what they are called.
BEGINNINGS = {".pdf": b"%PDF-1.7\n", ".wav": b"RIFF\x24\x00\x00\x00WAVEfmt "}
CONTRADICTED_CONSTRUCTORS: dict[str, str] = {
    "af.ctor.attach_image": "a bare word is no URL of media: it would be a local path"
}


@cases("constructors", contradicted=CONTRADICTED_CONSTRUCTORS)
def test_a_constructor_makes_the_message_that_theirs_makes(case: Case, tmp_path: Path) -> None:
    match cast("dict[str, JsonValue]", case.given):
        case {"args": [str() as text, *more]}:
            message = text_message(text, *cast("tuple[_Role, str]", (*more,)))
            assert _has(_written(message), case.expect)
        case {"content": content, "message_id": str() as id, "meta": dict() as meta}:
            blocks = [block for block in _read(content).content if isinstance(block, our.ToolResultBlock)]
            results = tool_message(blocks, id, meta)
            assert _has(_written(*results), case.expect)
        case {"content": content, "media": media, "as_type": "image"}:
            read = _read([{"type": "image", "media": media}]).content[0]
            assert isinstance(read, our.ImageBlock)
            _check_types(attach_media(_read(content), read.media, "image"), case.expect)
        case {"image_url": str() as url, "text": str() as text}:
            _check_types(image_message(url, text=text), case.expect)
        case {"suffix": str() as suffix}:
            path = tmp_path / f"file{suffix}"
            path.write_bytes(BEGINNINGS[suffix])
            _check_file(file_message(path), path, case.expect)
        case {"path": str() as path}:
            assert case.expect == {"raises": "FileNotFoundError"}
            with pytest.raises(FileNotFoundError):
                file_message(path)
        case {**rest} if not rest:
            with pytest.raises(InvalidContent, match=str(case.expect["match"])) as caught:
                image_message()
            assert isinstance(caught.value, ValueError)
        case _:
            pytest.fail("no such case")


def _read(content: JsonValue) -> our.LlmMessage:
    (message,) = GRAPH_V2.read({"role": "user", "content": content})
    assert isinstance(message, our.LlmMessage)
    return message


def _written(*messages: our.LlmMessage) -> Object:
    (value,) = GRAPH_V2.write(messages, False).values
    return cast("Object", value)


def _has(found: Object, wanted: Object) -> bool:
    return found | wanted == found


def _check_file(message: our.LlmMessage, path: Path, wanted: Object) -> None:
    (block,) = cast("list[dict[str, JsonValue]]", _written(message)["content"])
    media = cast("Object", block["media"])
    assert {"block_type": block["type"], "media.kind": media["kind"]} == {
        key: value for key, value in wanted.items() if key != "filename"
    }
    assert media["filename"] == path.name


def _check_types(message: our.LlmMessage, wanted: Object) -> None:
    written = _written(message)
    blocks = cast("list[dict[str, dict[str, str]]]", written["content"])
    found: Object = {
        "role": written["role"],
        "content_types": [block["type"] for block in blocks],
        "media.kind": blocks[-1]["media"]["kind"],
    }
    assert wanted
    assert _has(found, wanted)


SAID: dict[str, our.LlmMessage] = {
    "user": our.UserMessage.text("do it"),
    "assistant(tool_calls)": our.AssistantMessage(content=(our.ToolCallBlock(id="c", name="n"),)),
    "tool": our.ToolResultMessage(tool_call_id="c"),
    "assistant": our.AssistantMessage.text("done"),
}


@cases("delta")
def test_a_list_of_messages_becomes_what_theirs_does(case: Case) -> None:
    match cast("dict[str, JsonValue]", case.given):
        case {"left": [*left], "right": [*right]}:
            added = add_messages(_messages(left), _messages(right))
            wanted = case.expect.get("recommended_ids", case.expect.get("docstring_says"))
            assert [message.id for message in added] == wanted
        case {"roles": [*roles]}:
            said = [SAID[str(role)] for role in roles]
            kept = [SAID[role] for role in cast("list[str]", case.expect["kept"])]
            assert [*without_tools(said)] == kept
        case _:
            pytest.fail("no such case")


def _messages(said: list[JsonValue]) -> list[our.LlmMessage]:
    """Messages by their ids, or by what is said of them."""
    result: list[our.LlmMessage] = []
    for one in said:
        more: dict[str, JsonValue] = one if isinstance(one, dict) else {"message_id": str(one)}
        result += [
            message
            for message in GRAPH_V2.read({"role": "user", "content": [], **more})
            if isinstance(message, our.LlmMessage)
        ]
    return result


def is_uuid4(value: object) -> bool:
    return isinstance(value, str) and len(value) == 36 and uuid.UUID(value).version == 4


# Generator → who makes such ids here, and what its shape means.
GENERATORS: dict[str, tuple[Callable[[], Id], str, Callable[[Id], bool]]] = {
    "UUID": (our.uuid_id, "36-char uuid4", is_uuid4),
    # As text: JavaScript reads no number of this size exactly.
    "BigInt": (big_int_id, "int nanoseconds", lambda id: abs(int(id) - time.time_ns()) < 60 * 10**9),
    "Default": (default_id, "'' (framework default)", lambda id: id == "" and is_uuid4(generate_id(override=id))),
    "Int": (int_id, "int < 2^32", lambda id: isinstance(id, int) and 0 <= id < 2**32),
    "Hex": (hex_id, "32 hex chars", lambda id: isinstance(id, str) and len(bytes.fromhex(id)) == 16),
    "Timestamp": (
        timestamp_id,
        "int microseconds",
        lambda id: isinstance(id, int) and abs(id - time.time_ns() // 1000) < 60 * 10**6,
    ),
    "Short": (short_id, "8 alphanumerics", lambda id: isinstance(id, str) and len(id) == 8 and id.isalnum()),
}


@cases("ids")
async def test_an_id_is_chosen_and_made_as_theirs(case: Case) -> None:
    match cast("dict[str, JsonValue]", case.given):
        case {"generators": [*names]}:
            shapes = cast("list[str]", case.expect["shapes"])
            for name, shape in zip(map(str, names), shapes, strict=True):
                make, said, has_shape = GENERATORS[name]
                assert said == shape
                assert has_shape(make())
        case {"calls": [*defaults]}:
            first, second = (generate_id(cast("Id | None", default)) for default in defaults)
            wanted = cast("list[object]", case.expect["results"])
            assert first == wanted[0]
            assert "uuid4" in str(wanted[1])
            assert is_uuid4(second)
        case {"id_type": str() as kind, "injected": injected}:
            found = await _generated(cast("IdKind", kind), cast("Id | None", case.given.get("default_id")), injected)
            _check(found, case.expect)
        case _:
            pytest.fail("no such case")


async def _generated(kind: IdKind, default: Id | None, injected: object) -> Id:
    if isinstance(injected, str) and injected.startswith("coroutine returning "):
        awaited = injected.removeprefix("coroutine returning ").strip("'")

        async def later() -> Id:
            return awaited

        return await generate_id_async(default, kind=kind, override=later())
    return generate_id(default, kind=kind, override=cast("Id | None", injected))


def _check(found: Id, wanted: Object) -> None:
    match wanted:
        case {"value": value}:
            assert found == value
            assert type(found) is type(value)
        case {"type": "int", "lt": int() as limit}:
            assert isinstance(found, int)
            assert 0 <= found < limit
        case {"type": "str"}:
            assert is_uuid4(found)
        case _:
            pytest.fail("no such case")
