"""What every codec promises, tried on the samples of each: nothing is lost or changed without a report."""

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError, MessageError, UnknownRole
from lanebus.codecs import (
    ORIGIN,
    TWO_LANE_AGENT,
    TWO_LANE_AGENT_CAMEL,
    Codec,
    Unsayable,
    coding_agent_codec,
    universal_client_codec,
)
from lanebus.handlers.formats import CODECS
from tests.support.formats import coding_agent, graph, two_lane_agent, universal_client
from tests.support.formats.kit import Kit, Object, lists_in, spoilt
from tests.support.messages.faithfulness import logged, require_read_back, require_written_back
from tests.support.messages.graph_json import graph_messages
from tests.support.messages.sayings import histories, json_values
from tests.support.suite.scale import examples

KITS: dict[str, Kit] = {"000": coding_agent.KIT, "001": two_lane_agent.KIT, **graph.KITS, "004": universal_client.KIT}
REMEMBERING = [name for name in KITS if name != "001"]
"""codecs that keep an origin in the metadata; seed 001 ignores what it does not know, and so does its codec"""

every_codec = pytest.mark.parametrize("kit", KITS.values(), ids=KITS)


def _each(rows: dict[str, Sequence[tuple[object, object]]]) -> pytest.MarkDecorator:
    cases = [(KITS[name], *row) for name in rows for row in rows[name]]
    return pytest.mark.parametrize(("kit", "one", "other"), cases)


def bare(message: our.Publishable) -> our.Publishable:
    """The message without its origin."""
    if isinstance(message, our.ExtensionMessage) and isinstance(message.data, dict):
        data = {key: value for key, value in message.data.items() if key != ORIGIN}
        return message.model_copy(update={"data": data})
    if isinstance(message, our.ExtensionMessage):
        return message
    metadata = {key: value for key, value in (message.metadata or {}).items() if key != ORIGIN}
    batch = {"batch_id": None} if isinstance(message, our.ToolResultMessage) else {}  # which only names it
    return message.model_copy(update={"metadata": metadata or None, **batch})


@_each({name: kit.said for name, kit in KITS.items()})
def test_a_message_is_read_as_ours_and_ours_is_written_as_theirs(
    kit: Kit, one: JsonValue, other: our.Publishable
) -> None:
    assert kit.codec.read(one) == (other,)
    assert kit.codec.write([other], False).values == (one,)
    require_read_back(kit.codec, one)


@_each({name: kit.blocks for name, kit in KITS.items()})
def test_each_spelling_of_a_block_is_read_and_comes_back(kit: Kit, one: JsonValue, other: our.Block) -> None:
    (found,) = kit.codec.read(kit.content(one))
    assert isinstance(found, our.LlmMessage)
    assert found.content == (other,)
    if "data:" not in str(one):  # whose bytes are kept, not the URL
        require_read_back(kit.codec, kit.content(one))


@_each({name: [*spoilt(kit.faults)] for name, kit in KITS.items()})
def test_a_malformed_message_is_refused_with_the_path_to_its_fault(kit: Kit, one: JsonValue, other: str) -> None:
    with pytest.raises(DecodeError) as caught:
        kit.codec.read(one)
    assert caught.value.path == other
    legal = kit.faults[0][0]
    with pytest.raises(DecodeError) as caught:
        kit.codec.read_all([legal, one])
    assert caught.value.path == f"1.{other}".removesuffix(".")


@every_codec
def test_the_messages_that_faults_are_planted_in_are_legal_and_come_back(kit: Kit) -> None:
    for value, _ in kit.faults:
        assert kit.codec.read(value)
        if kit.codec.name != "001":
            require_read_back(kit.codec, value)


@every_codec
def test_a_role_of_none_of_its_messages_is_refused(kit: Kit) -> None:
    for role in kit.roles:
        with pytest.raises(UnknownRole):
            kit.codec.read({**cast("Object", kit.faults[0][0]), "role": role})


