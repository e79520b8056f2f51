"""Results of MCP tools converted to messages."""

import base64
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lanebus import ImageBlock, TextBlock, ToolCallBlock, ToolResultMessage
from lanebus.bus.messages import AnnotationRef, DataBlock
from lanebus.handlers.integrations.mcp.definition import progress_text, result_message
from lanebus.messages import AudioBlock, Block, DocumentBlock

if TYPE_CHECKING:
    from mcp import types

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the package mcp (pip install 'lanebus[mcp]')")
CALL = ToolCallBlock(id="c1", name="x_paint")
PNG = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")
).decode()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def result(*content: "types.ContentBlock", structured: JsonValue = None) -> ToolResultMessage:
    from mcp import types

    return result_message(CALL, types.CallToolResult(content=list(content), structured_content=structured))


def blocks(*content: "types.ContentBlock") -> tuple[Block, ...]:
    return result(*content).content


def resource(data: bytes, uri: str, mime_type: str | None = None) -> "types.EmbeddedResource":
    from mcp import types

    contents = types.BlobResourceContents(uri=uri, blob=encoded(data), mime_type=mime_type)
    return types.EmbeddedResource(resource=contents)


def test_a_result_answers_its_call_and_an_error_stays_an_error() -> None:
    from mcp import types

    message = result(types.TextContent(text="done"))
    assert (message.tool_call_id, message.tool_name, message.is_error) == ("c1", "x_paint", False)
    assert message.content == (TextBlock(text="done"),)
    assert message.metadata is None
    from mcp import types

    failed = types.CallToolResult(content=[types.TextContent(text="no")], is_error=True)
    assert result_message(CALL, failed).is_error


def test_media_have_the_type_that_their_bytes_show_also_in_lines_of_base64_or_of_an_unknown_type() -> None:
    from mcp import types

    (image,) = blocks(types.ImageContent(data=PNG, mime_type="image/jpeg"))
    assert isinstance(image, ImageBlock)
    assert image.media.mime_type == "image/png"
    (sound,) = blocks(types.AudioContent(data=encoded(b"RIFF\x24\0\0\0WAVEfmt "), mime_type="audio/x-wav"))
    assert isinstance(sound, AudioBlock)
    assert sound.media.mime_type == "audio/wav"
    (document,) = blocks(types.ImageContent(data=encoded(b"%PDF-1.7 x"), mime_type="image/png"))
    assert isinstance(document, DocumentBlock)
    from mcp import types

    (image,) = blocks(types.ImageContent(data=f"{PNG[:40]}\n{PNG[40:]}\n", mime_type="image/png"))
    assert isinstance(image, ImageBlock)
    _, document = blocks(resource(b"\0\1\2", "memo://1/x.bin"))
    assert isinstance(document, DocumentBlock)
    assert document.media.mime_type == "application/octet-stream"


def test_bytes_of_another_type_are_described_and_kept_where_no_model_sees_them() -> None:
    from mcp import types

    note, kept = blocks(types.ImageContent(data=encoded(b"no media at all"), mime_type="image/png"))
    assert note == TextBlock(text="[image of type image/png, not shown: its 15 bytes are of no such type]")
    assert isinstance(kept, DataBlock)
    assert kept.media is not None
    assert kept.media.decoded() == b"no media at all"


@pytest.mark.parametrize(("data", "words"), [("?", "it is not base64"), ("é", "it is not base64"), ("", "it is empty")])
def test_unreadable_media_are_described(data: str, words: str) -> None:
    from mcp import types

    assert blocks(types.AudioContent(data=data, mime_type="audio/wav")) == (
        TextBlock(text=f"[audio of type audio/wav, left out: {words}]"),
    )


def test_a_link_stays_a_link_and_only_one_to_a_host_can_be_followed() -> None:
    from mcp import types

    page, local, script = blocks(
        types.ResourceLink(name="page", title="The page", uri="https://example.com/a", description="All of it."),
        types.ResourceLink(name="passwords", uri="file:///etc/passwd", mime_type="text/plain", size=7),
        types.ResourceLink(name="x", uri="javascript:alert(1)"),
    )
    assert page == TextBlock(
        text="[resource The page at https://example.com/a: All of it.]",
        annotations=(AnnotationRef(url="https://example.com/a", title="The page"),),
    )
    assert local == TextBlock(text="[resource passwords at file:///etc/passwd (text/plain, 7 bytes)]")
    assert script == TextBlock(text="[resource x at javascript:alert(1)]")


def test_an_embedded_resource_says_where_it_is_from() -> None:
    from mcp import types

    text = types.TextResourceContents(uri="memo://1", mime_type="text/plain", text="remember")
    assert blocks(types.EmbeddedResource(resource=text)) == (
        TextBlock(text="[resource memo://1 (text/plain)]\nremember"),
    )
    place, document = blocks(resource(b"%PDF-1.7 x", "file:///etc/..%2Fpa%20per.pdf"))
    assert place == TextBlock(text="[resource file:///etc/..%2Fpa%20per.pdf]")
    assert isinstance(document, DocumentBlock)
    assert document.media.filename == "pa per.pdf"


@pytest.mark.parametrize("uri", ["no uri", "http://[", "", "memo:"])
def test_a_resource_may_have_any_name(uri: str) -> None:
    _, document = blocks(resource(b"\x89PNG\r\n\x1a\n....", uri))
    assert isinstance(document, ImageBlock)
    assert document.media.filename is None


def test_data_for_programs_is_kept_off_the_wire_and_shown_if_there_is_no_text() -> None:
    from mcp import types

    given = types.CallToolResult(
        content=[types.TextContent(text="a"), types.TextContent(text="b", annotations=types.Annotations(priority=0.5))],
        _meta={"example.com/took": 3, "io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}},
    )
    assert result_message(CALL, given).metadata == {
        "mcp": {"meta": {"example.com/took": 3}, "blocks": {"1": {"annotations": {"priority": 0.5}}}}
    }
    from mcp import types

    assert result(structured={"n": 1}).structured == {"n": 1}
    assert result(structured={"n": 1}).content == ()  # shown as JSON by every provider's form
    assert result(types.TextContent(text="one"), structured={"n": 1}).content == (TextBlock(text="one"),)
    picture = types.ImageContent(data=PNG, mime_type="image/png")
    assert result(picture, structured={"n": 1}).content[-1] == TextBlock(text='{"n": 1}')


def test_progress_is_formatted_as_text() -> None:
    assert progress_text(3, 7, "reading") == "reading (3 of 7)"
    assert progress_text(0.5, None, None) == "0.5"
    assert progress_text(1, None, "reading") == "reading (1)"
