"""The codec of seed 000, where it is unlike others: media in groups, several results in a message, costs, moments."""

from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import AssistantMessage, ImageBlock, MediaRef, TextBlock, ToolResultMessage, UserMessage
from lanebus.codecs import CODING_AGENT, ORIGIN, coding_agent_codec
from lanebus.handlers.formats.coding_agent import to_base64
from lanebus.providers import to_anthropic
from tests.support.formats.coding_agent import OGG, PLACE, PNG, USAGE, message, result
from tests.support.formats.kit import Object
from tests.support.log.entries import context_of
from tests.support.messages.faithfulness import logged, require_read_back

JPEG = "/9j/4AAQSkZJRgAB"


def read(value: JsonValue) -> UserMessage | AssistantMessage:
    (found,) = CODING_AGENT.read(value)
    assert isinstance(found, UserMessage | AssistantMessage)
    return found


def images(*groups: list[JsonValue]) -> Object:
    blocks: list[JsonValue] = [{"type": "image", "images": group} for group in groups]
    return message("user", *blocks)


def test_images_of_one_block_are_one_block_again_and_those_side_by_side_stay_apart() -> None:
    for value, groups in ((images([PNG, PLACE, JPEG]), [None] * 3), (images([PNG, JPEG], [PNG], [PNG]), [*"0012"])):
        blocks = [block for block in read(value).content if isinstance(block, ImageBlock)]
        assert groups in ([None] * 3, [block.group_id for block in blocks])
        assert len(blocks) == len(groups)
        assert CODING_AGENT.write([read(value)], False).values == (value,)
        assert ORIGIN not in (read(value).metadata or {})
    seen = UserMessage.with_images("look", [b"\x89PNG\r\n\x1a\n1", PLACE]).model_copy(update={"timestamp": None})
    pictures: Object = {"type": "image", "images": ["iVBORw0KGgox", PLACE]}
    (written,) = CODING_AGENT.write([seen], False).values
    assert written == message("user", {"type": "text", "content": "look"}, pictures)


def test_to_base64_gives_pairs_in_order() -> None:
    found = read(message("user", {"type": "image", "images": [PNG, PLACE]}, {"type": "audio", "audio": [OGG]})).content
    assert to_base64(found) == [(PNG, "image/png"), (PLACE, ""), (OGG, "audio/ogg")]
    assert to_base64([TextBlock(text="a"), ImageBlock(media=MediaRef(kind="file_id", file_id="f"))]) == []


def test_a_local_file_is_read_only_with_a_files_function(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"OggS\0\2")
    value = message("user", {"type": "audio", "audio": [f"file:{tmp_path / 'a'}"]})
    with pytest.raises(DecodeError):
        CODING_AGENT.read(value)
    (found,) = coding_agent_codec(files=MediaRef.from_file).read(value)
    assert isinstance(found, UserMessage)
    assert to_base64(found.content) == [(OGG, "audio/ogg")]


def test_several_results_are_a_batch_and_one_message_again_unless_others_stand_between() -> None:
    value = message("tool", result("a"), result("b", is_error=True), id="t1", timestamp=2.5)
    found = [each for each in CODING_AGENT.read(value) if isinstance(each, ToolResultMessage)]
    told = [(each.tool_call_id, each.is_error, each.batch_id) for each in found]
    assert told == [("a", False, "t1"), ("b", True, "t1")]
    assert CODING_AGENT.write(found, False).values == (value,)
    values = (message("tool", result("a"), result("b")), message("tool", result("c"), result("d")))
    assert CODING_AGENT.write(CODING_AGENT.read_all(values), False).values == values
    one, two = CODING_AGENT.read(values[0])
    assert CODING_AGENT.write([one, UserMessage(), two], True).losses == ("2.batchId",)


def test_a_result_in_a_users_message_stays_there_and_goes_to_the_model() -> None:
    found = read(message("user", result("c", metadata={"secret": 1}), {"type": "text", "content": "go on"}))
    call = AssistantMessage(content=(our.ToolCallBlock(id="c", name="f"),), stop_reason="toolUse")
    body = str(to_anthropic(context_of(call, found), model="m").body)
    assert ("secret" in body, "tool_result" in body) == (False, True)


def test_a_cost_is_exact_one_of_zero_unknown_and_a_fraction_of_a_millisecond_kept() -> None:
    amounts = {"input": 0.1, "output": 0.2, "cache_read": 0.0, "cache_write": 0.0, "total": 0.30000000000000004}
    for cost, total in ((amounts, "0.3"), ({"total": 0.5}, "0.5"), (dict.fromkeys(amounts, 0.0), None)):
        value = message("assistant", usage={**USAGE, "cost": {**cost}}, stop_reason="stop", error="")
        found = read(value)
        assert isinstance(found, AssistantMessage)
        assert found.usage is not None
        assert (found.usage.cost and str(found.usage.cost.total)) == total
        require_read_back(CODING_AGENT, value)
        assert total or CODING_AGENT.write([found], False).values == (value,)
    value = message("user", timestamp=1700000000.1234567)
    assert read(value).timestamp == 1_700_000_000_123
    require_read_back(CODING_AGENT, value)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        *[("stop", "stop"), ("length", "length"), ("tool_calls", "toolUse"), ("content_filter", "guardRail")],
        *[("abort", "aborted"), ("error", "error"), ("maxTurns", "maxTurns"), ("new", "stop")],
    ],
)
def test_a_stop_reason_is_one_of_our_words(word: str, reason: str) -> None:
    found = read(message("assistant", stop_reason=word, error="why"))
    assert isinstance(found, AssistantMessage)
    assert (found.stop_reason, found.error_message) == (reason, "why")
    assert found.raw_stop_reason == ("new" if word == "new" else None)
    require_read_back(CODING_AGENT, message("assistant", stop_reason=word))


def test_summaries_are_entries_that_the_context_is_built_with() -> None:
    compaction: Object = {"role": "compaction_summary", "summary": "S", "tokens_before": 7, "timestamp": 1.5}
    branch: Object = {"role": "branch_summary", "summary": "B", "from_id": "e1", "timestamp": 2.5}
    entries = CODING_AGENT.read_all([compaction, branch])
    assert CODING_AGENT.write(logged(entries), False).values == (compaction, branch)
    said = [each.text_content() for each in context_of(*entries).messages]
    assert ["<summary>\nS" in said[0], "<summary>\nB" in said[1]] == [True, True]


def test_a_custom_message_may_have_a_bare_text_and_fields_of_its_own() -> None:
    value: Object = {"role": "custom", "custom_type": "note", "contents": "hi", "display": False, "more": 1}
    require_read_back(CODING_AGENT, value)


def test_signed_thinking_goes_back_to_the_author_passed_to_the_codec() -> None:
    thinking: Object = {"type": "thinking", "content": "t", "signature": "s"}
    value = message("assistant", thinking, {"type": "text", "content": "a"})
    told = coding_agent_codec(provider="anthropic", model="m")
    context = context_of(UserMessage.text("q"), *told.read(value), UserMessage.text("why"))
    turns = cast("list[dict[str, list[JsonValue]]]", to_anthropic(context, model="m").body["messages"])
    assert {"type": "thinking", "thinking": "t", "signature": "s"} in turns[1]["content"]
    require_read_back(told, value)
