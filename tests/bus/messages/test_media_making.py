"""Media from bytes, base64, URLs and images, but never from a local path."""

import io

import pytest
from PIL import Image

from lanebus.bus.errors import DecodeError, InvalidContent
from lanebus.bus.messages import (
    AudioBlock,
    ImageBlock,
    MediaRef,
    TextBlock,
    ToolResultBlock,
    ToolResultMessage,
    UserMessage,
    sniff,
)
from lanebus.bus.messages.media import Picture

PNG = b"\x89PNG\r\n\x1a\n1234"


@pytest.mark.parametrize(
    ("head", "mime_type"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (PNG, "image/png"),
        (b"\x89PNG and no more", None),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"GIFs are fun", None),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"ID3\x03", "audio/mpeg"),
        (b"\xff\xfb\x90\0", "audio/mpeg"),
        (b"\xff\xf3\x90\0", "audio/mpeg"),
        (b"\xff\xf2\x90\0", "audio/mpeg"),
        (b"OggS", "audio/ogg"),
        (b"fLaC", "audio/flac"),
        (b"%PDF-1.7", "application/pdf"),
        (b"", None),
        (b"plain text", None),
        (b"<svg onload=alert(1)>", None),
    ],
)
def test_the_first_bytes_show_the_type(head: bytes, mime_type: str | None) -> None:
    assert sniff(head) == mime_type


def test_empty_media_are_refused() -> None:
    with pytest.raises(DecodeError, match="no bytes"):
        MediaRef.from_bytes(b"")
    with pytest.raises(DecodeError):
        UserMessage.with_images("look", [b""])


@pytest.mark.parametrize(("format_", "mime_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("GIF", "image/gif")])
def test_a_pillow_image_is_encoded_in_its_own_format(format_: str, mime_type: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (3, 2), "red").save(file, format=format_)
    picture = Image.open(file)
    assert isinstance(picture, Picture)
    (_, block) = UserMessage.with_images("look", [picture]).content
    assert isinstance(block, ImageBlock)
    assert block.media.mime_type == mime_type
    again = Image.open(io.BytesIO(block.media.decoded()))
    assert (again.format, again.size) == (format_, (3, 2))


def test_a_pillow_image_without_a_format_is_encoded_as_png() -> None:
    assert MediaRef.of(Image.new("RGBA", (1, 1))).mime_type == "image/png"


def test_base64_is_decoded_if_its_bytes_show_a_type() -> None:
    assert MediaRef.of("iVBORw0KGgo=") == MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n")
    (_, block) = UserMessage.with_audio("listen", ["T2dnUwAC"]).content
    assert isinstance(block, AudioBlock)
    assert block.media.mime_type == "audio/ogg"


@pytest.mark.parametrize(
    "text", ["/etc/passwd", "/etc/pas", "abcd", "", "~/a.png", "a.png", "file:/a.png", "javascript:alert(1)", "ünï"]
)
def test_a_path_is_never_read_as_media(text: str) -> None:
    with pytest.raises(InvalidContent):
        MediaRef.of(text)
    with pytest.raises(InvalidContent):
        UserMessage.with_audio("listen", [text])


def test_messages_of_a_batch_of_results_share_its_id() -> None:
    blocks = [ToolResultBlock(tool_call_id=call, content=(TextBlock(text=call),), terminate=True) for call in "ab"]
    messages = ToolResultMessage.from_results(blocks)
    assert [message.as_block() for message in messages] == blocks
    assert len({message.batch_id for message in messages} - {None}) == 1
    assert [message.batch_id for message in ToolResultMessage.from_results(blocks[:1])] == [None]
    assert ToolResultMessage.from_result(blocks[0]).as_block() == blocks[0]
    assert {message.batch_id for message in ToolResultMessage.from_results(blocks, batch_id="b")} == {"b"}


def test_a_result_can_be_made_from_the_id_of_its_call() -> None:
    message = ToolResultMessage.of("c", "72F", is_error=True)
    assert (message.tool_call_id, message.tool_name, message.text_content(), message.is_error) == (
        "c",
        None,
        "72F",
        True,
    )
