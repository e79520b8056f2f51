"""Messages survive a round trip through JSON, and invalid ones are refused with a reason."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    ExtensionMessage,
    ImageBlock,
    MediaRef,
    Rates,
    TextBlock,
    ToolCallBlock,
    Usage,
    UserMessage,
)
from lanebus.bus.messages import (
    AgentEvent,
    Block,
    CompactedSection,
    CompactionBlock,
    Delta,
    NodeTag,
    TurnEnded,
    TurnRange,
    UnknownBlock,
    parse_event,
    read_extension,
    read_llm,
)
from lanebus.bus.messages.json_reader import canonical, read_delta
from lanebus.bus.wire import encode
from lanebus.errors import DecodeError, InvalidContent, MessageError, UnknownKind, UnknownRole
from lanebus.messages import LoopCompaction, Prune, Publishable, TurnId, read_message
from tests.support.messages.made import amounts, inline, made, usages, values, words
from tests.support.messages.sayings import contents, messages
from tests.support.suite.scale import examples

EXAMPLES = (
    '{"role":"user","content":[{"type":"text","text":"hi"}],"timestamp":12345,'
    '"turnId":{"loopId":"s1.main.1","turnIndex":0}}',
    '{"role":"assistant","content":[{"type":"text","text":"Hi"},'
    '{"type":"toolCall","id":"tc-1","name":"read_file","arguments":{"path":"foo.rs"}}],'
    '"stopReason":"toolUse","model":"claude-sonnet","provider":"anthropic",'
    '"usage":{"input":100,"output":50,"reasoning":0,"cache_read":10,"cache_write":5,"total_tokens":165},"timestamp":789}',
    '{"role":"toolResult","toolCallId":"tc-1","toolName":"bash","content":[{"type":"text","text":"exit code 0"}],'
    '"isError":false,"timestamp":999}',
    '{"role":"extension","kind":"notification","data":{"text":"indexing"}}',
)

st.register_type_strategy(MediaRef, inline)
st.register_type_strategy(Decimal, amounts)
ranges = st.integers(0, 9).map(lambda turn: TurnRange(start_turn=turn, end_turn=turn + 1))
sections = made(
    CompactedSection,
    range=ranges,
    messages=st.lists(made(UserMessage, content=contents), max_size=2).map(tuple),
)
compaction_blocks = made(
    CompactionBlock,
    keep_first=st.none() | ranges,
    keep_recent=st.none() | sections,
    keep_compacted=st.none() | sections,
    created_at=st.just("2026-03-01T10:00:00.123456789Z"),
)
of_loops: st.SearchStrategy[Publishable] = st.one_of(
    made(LoopCompaction, loop_id=words, block=compaction_blocks),
    made(Prune, pruned=st.lists(st.integers(1, 2**53), max_size=3).map(tuple), memo=st.none() | words),
)
# A plain union would hardly ever draw the rarer messages of loops.
every_message = st.integers(0, 3).flatmap(lambda draw: of_loops if draw == 0 else messages)


@examples(400)
@given(every_message)
def test_every_message_survives_a_round_trip(message: Publishable) -> None:
    text = encode(message)
    read = read_extension if isinstance(message, ExtensionMessage) else read_llm
    assert read(text) == read_message(text) == message
    assert encode(read(text)) == text
    assert text.startswith(b'{"role":')
    assert b"\n" not in text


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_native_json_is_exact_and_its_keys_are_in_reading_order(text: str) -> None:
    assert read_message(text).to_json() == text


@pytest.mark.parametrize("arguments", [None, {}, [], "", 0, False])
def test_arguments_survive_a_round_trip_even_if_they_are_null(arguments: JsonValue) -> None:
    message = AssistantMessage.of(ToolCallBlock(id="c", name="n", arguments=arguments))
    (call,) = json.loads(encode(message))["content"]
    assert call["arguments"] == arguments
    assert read_message(encode(message)) == message
    section = CompactedSection(range=TurnRange(start_turn=0, end_turn=1), messages=(message,))
    block = CompactionBlock(keep_compacted=section, keep_recent=section, created_at="2026-03-01T10:00:00Z")
    told = LoopCompaction(loop_id="l", block=block)
    assert read_message(encode(told)) == told


@pytest.mark.parametrize("text", ["\x00", "\x1b[31m", "\u2028\u2029", "🦀" * 9, "\ufeff", '"\\', "a\r\nb"])
def test_any_text_survives_a_round_trip(text: str) -> None:
    for message in (UserMessage.text(text), ExtensionMessage.of("k", {text: text})):
        assert read_message(encode(message)) == message


DEEP = "[" * 200 + "]" * 200
HUGE = "9" * 5_000
SURROGATE = "\\ud800"


def user(*blocks: JsonValue, **fields: JsonValue) -> str:
    return json.dumps({"role": "user", "content": [*blocks], **fields})


def media(kind: str, **fields: JsonValue) -> str:
    return user({"type": "image", "media": {"kind": kind, **fields}})


MALFORMED: tuple[tuple[str, str], ...] = (
    # wrong types
    (user("text"), "content.0"),
    (user({"type": "text", "text": 7}), "content.0.text"),
    (user({"type": "text", "text": None}), "content.0.text"),
    (user({"type": "text"}), "content.0.text"),
    (user({"type": 7}), "content.0"),
    (user({}), "content.0"),
    (user({"type": "text", "text": "x"}, {"type": "thinking", "thinking": ["x"]}), "content.1.thinking"),
    (user({"type": "text", "text": "x", "colour": "red"}), "content.0.colour"),
    ('{"role":"user","content":7}', "content"),
    ('{"role":"user","content":{"0":"x"}}', "content"),
    (user(timestamp="now"), "timestamp"),
    (user(timestamp=1.5), "timestamp"),
    (user(timestamp=True), "timestamp"),
    (user(metadata=[]), "metadata"),
    (user(zzz=1), "zzz"),
    (user(nodeId=-1), "nodeId"),
    (user(nodeId=2**64), "nodeId"),
    (user(tags=[{"kind": "lesson"}]), "tags.0.text"),
    (user(tags=[{"kind": "idea", "text": "", "created_at_turn": 0, "abandoned_node_ids": []}]), "tags.0.kind"),
    ('{"role":"assistant","stopReason":"tired"}', "stopReason"),
    ('{"role":"assistant","usage":{"input":"many"}}', "usage.input"),
    ('{"role":"assistant","usage":{"input":1,"cost":{"total":"much"}}}', "usage.cost.total"),
    ('{"role":"assistant","usage":{"input":1,"cost":{"total":"1E+999999999"}}}', "usage.cost.total"),
    ('{"role":"assistant","usage":{"input":1,"cost":{"total":"-1E+16"}}}', "usage.cost.total"),
    ('{"role":"assistant","usage":{"input":1,"cost":{"total":"Infinity"}}}', "usage.cost.total"),
    ('{"role":"toolResult","content":[]}', "toolCallId"),
    ('{"role":"toolResult","toolCallId":"c","isError":"no"}', "isError"),
    ('{"role":"context","kind":"label","target":0}', "target"),
    ('{"role":"context","kind":"compaction"}', "summary"),
    ('{"role":"extension","kind":"k"}', "data"),
    ('{"role":"extension","data":1}', "kind"),
    ('{"role":7}', "role"),
    ("{}", "role"),
    # two spellings of one key with different values
    ('{"role":"user","content":[],"contents":["x"]}', "contents"),
    (user({"type": "toolCall", "id": "c", "name": "n", "args": {}, "arguments": {"a": 1}}), "content.0.arguments"),
    (user({"type": "image", "data": "QQ==", "mimeType": "a/b", "media_type": "c/d"}), "content.0.media_type"),
    # JSON that parsers read differently
    ('{"role":"user","content":[],"content":[]}', "content"),
    ('{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}', "content.0.text"),
    ('{"role":"user","metadata":{"a":[1,{"b":NaN}]}}', "metadata.a.1.b"),
    ('{"role":"extension","kind":"k","data":[0,-1e999]}', "data.1"),
    (f'{{"role":"user","content":[{{"type":"text","text":"{SURROGATE}"}}]}}', "content.0.text"),
    (f'{{"role":"user","metadata":{{"{SURROGATE}":1}}}}', "metadata"),
    (f'{{"role":"extension","kind":"k","data":{DEEP}}}', "data"),
    (f'{{"role":"user","metadata":{{"a":{DEEP}}}}}', "metadata"),
    (f'{{"role":"user","timestamp":{HUGE}}}', ""),
    (user({"type": "image", "data": "not base64", "mimeType": "image/png"}), "content.0.media.data"),
    (user({"type": "image", "data": "QQ", "mimeType": "image/png"}), "content.0.media.data"),
    (media("url", data="QQ=="), "content.0.media"),
    (media("sha256", sha256="abc"), "content.0.media.sha256"),
    (media("path", url="https://x"), "content.0.media.kind"),
    ('{"role":"user","role":"user"}', "role"),
    ('{"role":"extension","kind":"k","data":{"a":1,"a":2}}', "data.a"),
    ('{"role":"extension","kind":"k","data":-Infinity}', "data"),
    ('{"role":"extension","kind":"k","data":' + "[" * 70 + "]" * 70 + "}", "data"),
    ('{"role":"extension","kind":"k","data":' + "[" * 99_999 + "}", ""),
    ('{"role":"user","content":[{"type":"text","text":"a","content":"b"}]}', "content.0.content"),
    ('{"role":"toolResult","toolCallId":"a","call_id":"b"}', "call_id"),
    ('{"role":"user","id":true}', "id"),
    ('{"role":"context"}', "kind"),
    ('{"role":"user","kind":"k","data":1}', "kind"),
    *((text, "") for text in ("", "[]", "null", "{")),
)


@pytest.mark.parametrize(("text", "path"), MALFORMED)
def test_a_malformed_message_is_refused_with_the_path_of_its_fault(text: str, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_message(text)
    assert caught.value.path == path


@pytest.mark.parametrize("role", ["robot", "function", "", "User", "delta"])
def test_an_unknown_role_or_kind_is_refused(role: str) -> None:
    with pytest.raises(UnknownRole):
        read_message(json.dumps({"role": role, "content": []}))
    with pytest.raises(UnknownKind):
        read_message(json.dumps({"role": "context", "kind": role or "other"}))


@pytest.mark.parametrize("data", [b"\xff", b'{"role":"user', b"\xef\xbb\xbf{}", "", "nul", "'x'", '{"role":"user"}}'])
def test_data_that_is_not_json_is_refused(data: bytes | str) -> None:
    with pytest.raises(MessageError):
        read_message(data)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ('{"role":"tool","call_id":"c","output":1}', None),
        ('{"role":"tool","call_id":"c","contents":"x"}', '{"role":"toolResult","toolCallId":"c","content":"x"}'),
        (
            '{"role":"toolResult","tool_call_id":"c","tool_name":"t","is_error":true}',
            '{"role":"toolResult","toolCallId":"c","toolName":"t","isError":true}',
        ),
        (
            '{"role":"assistant","usages":{"cacheRead":3,"totalTokens":4},"stop_reason":"length"}',
            '{"role":"assistant","usage":{"cache_read":3,"total_tokens":4},"stopReason":"length"}',
        ),
        ('{"role":"user","content":[{"kind":"TEXT","content":"x"}]}', '{"role":"user","content":"x"}'),
        (
            '{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"n","args":{"a":1}}]}',
            '{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{"a":1}}]}',
        ),
        (
            '{"role":"user","content":[{"type":"image","data_base64":"QUJD","media_type":"image/png"}]}',
            '{"role":"user","content":[{"type":"image","data":"QUJD","mimeType":"image/png"}]}',
        ),
        ('{"role":"user","content":"x","contents":"x"}', '{"role":"user","content":"x"}'),
        ('{"role":"user","id":7}', '{"role":"user","id":"7"}'),
        ('{"role":"assistant","error":"boom"}', '{"role":"assistant","error_message":"boom"}'),
        (
            '{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"n","kind":"read"}]}',
            '{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","toolKind":"read"}]}',
        ),
        (
            '{"role":"user","content":[{"type":"data","mime_type":"a/b","data_base64":"QUJD"}]}',
            '{"role":"user","content":[{"type":"data","mimeType":"a/b",'
            '"media":{"kind":"data","data":"QUJD","mimeType":"a/b"}}]}',
        ),
        ('{"role":"user","content":[{"type":"data","mime_type":"a/b","data_base64":"QQ==","media":{}}]}', None),
        (
            '{"role":"user","content":[{"type":"annotation","annotation":{"url":"u"}}]}',
            '{"role":"user","content":[{"type":"annotation","refs":[{"url":"u"}]}]}',
        ),
        ('{"role":"user","content":[{"type":"annotation","annotation":{"url":"u"},"refs":[{"url":"v"}]}]}', None),
        (
            '{"role":"user","content":[{"type":"document","media":{"kind":"data","data":"QUJD","file_name":"a"}}]}',
            '{"role":"user","content":[{"type":"document","media":{"kind":"data","data":"QUJD","filename":"a"}}]}',
        ),
        (
            '{"role":"user","content":[{"type":"tool_result","call_id":"c","output":null,"structured":{"a":1}}]}',
            '{"role":"user","content":[{"type":"toolResult","toolCallId":"c","structured":{"a":1}}]}',
        ),
        ('{"role":"user","content":[{"type":"tool_result","call_id":"c","output":{"b":1},"structured":[1]}]}', None),
    ],
)
def test_every_spelling_of_the_seeds_is_read(theirs: str, ours: str | None) -> None:
    if ours is None:
        with pytest.raises(DecodeError):
            read_message(theirs)
    else:
        assert read_message(theirs) == read_message(ours)


def test_an_unknown_block_is_kept_unchanged() -> None:
    raw: dict[str, JsonValue] = {"type": "hologram", "x": [1, None, {"y": 2.5}]}
    message = read_message(json.dumps({"role": "user", "content": [raw]}))
    assert isinstance(message, UserMessage)
    assert message.content == (UnknownBlock(raw=raw),)
    assert read_message(encode(message)) == message


def test_a_malformed_turn_id_moves_to_the_metadata_or_is_refused_if_they_have_one_already() -> None:
    message = read_message('{"role":"user","turnId":{"loopId":7,"turnIndex":-1}}')
    assert isinstance(message, UserMessage)
    assert (message.turn_id, message.metadata) == (None, {"invalidTurnId": {"loopId": 7, "turnIndex": -1}})
    with pytest.raises(DecodeError) as refused:
        read_message('{"role":"user","turnId":7,"metadata":{"invalidTurnId":"mine"}}')
    assert refused.value.path == "turnId"


@pytest.mark.parametrize("read", [read_message, read_llm])
def test_a_turn_id_may_have_python_spelling(read: Callable[[str], Publishable]) -> None:
    message = read('{"role":"user","turnId":{"loop_id":"s.main.1","turn_index":0}}')
    assert isinstance(message, UserMessage)
    assert message.turn_id == TurnId(loop_id="s.main.1", turn_index=0)


def test_numbers_beyond_64_bits_are_exact() -> None:
    message = ExtensionMessage.of("k", [2**63, -(2**63) - 1, 2**200])
    assert read_message(encode(message)) == message


@pytest.mark.full
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10))
def test_any_json_is_read_or_refused_with_a_bus_error(value: object) -> None:
    for body in (value, {"role": "user", "content": value}, {"role": "assistant", "usage": value, "content": [value]}):
        try:
            message = read_message(json.dumps(body))
        except (DecodeError, UnknownRole, UnknownKind):
            continue
        assert read_message(encode(message)) == message


def test_a_message_gets_a_turn_id_by_copy() -> None:
    message, turn = UserMessage.text("x"), TurnId(loop_id="s.main.1", turn_index=0)
    stamped = message.with_turn_id(turn)
    assert (message.turn_id, stamped.turn_id, stamped.with_turn_id(None)) == (None, turn, message)
    assert message.as_llm() is message
    told = ExtensionMessage.of("k")
    assert told.with_turn_id(turn) is told
    as_llm: Callable[[], object] = told.as_llm  # a type checker refuses the None
    assert as_llm() is None


def test_no_reader_accepts_a_message_of_the_other_lane() -> None:
    with pytest.raises(UnknownRole):
        read_llm(encode(ExtensionMessage.of("k", {"role": "user"})))
    with pytest.raises(UnknownRole):
        read_extension(encode(UserMessage.text("x")))


def test_usage_follows_the_formulas_of_seed_001() -> None:
    usage = Usage(input=1_000, output=500, reasoning=100, cache_read=3_000, cache_write=0, total_tokens=4_500)
    rates = Rates(input=Decimal(3), output=Decimal(15), cache_read=Decimal("0.3"), cache_write=Decimal("3.75"))
    cost = usage.cost_at(rates, source="mine")
    assert cost.total == Decimal("0.0114")
    assert cost.total == cost.input + cost.output + cost.cache_read + cost.cache_write
    assert usage.cache_hit_rate() == 0.75
    assert Usage().cache_hit_rate() == 0.0
    assert Usage(input=1 - 10**400, cache_read=10**400).cache_hit_rate() == 0.0
    assert usage.combine(Usage()) == usage
    both = usage.combine(usage.model_copy(update={"cost": cost}))
    assert (both.total_tokens, both.cost, both.image_tokens) == (9_000, cost, None)


EVENT_FIELDS: dict[str, dict[str, st.SearchStrategy[object]]] = {
    "agent.started": {"config": values},
    "agent.ended": {"usage": usages},
    "agent.turn.ended": {"usage": usages},
    "agent.parallel.ended": {"evaluationUsage": usages},
    "agent.usage.settled": {"usage": usages},
    "agent.prune.applied": {"pruned": st.lists(st.integers(1, 9), max_size=3)},
}


def events() -> list[type[AgentEvent]]:
    return [cls for cls in AgentEvent.__subclasses__() if "KIND" in vars(cls)]


@pytest.mark.filterwarnings("ignore:Ignoring unsupported:hypothesis.errors.HypothesisWarning")
@pytest.mark.parametrize("cls", events())
def test_every_event_survives_a_round_trip_without_llm_content(cls: type[AgentEvent]) -> None:
    @examples(20)
    @given(st.builds(cls, **EVENT_FIELDS.get(cls.KIND, {})))
    def check(event: AgentEvent) -> None:
        message = read_message(encode(event.as_extension()))
        assert isinstance(message, ExtensionMessage)
        assert parse_event(message) == event

    check()
    assert not {"content", "message_text", "arguments"} & set(cls.model_fields)


def test_an_invalid_event_is_refused_with_a_typed_error() -> None:
    assert parse_event(ExtensionMessage.of("notification")) is None
    with pytest.raises(UnknownKind):
        parse_event(ExtensionMessage.of("agent.other"))
    with pytest.raises(DecodeError):
        parse_event(ExtensionMessage.of(TurnEnded.KIND, {"turnId": 1}))


def test_a_delta_is_not_read_as_a_message() -> None:
    delta = Delta(kind="text", message_id="m", delta="x", turn_id=TurnId(loop_id="s.main.1", turn_index=0))
    assert read_delta(encode(delta)) == delta
    with pytest.raises(UnknownRole):
        read_message(encode(delta))
    with pytest.raises(DecodeError):
        read_delta(encode(UserMessage.text("x")))


def test_signatures_of_text_and_calls_are_read_in_the_spelling_of_pi_too() -> None:
    text: dict[str, JsonValue] = {"type": "text", "text": "a", "textSignature": "c2ln"}
    call: dict[str, JsonValue] = {"type": "toolCall", "id": "t", "name": "f", "thoughtSignature": "c2ln"}
    message = read_message(json.dumps({"role": "assistant", "content": [text, call]}))
    assert isinstance(message, AssistantMessage)
    signed = (TextBlock(text="a", signature="c2ln"), ToolCallBlock(id="t", name="f", signature="c2ln"))
    assert message.content == signed
    assert read_message(message.to_json()) == message
    with pytest.raises(DecodeError):
        read_message(json.dumps({"role": "assistant", "content": [{**call, "signature": "eA=="}]}))


def test_every_block_keeps_its_type_when_its_keys_are_renamed() -> None:
    """A block that is missing in the table of names would be read as unknown."""
    union = get_args(get_args(Block)[0])
    types = {get_args(block.model_fields["type"].annotation)[0] for block in union}
    assert len(types) > 10
    read = canonical({"role": "user", "content": [{"type": name} for name in sorted(types - {"unknown"})]})
    assert [block["type"] for block in cast("list[dict[str, str]]", read["content"])] == sorted(types - {"unknown"})


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (UserMessage, r"use UserMessage.text\(…\), or name each field"),
        (ExtensionMessage, r"use ExtensionMessage.of\(…\), or name each field"),
        (TurnId, r"use TurnId.from_text\(…\), or name each field"),
        (TextBlock, r"TextBlock takes its fields by name: name each field, as in TextBlock\(text=…\)"),
    ],
)
def test_a_positional_argument_is_refused_with_the_call_to_write(kind: Callable[[str], object], advice: str) -> None:
    with pytest.raises(InvalidContent, match=advice):
        kind("hi")


def of(kind: Callable[..., object], /, **fields: object) -> object:
    """Call a constructor as a caller without a type checker may."""
    return kind(**fields)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: of(UserMessage, content="hi"),
            "`content` of UserMessage is 'hi': use UserMessage.text(…), or pass a tuple",
        ),
        (lambda: of(UserMessage, content=("hi",)), "`content.0` of UserMessage is 'hi': pass a block"),
        (lambda: of(UserMessage, contents=()), "UserMessage has no field `contents`: did you mean `content`?"),
        (lambda: of(TextBlock), "`text` of TextBlock is missing: pass it by name, as in TextBlock(text=…)"),
        (lambda: of(TextBlock, text=b"x"), "`text` of TextBlock is of type bytes: it should be a valid string"),
        (lambda: of(ImageBlock, media="a.png"), "`media` of ImageBlock is 'a.png': pass MediaRef(…)"),
        (lambda: of(MediaRef, kind="data"), "MediaRef: media of kind 'data' needs its field 'data': change its fields"),
        (
            lambda: of(AssistantMessage, content=(), stop_reason="end", turn_id="x", timestamp=1.5),
            "`stop_reason` of AssistantMessage is 'end': it should be 'stop', ",
        ),
        (
            lambda: ExtensionMessage.of("k", cast("JsonValue", {"list": {"b c": [1, {2}]}})),
            "`data.list.b c.1` of ExtensionMessage is of type set: pass what JSON has",
        ),
        (
            lambda: ToolCallBlock(id="c", name="t", arguments=cast("JsonValue", {"aKey": object()})),
            "`arguments.aKey` of ToolCallBlock is of type object",
        ),
        (lambda: ExtensionMessage.of("k", {"x" * 1000: float("nan")}), f"`data.{'x' * 95}` of ExtensionMessage is nan"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_to_pass(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidContent) as caught:
        make()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_more_than_three_wrong_fields_are_counted() -> None:
    with pytest.raises(InvalidContent, match=r"; and 2 more$"):
        of(ToolCallBlock, id=1, name=2, arguments=object(), a=1, b=2)


def test_only_an_estimate_of_usage_has_its_mark_in_json() -> None:
    assert "estimated" not in Usage(input=1).to_json()
    assert Usage.model_validate_json(b'{"estimated":false}') == Usage()
    estimate = AssistantMessage(usage=Usage(input=1, estimated=True))
    assert b'"estimated":true' in encode(estimate)
    assert read_message(encode(estimate)) == estimate


@pytest.mark.parametrize(("one", "other", "both"), [(None, None, None), (True, None, True), (None, True, True)])
def test_a_sum_with_an_estimate_is_an_estimate(one: bool | None, other: bool | None, both: bool | None) -> None:
    assert Usage(estimated=one).combine(Usage(estimated=other)).estimated is both


def test_a_missing_total_is_the_sum_of_the_parts_and_a_given_one_stays() -> None:
    parts = Usage(input=10, output=5, reasoning=3, cache_read=2, cache_write=1)
    assert parts.with_total().total_tokens == 18
    assert parts.model_copy(update={"total_tokens": 20}).with_total().total_tokens == 20
    assert Usage().with_total() == Usage()


def test_a_message_keeps_its_node_and_its_tags() -> None:
    tag = NodeTag(kind="lesson", text="do not", created_at_turn=2, abandoned_node_ids=(3, 4))
    message = UserMessage.text("x").with_node(5, 2).model_copy(update={"tags": (tag,)})
    assert read_message(encode(message)) == message
    assert b'"nodeId":5,"parentId":2,"tags":[{"kind":"lesson","text":"do not","created_at_turn":2,' in encode(message)
    assert tag.is_decaying
    assert b"node" not in encode(UserMessage.text("x"))
    assert b"tags" not in encode(UserMessage.text("x"))


@pytest.mark.parametrize(
    ("loop", "session", "config"),
    [("s.main.1", "s", "main"), ("s.a.b.2", "s", "a.b"), ("s.1", "s", None), ("s", "s", None), ("", "", None)],
)
def test_a_loop_id_contains_its_session_and_configuration(loop: str, session: str, config: str | None) -> None:
    turn = TurnId(loop_id=loop, turn_index=0)
    assert (turn.session, turn.config_segment) == (session, config)
