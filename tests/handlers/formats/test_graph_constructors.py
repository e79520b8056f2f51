"""The graph framework's constructors make messages, or say what is wrong with the arguments."""

from typing import get_args

import pytest

from lanebus.bus.errors import InvalidContent, MessageError
from lanebus.bus.messages import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    MediaRef,
    TextBlock,
    ToolResultBlock,
    UserMessage,
    VideoBlock,
)
from lanebus.handlers.formats.graph.messages import (
    SpokenRole,
    attach_media,
    image_message,
    multimodal_message,
    text_message,
    tool_message,
)

__all__ = ()

MEDIA = MediaRef(kind="url", url="https://example.com/a")


@pytest.mark.parametrize("role", get_args(SpokenRole))
def test_a_text_message_can_have_each_role(role: SpokenRole) -> None:
    message = text_message("hello", role)
    assert message.model_dump()["role"] == role
    assert message.content == (TextBlock(text="hello"),)
    assert message.timestamp is not None


def test_an_id_is_generated_if_none_is_passed() -> None:
    assert text_message("hello", id="mine").id == "mine"
    first, second = text_message("hello").id, text_message("hello").id
    assert first
    assert first != second


def test_text_alone_is_not_a_tool_result() -> None:
    with pytest.raises(InvalidContent, match="Unsupported role: tool"):
        text_message("hello", "tool")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_texts_and_blocks_keep_their_order() -> None:
    image = ImageBlock(media=MEDIA)
    message = multimodal_message(["before", image, TextBlock(text="behind")], "assistant")
    assert message.content == (TextBlock(text="before"), image, TextBlock(text="behind"))


@pytest.mark.parametrize(
    ("as_type", "kind"),
    [("image", ImageBlock), ("audio", AudioBlock), ("video", VideoBlock), ("document", DocumentBlock)],
)
def test_attached_media_are_added_to_the_end_of_a_new_message(as_type: str, kind: type[ImageBlock]) -> None:
    message = UserMessage.text("look")
    more = attach_media(message, MEDIA, as_type)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert more.content == (*message.content, kind(media=MEDIA))
    assert message.content == (TextBlock(text="look"),)


def test_media_of_another_type_are_refused_as_a_wrong_value() -> None:
    with pytest.raises(InvalidContent, match="Unsupported media type: hologram") as caught:
        attach_media(UserMessage.text("x"), MEDIA, "hologram")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert isinstance(caught.value, MessageError)
    assert isinstance(caught.value, ValueError)


def test_an_image_comes_from_a_url_or_from_base64() -> None:
    by_url = image_message("https://example.com/a.png", text="look", mime_type="image/png")
    assert by_url.content == (
        TextBlock(text="look"),
        ImageBlock(media=MediaRef(kind="url", url="https://example.com/a.png", mime_type="image/png")),
    )
    inline = ImageBlock(media=MediaRef(kind="data", data="AAAA"))
    assert image_message(image_base64="AAAA", role="assistant").content == (inline,)


@pytest.mark.parametrize(
    ("url", "base64"),
    [
        (None, None),
        ("https://a.b", "AAAA"),
        ("/etc/passwd", None),
        ("file:///etc/passwd", None),
        (None, "!"),
        (None, ""),
    ],
)
def test_an_image_without_a_source_or_from_a_local_path_is_refused(url: str | None, base64: str | None) -> None:
    with pytest.raises(InvalidContent):
        image_message(url, base64)


def test_each_result_of_a_batch_is_a_message() -> None:
    blocks = [ToolResultBlock(tool_call_id=call, structured={"of": call}, metadata={"own": call}) for call in "ab"]
    first, second = tool_message(blocks, id="t", metadata={"k": 1})
    assert (first.id, first.tool_call_id, first.structured, first.metadata) == (
        "t",
        "a",
        {"of": "a"},
        {"own": "a", "k": 1},
    )
    assert (second.id, second.tool_call_id, second.metadata) == ("t#2", "b", {"own": "b"})
    assert first.batch_id == second.batch_id == "t"


def test_a_result_alone_is_no_batch() -> None:
    (message,) = tool_message([ToolResultBlock(tool_call_id="a")])
    assert message.id
    assert message.batch_id is None
    assert message.metadata is None


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidContent):
        tool_message([])
