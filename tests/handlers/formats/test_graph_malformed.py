"""Malformed messages of the graph framework raise a typed error that names the path."""

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages import parse_json, read_message
from lanebus.codecs import GRAPH_V1, GRAPH_V2
from lanebus.handlers.formats import Codec
from tests.support.messages.malformed import BAD_BASE64, BAD_TEXTS, BAD_URLS, BAD_VALUES, deep

both = pytest.mark.parametrize("codec", [GRAPH_V1, GRAPH_V2], ids=["002", "003"])

Object = dict[str, JsonValue]

LARGE = 2**63


def user(*content: JsonValue, **more: JsonValue) -> Object:
    """A message of a user."""
    return {"role": "user", "content": [*content], **more}


def image(**media: JsonValue) -> Object:
    """A message of a user with one image."""
    return user({"type": "image", "media": media})


def result(**said: JsonValue) -> Object:
    """A message with one tool result."""
    return {"role": "tool", "content": [{"type": "tool_result", **said}]}


def usage(**said: JsonValue) -> Object:
    """An answer with its usage."""
    tokens: Object = {"completion_tokens": 1, "prompt_tokens": 1, "total_tokens": 2}
    return {"role": "assistant", "content": [], "usages": tokens | said}


MESSAGES: dict[str, tuple[JsonValue, str]] = {
    # the message itself
    "text": ("hello", ""),
    "list": ([], ""),
    "null": (None, ""),
    "number": (1, ""),
    "no_role": ({"content": []}, "role"),
    "role_null": ({"role": None, "content": []}, "role"),
    "role_unknown": ({"role": "narrator", "content": []}, "role"),
    "role_of_another_seed": ({"role": "toolResult", "content": []}, "role"),
    "role_of_the_other_lane": ({"role": "extension", "kind": "x", "data": 1}, "role"),
    "content_is_an_object": ({"role": "user", "content": {"raw": True}}, "content"),
    "content_is_a_number": ({"role": "user", "content": 7}, "content"),
    "live_delta": (user(delta=True), "delta"),
    "delta_is_text": (user(delta="no"), "delta"),
    "delta_is_a_number": (user(delta=0), "delta"),
    "id_is_a_flag": (user(message_id=True), "message_id"),
    "id_is_a_fraction": (user(message_id=1.5), "message_id"),
    "id_is_null": (user(message_id=None), "message_id"),
    "metadata_is_a_list": (user(metadata=[]), "metadata"),
    "raw_is_text": (user(raw="x"), "raw"),
    "reasoning_is_a_list": (user(reasoning=["x"]), "reasoning"),
    "calls_are_an_object": (user(tools_calls={}), "tools_calls"),
    "a_call_is_text": (user(tools_calls=["x"]), "tools_calls.0"),
    "both_names_of_the_calls": (user(tools_calls=[], tool_calls=[{}]), "tool_calls"),
    "both_names_of_the_usage": (user(usage={"a": 1}, usages=None), "usage"),
    # moments
    "moment_in_words": (user(timestamp="yesterday"), "timestamp"),
    "moment_is_a_flag": (user(timestamp=True), "timestamp"),
    "moment_is_an_object": (user(timestamp={}), "timestamp"),
    "moment_too_large": (user(timestamp=LARGE), "timestamp"),
    "moment_far_too_large": (user(timestamp=10**400), "timestamp"),
    "moment_in_no_calendar": (user(timestamp="2025-13-01T00:00:00"), "timestamp"),
    # usage
    "usage_without_its_output": ({"role": "assistant", "content": [], "usages": {}}, "usages.completion_tokens"),
    "tokens_are_text": (usage(total_tokens="2"), "usages.total_tokens"),
    "tokens_are_a_fraction": (usage(total_tokens=1.5), "usages.total_tokens"),
    "tokens_are_a_flag": (usage(prompt_tokens=True), "usages.prompt_tokens"),
    "tokens_too_many": (usage(prompt_tokens=LARGE), "usages.prompt_tokens"),
    # blocks
    "block_is_text": (user("hello"), "content.0"),
    "block_is_null": (user({"type": "text", "text": "a"}, None), "content.1"),
    "block_without_a_type": (user({"text": "a"}), "content.0.type"),
    "block_type_is_a_number": (user({"type": 1}), "content.0.type"),
    "text_is_a_number": (user({"type": "text", "text": 1}), "content.0.text"),
    "text_is_null": (user({"type": "text", "text": None}), "content.0.text"),
    "annotations_are_text": (user({"type": "text", "text": "", "annotations": "x"}), "content.0.annotations"),
    "annotation_page_too_large": (
        user({"type": "text", "text": "", "annotations": [{"page": LARGE}]}),
        "content.0.annotations.0.page",
    ),
    "image_without_media": (user({"type": "image"}), "content.0.media"),
    "box_of_three": (
        user({"type": "image", "media": {"url": "https://a.b"}, "bbox": [1, 2, 3]}),
        "content.0.bbox",
    ),
    "video_thumbnail_is_text": (
        user({"type": "video", "media": {"url": "https://a.b"}, "thumbnail": "x"}),
        "content.0.thumbnail",
    ),
    "pages_are_text": (
        user({"type": "document", "media": {"url": "https://a.b"}, "pages": ["1"]}),
        "content.0.pages.0",
    ),
    "data_without_a_type": (user({"type": "data"}), "content.0.mime_type"),
    "call_without_an_id": (user({"type": "tool_call", "name": "n"}), "content.0.id"),
    "call_id_is_a_number": (user({"type": "tool_call", "id": 1, "name": "n"}), "content.0.id"),
    "arguments_are_text": (user({"type": "tool_call", "id": "c", "name": "n", "args": "{}"}), "content.0.args"),
    "arguments_by_their_other_name": (
        user({"type": "tool_call", "id": "c", "name": "n", "arguments": []}),
        "content.0.arguments",
    ),
    "both_names_of_the_arguments": (
        user({"type": "tool_call", "id": "c", "name": "n", "args": {"a": 1}, "arguments": {"a": 2}}),
        "content.0.arguments",
    ),
    "reasoning_without_text": (user({"type": "reasoning", "signature": "s"}), "content.0.summary"),
    "both_names_of_the_reasoning": (
        user({"type": "reasoning", "summary": "a", "thinking": "b"}),
        "content.0.thinking",
    ),
    "both_names_of_the_error": (user({"type": "error", "message": "a", "error": "b"}), "content.0.error"),
    "both_forms_of_the_annotation": (
        user({"type": "annotation", "refs": [{"url": "a"}], "annotation": {"url": "b"}}),
        "content.0.annotation",
    ),
    "annotation_kind_unknown": (user({"type": "annotation", "kind": "rumour"}), "content.0.kind"),
    "span_of_three": (user({"type": "annotation", "spans": [[1, 2, 3]]}), "content.0.spans.0"),
    # results
    "result_without_its_call": (result(output="x"), "content.0.call_id"),
    "both_names_of_the_call": (result(call_id="a", tool_call_id="b"), "content.0.tool_call_id"),
    "both_names_of_the_output": (result(call_id="a", output="x", content="y"), "content.0.content"),
    "error_flag_is_text": (result(call_id="a", is_error="no"), "content.0.is_error"),
    "status_unknown": (result(call_id="a", status="maybe"), "content.0.status"),
    "fault_in_a_block_of_a_result": (
        result(tool_call_id="a", content=[{"type": "text", "text": "x"}, {"type": "text", "text": 1}]),
        "content.0.content.1.text",
    ),
    "local_media_in_a_result": (
        result(call_id="a", output=[{"type": "image", "media": {"kind": "url", "url": "/etc/passwd"}}]),
        "content.0.output.0.media.url",
    ),
    "local_media_for_a_result": (
        result(call_id="a", output={"kind": "url", "url": "file:///etc/passwd", "mime_type": "image/png"}),
        "content.0.output.url",
    ),
    # media
    "media_of_unknown_kind": (image(kind="path", url="https://a.b"), "content.0.media.kind"),
    "media_without_its_url": (image(kind="url"), "content.0.media.url"),
    "media_with_another_field_than_its_kind": (image(kind="file_id", url="https://a.b"), "content.0.media.file_id"),
    "media_without_its_data": (image(kind="data", data_base64=""), "content.0.media.data_base64"),
    "media_with_a_false_digest": (image(url="https://a.b", sha256="abc"), "content.0.media.sha256"),
    "media_width_too_large": (image(url="https://a.b", width=LARGE), "content.0.media.width"),
    "media_width_is_text": (image(url="https://a.b", width="9"), "content.0.media.width"),
    "data_with_false_base64": (
        user({"type": "data", "mime_type": "x/y", "data_base64": "!"}),
        "content.0.data_base64",
    ),
    **{f"url_{name}": (image(kind="url", url=url), "content.0.media.url") for name, url in BAD_URLS.items()},
    **{
        f"base64_{name}": (image(kind="data", data_base64=data), "content.0.media.data_base64")
        for name, data in BAD_BASE64.items()
    },
    # no JSON
    "nan_in_metadata": (user(metadata={"a": [BAD_VALUES["nan"]]}), "metadata.a.0"),
    "infinite_moment": (user(timestamp=BAD_VALUES["infinity"]), "timestamp"),
    "lone_surrogate": (user({"type": "text", "text": BAD_VALUES["lone_surrogate"]}), "content.0.text"),
    "lone_surrogate_in_a_key": (user(metadata=BAD_VALUES["lone_surrogate_in_a_key"]), "metadata"),
    "depth_200": (user(metadata={"a": BAD_VALUES["depth_200"]}), "metadata"),
}


@both
@pytest.mark.parametrize(("value", "path"), MESSAGES.values(), ids=MESSAGES)
def test_a_malformed_message_is_refused_and_the_fault_named(codec: Codec, value: JsonValue, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        codec.read(value)
    assert caught.value.path == path


@both
@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_invalid_json_never_becomes_a_message(codec: Codec, text: bytes) -> None:
    with pytest.raises(MessageError):
        codec.read(parse_json(text))


@both
@pytest.mark.parametrize("levels", range(45, 66))
def test_deeply_nested_messages_that_are_read_can_be_stored(codec: Codec, levels: int) -> None:
    for value in (
        user(parsed_content=deep(levels)),
        user(metadata={"origin": deep(levels)}),
        user({"type": "new", "x": deep(levels)}),
        user({"type": "text", "text": "a", "x": deep(levels)}),
        user({"type": "tool_call", "id": "c", "name": "n", "args": {"x": deep(levels)}}),
        result(call_id="c", output=[deep(levels)]),
    ):
        try:
            messages = codec.read(value)
        except DecodeError as error:
            assert "nested deeper" in str(error)  # noqa: PT017  # either is right, if it is one of them
        else:
            assert [read_message(message.to_json()) for message in messages] == [*messages]
