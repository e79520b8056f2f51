"""Messages of clients: each protocol refuses the same addresses, media types and names."""

from base64 import b64encode
from collections.abc import Callable

import pytest
from acp.schema import BlobResourceContents, EmbeddedResourceContentBlock, ImageContentBlock
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.protocols import (
    DEFAULT_CONTENT_RULES,
    ContentRules,
    MediaAddresses,
    read_chat_request,
    read_run_input,
)
from lanebus.handlers.protocols.acp.editor_session import prompt_message
from lanebus.handlers.protocols.client_content import InvalidMediaUrl
from lanebus.handlers.serve.api.bodies import PostedMedia, read_posted_message
from lanebus.messages import DocumentBlock, ImageBlock, MediaRef, UserMessage
from tests.support.page.serving import client_of, serving, temporary_bus

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
GEMINI_FILE = "https://generativelanguage.googleapis.com/v1beta/files/of-another-tenant"

Fields = dict[str, JsonValue]
Reader = Callable[[Fields, ContentRules], tuple[object, ...]]
"""reads a file of a message, given as `{"url" or "data", "type", "name", "kind"}`"""


def posted(file: Fields, rules: ContentRules) -> tuple[object, ...]:
    kind = "url" if "url" in file else "data"
    named = {name: file[key] for name, key in (("mimeType", "type"), ("filename", "name")) if key in file}
    media: JsonValue = {"kind": kind, kind: file[kind], **named}
    return read_posted_message({"content": [{"type": file.get("kind", "document"), "media": media}]}, rules).content


def chat(file: Fields, rules: ContentRules) -> tuple[object, ...]:
    url = file.get("url", f"data:;base64,{file.get('data')}")
    named = {"filename": file["name"]} if "name" in file else {}
    part: JsonValue = {"type": "file", "url": url, "mediaType": file.get("type", "text/plain"), **named}
    message: JsonValue = {"id": "m1", "role": "user", "parts": [part]}
    asked = read_chat_request({"id": "c1", "messages": [message]}, rules).message
    assert asked is not None
    return asked.content


def agui(file: Fields, rules: ContentRules) -> tuple[object, ...]:
    kind = "url" if "url" in file else "data"
    source: JsonValue = {"type": kind, "value": file[kind], "mimeType": file.get("type")}
    content: JsonValue = [{"type": file.get("kind", "document"), "source": source}]
    message: JsonValue = {"id": "m1", "role": "user", "content": content}
    (prompt,) = read_run_input({"threadId": "t", "runId": "r", "messages": [message]}, rules).prompts
    return prompt.message.content


def acp(file: Fields, rules: ContentRules) -> tuple[object, ...]:
    del rules  # a link is a text, and no bytes are refused
    uri = f"file:///{file.get('name', 'x')}"
    blob = BlobResourceContents(blob=str(file["data"]), mime_type=str(file.get("type", "text/plain")), uri=uri)
    return prompt_message([EmbeddedResourceContentBlock(type="resource", resource=blob)], id="m1", metadata={}).content


READERS: dict[str, Reader] = {"messages": posted, "AI SDK": chat, "AG-UI": agui, "ACP": acp}
WITH_ADDRESSES = [pytest.param(READERS[name], id=name) for name in ("messages", "AI SDK", "AG-UI")]
ALL = [pytest.param(reader, id=name) for name, reader in READERS.items()]


def media_of(block: object) -> MediaRef:
    assert isinstance(block, PostedMedia | ImageBlock | DocumentBlock)
    return block.media


@pytest.mark.parametrize("read", WITH_ADDRESSES)
def test_each_protocol_accepts_only_an_allowed_address(read: Reader) -> None:
    for url in (
        *("https://cdn.example/a.png", "http://10.0.0.1/a", "gs://bucket/a", "s3://bucket/a", GEMINI_FILE),
        *("file:///etc/passwd", "/etc/passwd", "javascript:alert(1)", "agentflow://a/b", "data:text/plain,hi", ""),
    ):
        for rules in (DEFAULT_CONTENT_RULES, ContentRules(MediaAddresses(["https://other.example"]))):
            with pytest.raises(DecodeError):
                read({"url": url, "type": "image/png"}, rules)
    rules = ContentRules(MediaAddresses(["https://cdn.example/public"]))
    allowed = "https://cdn.example/public/a.png?size=2"
    (block,) = read({"url": allowed, "type": "image/png", "kind": "image"}, rules)
    media = media_of(block)
    assert (media.kind, media.url, media.mime_type) == ("url", allowed, "image/png")


@pytest.mark.parametrize("read", ALL)
def test_no_protocol_accepts_a_media_type_that_is_none_and_the_first_bytes_decide(read: Reader) -> None:
    for told in ("image/png\r\nX-Evil: 1", "a b/c", "x", "text/\n", "é/png"):
        with pytest.raises(DecodeError):
            read({"data": b64encode(b"a,b").decode(), "type": told}, DEFAULT_CONTENT_RULES)
    file: Fields = {"data": b64encode(PNG).decode(), "type": "application/pdf", "kind": "image"}
    (block,) = read(file, DEFAULT_CONTENT_RULES)
    assert media_of(block).mime_type == "image/png"
    if read is agui:  # the types of posted messages are compared when uploads are known
        with pytest.raises(DecodeError, match="is image, and the media are of text/csv"):
            read({"data": b64encode(b"a,b").decode(), "type": "text/csv", "kind": "image"}, DEFAULT_CONTENT_RULES)