@_each({name: kit.losses for name, kit in KITS.items()})
def test_what_it_cannot_represent_is_refused_with_its_path_and_the_rest_is_written(
    kit: Kit, one: our.Publishable, other: Sequence[str]
) -> None:
    with pytest.raises(Unsayable) as caught:
        kit.codec.write([one], False)
    losses = caught.value.losses
    assert len(losses) == len(other), losses
    assert all(any(loss.startswith(path) for loss in losses) for path in other), losses
    next_one = our.UserMessage(content=(our.TextBlock(text="a"),), timestamp=1 if kit.codec.name == "001" else None)
    written = kit.codec.write([one, next_one], True)
    assert written.losses == losses
    assert written.values[-1:] == kit.codec.write([next_one], False).values
    kit.codec.read_all(written.values)


@pytest.mark.parametrize("name", CODECS)
def test_an_estimate_of_usage_is_a_loss_and_reported_usage_is_not(name: str) -> None:
    guessed = our.AssistantMessage(usage=our.Usage(input=1, output=2, total_tokens=3, estimated=True))
    for message, wanted in ((guessed, ["0.usage.estimated"]), (guessed.model_copy(update={"usage": our.Usage()}), [])):
        losses = CODECS[name].write([message], True).losses
        assert [loss for loss in losses if "estimated" in loss] == wanted


@every_codec
def test_a_results_name_is_no_loss_where_its_call_is_written_too(kit: Kit) -> None:
    stamped = {"timestamp": 1, "model": "m", "provider": "p", "usage": our.Usage()} if kit.codec.name == "001" else {}
    call = our.AssistantMessage.model_validate(
        {"content": [our.ToolCallBlock(id="c", name="f")], "stop_reason": "toolUse", **stamped}
    )
    named = our.ToolResultMessage(tool_call_id="c", tool_name="f", timestamp=1 if stamped else None)
    assert len(kit.codec.write([call, named], False).values) == 2
    other = named.model_copy(update={"tool_name": "g"})
    if kit.codec.name in {"000", "002", "003"}:  # which name it nowhere else
        assert kit.codec.write([call, other], True).losses == ("1.toolName",)


@pytest.mark.parametrize(
    "text", [b"", b'{"a":[', b"{}{}", b'{"a":' + b"9" * 5000 + b"}", b'{"a":"\xff"}', b"[" * 100_000], ids=range(6)
)
def test_invalid_json_never_becomes_a_value(text: bytes) -> None:
    with pytest.raises(MessageError):
        our.parse_json(text)


# --- any messages -------------------------------------------------------------------------------------------------

_NAMING = {
    "000": [coding_agent_codec(provider="anthropic", model="m")],
    "004": [universal_client_codec(provider="openai", model="m")],
}


def _any_of(strategy: Callable[[Kit], st.SearchStrategy[object]]) -> st.SearchStrategy[tuple[str, object]]:
    return st.sampled_from([*KITS]).flatmap(lambda name: st.tuples(st.just(name), strategy(KITS[name])))


@pytest.mark.full
@examples(1200)
@given(_any_of(lambda kit: kit.theirs))
def test_what_was_read_is_written_as_it_was(of: tuple[str, JsonValue]) -> None:
    name, value = of
    for codec in (KITS[name].codec, *_NAMING.get(name, ())):
        require_read_back(codec, value)


@pytest.mark.full
@pytest.mark.parametrize("name", graph.KITS)
@examples(200)
@given(values=st.lists(graph_messages, max_size=3), again=st.integers(1, 2))
def test_a_conversation_comes_back_to_the_kind_of_each_number(name: str, values: list[JsonValue], again: int) -> None:
    said, codec = values * again, KITS[name].codec
    written = codec.write(codec.read_all(said), False).values
    assert [json.dumps(value, sort_keys=True) for value in written] == [json.dumps(one, sort_keys=True) for one in said]


@pytest.mark.full
@examples(1200)
@given(_any_of(lambda kit: kit.theirs))
def test_without_its_origin_a_message_is_equal_or_its_losses_are_reported(of: tuple[str, JsonValue]) -> None:
    codec = KITS[of[0]].codec
    messages = [bare(message) for message in codec.read(of[1])]
    written = codec.write(messages, True)
    assert ([bare(message) for message in codec.read_all(written.values)] == messages) == (written.losses == ())


@pytest.mark.full
@every_codec
@examples(300)
@given(said=histories())
def test_every_loss_of_our_messages_is_reported(kit: Kit, said: Sequence[our.Publishable]) -> None:
    require_written_back(kit.codec, said)


