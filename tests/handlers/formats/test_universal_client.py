"""The codec of seed 004, where it is unlike others: results, finish reasons, cached tokens, and who thought."""

import json
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError
from lanebus.codecs import ORIGIN, UNIVERSAL_CLIENT, universal_client_codec
from lanebus.providers import to_anthropic
from tests.support.formats.kit import Object
from tests.support.formats.universal_client import PNG, USAGE, image, message, part
from tests.support.log.entries import context_of
from tests.support.messages.faithfulness import require_read_back


def read(value: JsonValue) -> our.LlmMessage:
    (found,) = UNIVERSAL_CLIENT.read(value)
    assert isinstance(found, our.LlmMessage)
    return found


@pytest.mark.parametrize(
    ("content", "blocks", "structured"),
    [
        ("72F", (our.TextBlock(text="72F"),), None),
        ("", (), None),
        (None, (), None),
        ({"t": 72}, (), {"t": 72}),
        ([1, 2], (), [1, 2]),
        ([{"t": 72}], (), [{"t": 72}]),
        ([{"kind": "text", "text": "a"}], (our.TextBlock(text="a"),), None),
    ],
)
def test_a_result_is_text_or_parts_or_json(
    content: JsonValue, blocks: tuple[our.Block, ...], structured: JsonValue
) -> None:
    found = read(message("tool", part("tool_result", tool_call_id="c", content=content, is_error=True)))
    assert isinstance(found, our.ToolResultMessage)
    assert (found.content, found.structured, found.is_error) == (blocks, structured, True)


def test_a_role_in_capitals_is_read_and_what_is_told_in_full_needs_no_origin() -> None:
    assert isinstance(read(message("USER")), our.UserMessage)
    shown_as: Object = {"image_data": PNG, "image_media_type": "image/png"}
    told = part("tool_result", tool_call_id="c", content="see", is_error=False, **shown_as)
    assert ORIGIN not in (read(message("tool", told, tool_call_id="c")).metadata or {})


def test_a_tool_message_is_named_by_itself_where_its_part_names_no_call() -> None:
    found = read(message("tool", part("tool_result", content="1"), tool_call_id="c", name="f"))
    assert isinstance(found, our.ToolResultMessage)
    assert (found.tool_call_id, found.tool_name) == ("c", "f")
    found = read({"role": "tool", "content": "72F", "tool_call_id": "c"})
    assert isinstance(found, our.ToolResultMessage)
    assert (found.tool_call_id, found.text_content()) == ("c", "72F")


def test_results_of_one_message_are_one_again_and_those_that_came_one_by_one_are_not() -> None:
    results = {call: part("tool_result", tool_call_id=call, content=call) for call in "ab"}
    for values in (
        (message("tool", *results.values()),),
        tuple(message("tool", told, tool_call_id=call) for call, told in results.items()),
    ):
        found = UNIVERSAL_CLIENT.read_all(values)
        assert [each.tool_call_id for each in found if isinstance(each, our.ToolResultMessage)] == ["a", "b"]
        assert UNIVERSAL_CLIENT.write(found, False).values == values


@pytest.mark.parametrize(
    ("told", "reason", "raw"),
    [
        ({}, "stop", None),
        ({"finish_reason": {"reason": "length"}}, "length", None),
        ({"finish_reason": {"reason": "stop", "raw": "end_turn"}}, "stop", "end_turn"),
        ({"finish_reason": "content_filter"}, "guardRail", None),
        ({"finish_reason": {"reason": "other", "raw": "aborted"}}, "aborted", None),
        ({"finish_reason": {"reason": "other", "raw": "x"}}, "stop", "x"),
        ({"content": [part("tool_call", id="c", name="f", arguments={})]}, "toolUse", None),
    ],
)
def test_a_finish_reason_is_one_of_our_words_and_the_raw_one(told: Object, reason: str, raw: str | None) -> None:
    value: Object = {**message("assistant"), **told}
    found = read(value)
    assert isinstance(found, our.AssistantMessage)
    assert (found.stop_reason, found.raw_stop_reason) == (reason, raw)
    require_read_back(UNIVERSAL_CLIENT, value)


@pytest.mark.parametrize(("provider", "own_input"), [(None, 100), ("anthropic", 100), ("openai", 20), ("gemini", 20)])
def test_input_never_has_the_cached_tokens_in_it(provider: str | None, own_input: int) -> None:
    codec = universal_client_codec(provider=provider)
    (found,) = codec.read(message("assistant", usage=USAGE))
    assert isinstance(found, our.AssistantMessage)
    assert found.usage == our.Usage(input=own_input, output=5, total_tokens=105, cache_read=80)
    for cached in (80, 500):
        require_read_back(codec, message("assistant", usage={**USAGE, "cache_read_tokens": cached}))


def test_signed_thinking_goes_back_to_the_author_passed_to_the_codec() -> None:
    history = (
        message("user", {"kind": "text", "text": "q"}),
        message("assistant", part("thinking", text="t", signature="s"), {"kind": "text", "text": "a"}),
        message("user", {"kind": "text", "text": "why"}),
    )
    codec = universal_client_codec(provider="anthropic", model="m")
    told = codec.read_all(history)
    for known, kinds in ((told, ["thinking", "text"]), (UNIVERSAL_CLIENT.read_all(history), ["text"])):
        turns = cast("list[dict[str, list[Object]]]", to_anthropic(context_of(*known), model="m").body["messages"])
        assert [block["type"] for block in turns[1]["content"]] == kinds
    assert codec.write(told, False).values == history


@pytest.mark.parametrize("prefix", ["", "file:"])
def test_a_local_file_is_read_only_with_a_files_function(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "a").write_bytes(b"\x89PNG\r\n\x1a\n")
    value = message("user", part("image", url=f"{prefix}{tmp_path / 'a'}"))
    with pytest.raises(DecodeError):
        UNIVERSAL_CLIENT.read(value)
    (found,) = universal_client_codec(files=our.MediaRef.from_file).read(value)
    assert isinstance(found, our.UserMessage)
    assert found.content == (image(kind="data", data=PNG, mime_type="image/png"),)


@pytest.mark.parametrize("structured", [0, False, 1.5, "", "x"])
def test_a_result_that_is_a_number_becomes_text_which_is_a_loss(structured: JsonValue) -> None:
    said: list[our.Publishable] = [
        our.ToolResultMessage(tool_call_id="a", structured=structured, batch_id="b"),
        our.ToolResultMessage(tool_call_id="c", content=(our.TextBlock(text="kept"),), batch_id="b"),
    ]
    written = UNIVERSAL_CLIENT.write(said, True)
    found = [each for each in UNIVERSAL_CLIENT.read_all(written.values) if isinstance(each, our.ToolResultMessage)]
    assert [each.text_content() for each in found] == [json.dumps(structured), "kept"]
    assert written.losses == ("0.content", "0.structured")