@pytest.mark.parametrize("read", [posted, chat, acp])
def test_a_file_name_is_made_safe_in_each_protocol(read: Reader) -> None:
    file: Fields = {"data": b64encode(b"a,b").decode(), "type": "text/csv", "name": "..\\a\r\nX-Evil: 1.csv"}
    (block,) = read(file, DEFAULT_CONTENT_RULES)
    assert media_of(block).filename == "aX-Evil: 1.csv"


@pytest.mark.parametrize("read", WITH_ADDRESSES)
def test_each_protocol_has_the_same_limits(read: Reader) -> None:
    file: Fields = {"data": b64encode(PNG).decode(), "type": "image/png", "kind": "image"}
    for rules in (ContentRules(inline_bytes=len(PNG) - 1), ContentRules(blocks=0)):
        with pytest.raises(DecodeError, match=r"inline media|blocks"):
            read(file, rules)


def test_an_image_of_an_editor_has_a_media_type_without_parameters() -> None:
    image = ImageContentBlock(type="image", data=b64encode(b"x").decode(), mime_type="image/x-own; q=1")
    (block,) = prompt_message([image], id="m1", metadata={}).content
    assert isinstance(block, ImageBlock)
    assert block.media.mime_type == "image/x-own"


ALLOWED = MediaAddresses(
    [
        *("https://cdn.example", "https://files.example/public", "http://dev.example:8080/a/", "gs://bucket/shared"),
        "https://[2001:db8::1]",
    ]
)


BELOW = (
    *("https://cdn.example/a.png", "HTTPS://CDN.Example/a", "https://cdn.example:443/a", "https://cdn.example"),
    *("https://cdn.example/a%2Fb?x=%2F", "https://files.example/public", "https://files.example/public/a/b"),
    *("http://dev.example:8080/a/b", "gs://bucket/shared/a", "https://[2001:db8::1]/a", "https://cdn.example/a@b"),
)
LIKE = (
    *("http://cdn.example/a", "https://cdn.example:444/a", "https://cdn.example:80/a", "https://cdn.example:/a"),
    *("https://cdn.example.evil/a", "https://evil.cdn.example/a", "https://cdn.example./a", "https://cdn.exampl/a"),
    *("https://cdn.example@evil.example/a", "https://a:b@cdn.example/a", "https://cdn.example:443@evil.example/"),
    *("https://evil.example/https://cdn.example/", "https://evil.example?https://cdn.example/", "//cdn.example/a"),
    *("https://cdn.example\\@evil.example/", "https:\\\\cdn.example/a", "https:/cdn.example/a", "cdn.example/a"),
    *("https://cdn.example/a\n", " https://cdn.example/a", "https://cdn.example/a b", "https://cdn.example/\ta"),
    *("https://cdn.exаmple/a", "https://ｃdn.example/a", "https://cdn。example/a", "https://%63dn.example/a"),
    *("https://files.example/", "https://files.example/publicity", "https://files.example/PUBLIC/a"),
    *("https://files.example/public/../private", "https://files.example/public/%2e%2e/private"),
    *("https://files.example/public/%252e%252e/x", "https://files.example/public/..%2fx"),
    *("https://files.example/public/%5c..%5cx", "https://files.example/./public/a", "https://files.example//public"),
    *("https://files.example/%70ublic/a", "https://files.example/public%2Fa", "https://files.example/public;/../a"),
    *("https://files.example/private?/public/", "https://files.example/public/..", "https://files.example/public/./a"),
    *("http://dev.example/a/b", "gs://bucket/other", "gs://other/shared/a", "s3://bucket/shared/a", "https://", ""),
    *(
        "https://cdn.example/a#b",
        "data:image/png;base64,AAAA",
        "https://cdn.example/%zz",
        "https://cdn.example/a/%2E%2e/b",
    ),
)
PATTERNS = (
    *("*", "https://*.example", "https://cdn.example/*", "cdn.example", "https://", "https://a@cdn.example", ""),
    *("ftp://cdn.example", "https://cdn.example/a?b", "https://cdn.example/../a", "https://münchen.example"),
    *("file:///srv", "data:", "agentflow://a", "https://cdn.example/a b", "https://cdn.example\n"),
)


def test_only_an_address_below_an_allowed_one_is_allowed_and_none_that_looks_like_it() -> None:
    assert [url for url in BELOW if not ALLOWED.allows(url)] == []
    assert [url for url in LIKE if ALLOWED.allows(url)] == []


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_that_would_allow_something_else_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidMediaUrl):
        MediaAddresses([pattern])


async def test_the_server_allows_only_the_addresses_that_it_was_told_to_allow() -> None:
    async with (
        temporary_bus() as bus,
        serving(bus, allowed_media_urls=["https://cdn.example/public"]) as served,
        client_of(served) as client,
    ):
        for url, status in (
            ("https://cdn.example/public/a.png", 201),
            ("https://cdn.example/private/a.png", 400),
            (GEMINI_FILE, 400),
        ):
            media: JsonValue = {"kind": "url", "url": url, "mimeType": "image/png"}
            body: JsonValue = {"content": [{"type": "image", "media": media}]}
            assert (await client.post("/api/sessions/s1/messages", json=body)).status_code == status
        (message,) = [entry.message async for entry in bus.session("s1").read()]
        assert isinstance(message, UserMessage)
        assert [media_of(block).url for block in message.content] == ["https://cdn.example/public/a.png"]