@examples(1200)
@given(_any_of(lambda kit: json_values | kit.odd))
def test_no_json_at_all_raises_anything_but_a_typed_error(of: tuple[str, JsonValue]) -> None:
    codec = KITS[of[0]].codec
    try:
        found = codec.read(of[1])
    except MessageError:
        return
    assert logged(found) == tuple(found)
    if codec.name != "001":
        require_read_back(codec, of[1])


@examples(200)
@given(two_lane_agent.ours, st.sampled_from([TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL]))
def test_what_001_can_represent_is_read_back_unchanged(message: our.Publishable, codec: Codec) -> None:
    (value,) = codec.write([message], False).values
    parsed = json.loads(json.dumps(value))
    assert codec.read(parsed) == (message,)
    assert codec.write(codec.read(parsed), False).values == (value,)


# --- what a codec remembers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REMEMBERING)
def test_a_changed_message_is_written_as_it_is_now_and_a_foreign_origin_is_a_loss(name: str) -> None:
    kit = KITS[name]
    (found,) = kit.codec.read({**cast("Object", kit.content(kit.blocks[0][0])), "role": "user", "more": {"x": 1}})
    assert isinstance(found, our.UserMessage)
    changed = found.model_copy(update={"content": (our.TextBlock(text="after"),)})
    (back,) = kit.codec.write([changed], False).values
    (again,) = kit.codec.read(back)
    assert isinstance(again, our.UserMessage)
    assert again.text_content() == "after"
    assert cast("Object", back)["more"] == {"x": 1}
    foreign = found.model_copy(update={"metadata": {ORIGIN: {"codec": "999", "edits": []}}})
    assert [loss[:10] for loss in kit.codec.write([foreign], True).losses] == ["0.metadata"]


_OF_USER, _OF_FALSE = (sha256(text).hexdigest()[:12] for text in (b'"user"', b"false"))
_EDITS: list[Object] = [
    {"edits": [{"at": ["role"], "value": "nobody"}]},
    {"edits": [{"at": ["role"], "value": "assistant"}]},
    {"edits": [{"at": ["role"], "value": 7}]},
    {"residue": [[["role"], _OF_USER, "system"]]},
    {"residue": [[["role"], _OF_USER, "nobody"]]},
    {"residue": [[["delta"], _OF_FALSE, True]]},
    {"residue": [[["content"], None, "x"], [["more"], None, "x"], [["role"], _OF_USER, "tool"]]},
    {"residue": "x", "edits": "x"},
    {"residue": [["x"], [[], None, 1], [["content", 5], None, 1], [["content", "a"], None, 1], 1, [[1, 2], "x"]]},
    {"words": [], "beside": {}, "calls": -1},
    {"words": {"content.0": "blocks"}, "beside": [[9, 9], [1], "x"], "calls": True, "sparse": "yes"},
]


@pytest.mark.parametrize("name", REMEMBERING)
def test_a_forged_or_damaged_origin_makes_no_other_message_of_it(name: str) -> None:
    codec, plain = KITS[name].codec, our.UserMessage(content=(our.TextBlock(text="a"),))
    for memory in _EDITS:
        forged = plain.model_copy(update={"metadata": {ORIGIN: {"codec": codec.name, **memory}}})
        assert codec.write([forged], False) == codec.write([plain], False), memory


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("levels", [*range(45, 66)])
def test_what_is_read_can_be_stored_however_deep_it_is(name: str, levels: int) -> None:
    kit, deep = KITS[name], lists_in(levels)
    text = cast("Object", kit.blocks[0][0])
    content = "contents" if name == "000" else "content"
    kind = "kind" if name == "004" else "type"
    values: list[Object] = [
        {"role": "user", content: [], "more": deep},
        {"role": "user", content: [], "metadata": {"origin": deep}},
        {"role": "user", content: [{kind: "new", "x": deep}]},
        {"role": "user", content: [{**text, "x": deep}]},
    ]
    for value in values:
        try:
            found = kit.codec.read(value)
        except DecodeError as error:
            assert "nested deeper" in str(error)  # noqa: PT017  # either is right, if it is one of them
        else:
            assert logged(found) == tuple(found)
            require_read_back(kit.codec, value)
