"""An entry may be skipped before decoding only if it would not be selected afterwards."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import ALL_LANES, AssistantMessage, ExtensionMessage, Lane, SystemMessage, ToolResultMessage, UserMessage
from lanebus.bus.wire import Entry, Selection, decode, encode, kind_of
from lanebus.messages import Compaction, DeveloperMessage, Label, Publishable
from tests.support.log.stored import header

HEADER = b"1 1795221259795 abc"

MESSAGES: list[tuple[Publishable, str]] = [
    (UserMessage.text("x"), "user"),
    (SystemMessage.text("x"), "system"),
    (DeveloperMessage.text("x"), "developer"),
    (AssistantMessage(content=()), "assistant"),
    (ToolResultMessage(tool_call_id="1", tool_name="t", content=()), "toolResult"),
    (Compaction(summary="x"), "compaction"),
    (Label(target=1, label="x"), "label"),
    (ExtensionMessage.of("agent.progress", {"kind": "user"}), "agent.progress"),
]


def entry_of(body: bytes, header: bytes = HEADER, entry_id: bytes = b"5-0") -> Entry:
    return entry_id, (b"h", header, b"m", body)


def lane_of(message: Publishable) -> Lane:
    return Lane.EXTENSION if isinstance(message, ExtensionMessage) else Lane.LLM


@pytest.mark.parametrize(("message", "kind"), MESSAGES)
def test_every_message_has_a_kind(message: Publishable, kind: str) -> None:
    assert kind_of(message) == kind
    body = encode(message)
    entry = entry_of(body, header(lane_of(message), body).encode())
    for kinds, is_wanted in (([kind], True), ([kind[:3] + "*"], True), (["*"], True), (["other"], False)):
        selection = Selection.of(ALL_LANES, kinds)
        assert selection.takes(decode("s", lane_of(message), entry)) is is_wanted
        assert selection.may_take(lane_of(message), entry) is is_wanted


@pytest.mark.parametrize("kinds", [None, ["store.*"], {Lane.LLM: ["user"]}])
def test_what_a_framework_stores_is_selected_only_with_the_llm_lane(
    kinds: list[str] | dict[Lane, list[str]] | None,
) -> None:
    body = encode(ExtensionMessage.of("store.x", {"text": "of the model"}))
    entry = entry_of(body, header(Lane.EXTENSION, body).encode())
    damaged = entry_of(body.replace(b"model", b"MODEL"), header(Lane.EXTENSION, body).encode())
    for each in (entry, damaged):
        envelope = decode("s", Lane.EXTENSION, each)
        assert Selection.of(ALL_LANES, kinds).takes(envelope)
        assert Selection.of(ALL_LANES, kinds).may_take(Lane.EXTENSION, each)
        alone = Selection.of({Lane.EXTENSION}, kinds)
        assert not alone.takes(envelope)
        assert not alone.may_take(Lane.EXTENSION, each)


def test_a_single_text_selects_one_kind() -> None:
    assert Selection.of(ALL_LANES, "user") == Selection.of(ALL_LANES, ["user"])


def test_the_union_selects_everything_that_one_of_them_selects() -> None:
    some, more = Selection.of({Lane.LLM}, ["user"]), Selection.of({Lane.EXTENSION}, ["agent.*"])
    both = Selection.union([some, more])
    assert both == Selection.of(ALL_LANES, ["agent.*", "user"])
    assert Selection.union([both, Selection.of({Lane.LLM})]) == Selection.of(ALL_LANES)


KINDS = st.sampled_from(["agent.ended", "agent.", "a", "", 'q"uote', "back\\slash", "é", "user", "x" * 50, "\n"])


@given(KINDS, st.lists(KINDS | st.sampled_from(["agent.*", "*", "us*"]), min_size=1, max_size=3))
def test_the_kind_of_an_extension_is_found_in_its_first_bytes_if_it_is_plain(kind: str, kinds: list[str]) -> None:
    entry = entry_of(encode(ExtensionMessage(kind=kind, data={"x": 1})))
    selection = Selection.of(ALL_LANES, kinds)
    wanted = selection.takes(decode("s", Lane.EXTENSION, entry))
    assert wanted <= selection.may_take(Lane.EXTENSION, entry)
    if kind.isascii() and kind.isprintable() and not {*kind} & {*'"\\'}:
        assert wanted == selection.may_take(Lane.EXTENSION, entry)


BODIES = st.sampled_from(
    [
        *(encode(message) for message, _ in MESSAGES),
        *(
            b"",
            b"{",
            b'{"role":"user"',
            b'{"role":"user","content":7}',
            b'{"role":"other"}',
            b'{"kind":"a","role":"user"}',
        ),
        *(b'{"role":"extension","kind":"a"}', b'{"role":"extension","kind":"a","data":\xff}', b"[]", b"\xff"),
        *(b'{"role":"context","kind":"future"}', b'{"role":"context"}', json.dumps({"role": "user"}).encode()),
    ]
)
HEADERS = st.sampled_from([HEADER, b"2 1795221259795 abc", b"1 x abc", b"1 1", b"", b"1 1 a b"])


@given(BODIES, HEADERS, st.sampled_from([b"5-0", b"5-7"]), st.sampled_from(Lane), st.sampled_from(["user", "a", "no"]))
def test_no_entry_is_skipped_before_decoding_that_would_be_selected_afterwards(
    body: bytes, header: bytes, entry_id: bytes, lane: Lane, kind: str
) -> None:
    entry = entry_of(body, header, entry_id)
    selection = Selection.of(ALL_LANES, [kind])
    assert selection.takes(decode("s", lane, entry)) <= selection.may_take(lane, entry)


def test_kinds_for_one_lane_select_every_kind_of_the_other() -> None:
    selection = Selection.of(frozenset(Lane), {Lane.EXTENSION: {"control.*"}})
    assert selection.whole == {Lane.LLM}
    assert selection.may_take(Lane.LLM, (b"1-0", [b"h", b"1 1 p", b"m", b'{"role":"user","content":[]}']))
    tick = b'{"role":"extension","kind":"tick"}'
    head = header(Lane.EXTENSION, tick).encode()
    assert not selection.may_take(Lane.EXTENSION, (b"1-0", [b"h", head, b"m", tick]))
    assert selection.may_take(Lane.EXTENSION, (b"1-0", [b"h", head, b"m", tick.replace(b"tick", b"tock")]))
    both = Selection.union((selection, Selection.of({Lane.EXTENSION}, {"tick"})))
    assert (both.whole, both.lanes) == (frozenset({Lane.LLM}), frozenset(Lane))
