"""Bodies of requests: messages with blocks, commands, and the path of what is wrong in them."""

import base64

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import AudioBlock, DocumentBlock, ImageBlock, MediaRef, TextBlock
from lanebus.handlers.protocols import ContentRules
from lanebus.handlers.serve.api.bodies import read_command, read_posted_message, with_media
from lanebus.handlers.serve.errors import UploadMissing

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(100)
DIGEST = "0" * 64


def inline(data: bytes, **more: JsonValue) -> dict[str, JsonValue]:
    return {"kind": "data", "data": base64.b64encode(data).decode(), **more}


async def no_upload(digest: str) -> MediaRef:
    raise UploadMissing(digest)


async def uploaded_audio(digest: str) -> MediaRef:
    return MediaRef(kind="sha256", sha256=digest, mime_type="audio/mpeg", size_bytes=3)


def block(**fields: JsonValue) -> dict[str, JsonValue]:
    return fields


async def test_texts_inline_media_and_uploads_become_blocks_in_their_order() -> None:
    posted = read_posted_message(
        {
            "content": [
                block(type="text", text="look"),
                block(type="image", media=inline(PICTURE, mimeType="image/gif", filename="a/b.png")),
                block(type="document", media=inline(b"a,b", mimeType="text/CSV")),
                block(type="audio", media=block(kind="sha256", sha256=DIGEST)),
            ],
            "key": "k",
        }
    )
    text, image, document, audio = await with_media(posted.content, uploaded_audio)
    assert text == TextBlock(text="look")
    assert isinstance(image, ImageBlock)
    assert (image.media.mime_type, image.media.filename) == ("image/png", "b.png")
    assert isinstance(document, DocumentBlock)
    assert (document.media.mime_type, document.media.decoded()) == ("text/csv", b"a,b")
    assert audio == AudioBlock(media=await uploaded_audio(DIGEST))


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ("hi", "content"),
        ([], "content"),
        ([block(type="text", text="x")] * 4, "content"),
        (["hi"], "content.0"),
        ([block(text="x")], "content.0.type"),
        ([block(type="toolCall", id="c")], "content.0.type"),
        ([block(type=["text"], text="x")], "content.0.type"),
        ([block(type="text", text=" ")], "content.0.text"),
        ([block(type="text", text=1)], "content.0.text"),
        ([block(type="text", text="x", signature="s")], "content.0.signature"),
        ([block(type="text", text="x"), block(type="image")], "content.1.media"),
        ([block(type="image", media=block(kind="url", url="https://example.com/a.png"))], "content.0.media.kind"),
        ([block(type="image", media=block(kind="file_id", fileId="f"))], "content.0.media.kind"),
        ([block(type="image", media=block(kind="sha256"))], "content.0.media.sha256"),
        ([block(type="image", media=block(kind="sha256", sha256=DIGEST.replace("0", "A")))], "content.0.media.sha256"),
        (
            [block(type="image", media=block(kind="sha256", sha256=DIGEST, mimeType="image/png"))],
            "content.0.media.mimeType",
        ),
        ([block(type="image", media=block(kind="data", data="no base64"))], "content.0.media.data"),
        ([block(type="image", media=block(kind="data", data=""))], "content.0.media"),
        ([block(type="image", media=inline(PICTURE, mimeType="image/png; a=b"))], "content.0.media.mimeType"),
        ([block(type="image", media=inline(PICTURE, filename=""))], "content.0.media.filename"),
        ([block(type="image", media=inline(PICTURE, url="x"))], "content.0.media.url"),
        ([block(type="image", media=inline(PICTURE)), block(type="document", media=inline(PICTURE))], "content"),
    ],
)
def test_the_path_of_a_fault_is_named(content: JsonValue, path: str) -> None:
    rules = ContentRules(blocks=3, inline_bytes=2 * len(PICTURE) - 1)
    with pytest.raises(DecodeError) as caught:
        read_posted_message({"content": content}, rules)
    assert caught.value.path == path


def test_a_message_has_either_a_text_or_blocks() -> None:
    with pytest.raises(DecodeError, match="either a text or blocks"):
        read_posted_message({"text": "x", "content": [block(type="text", text="x")]})


async def test_media_that_are_no_upload_or_of_another_type_are_refused() -> None:
    for kind, store, path in (("image", no_upload, "media.sha256"), ("image", uploaded_audio, "type")):
        posted = read_posted_message({"content": [block(type=kind, media=block(kind="sha256", sha256=DIGEST))]})
        with pytest.raises(DecodeError) as caught:
            await with_media(posted.content, store)
        assert caught.value.path == f"content.0.{path}"


MANY: dict[str, JsonValue] = {f"k{number}": number for number in range(101)}


@pytest.mark.parametrize("body", [{"command": "pause", **MANY}, {"command": "approve", "turnId": MANY}])
def test_a_command_of_very_many_fields_is_refused_before_each_is_looked_at(body: dict[str, JsonValue]) -> None:
    with pytest.raises(DecodeError, match="more than 100 fields"):
        read_command(body, "s1", "page")
