"""Media from bytes, files, URLs and images: their bytes show the type, and local places stay unread."""

import base64
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lanebus import MediaRef
from lanebus.bus.errors import DecodeError, InvalidContent, MediaRefused, MediaTooLarge
from lanebus.bus.messages import (
    AudioBlock,
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    ToolResultMessage,
    UserMessage,
    is_what_it_claims,
    require_size,
    sanitize_filename,
    sniff,
)
from lanebus.bus.messages.content import NAME_LIMIT_BYTES, Picture, extension_of, text_type_of
from lanebus.media import media_from_file
from lanebus.messages import read_message

PNG = b"\x89PNG\r\n\x1a\n1234"


# --- the first bytes ------------------------------------------------------------------------------------------------


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
        (b"RIFF\x10\0\0\0what", None),
        (b"ID3\x03", "audio/mpeg"),
        (b"\xff\xfb\x90\0", "audio/mpeg"),
        (b"\xff\xf3\x90\0", "audio/mpeg"),
        (b"\xff\xf2\x90\0", "audio/mpeg"),
        (b"OggS", "audio/ogg"),
        (b"fLaC", "audio/flac"),
        (b"%PDF-1.7", "application/pdf"),
        (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "image/bmp"),
        (b"BMW sold more cars than in the year before", None),
        (b"", None),
        (b"plain text", None),
        (b"<svg onload=alert(1)>", None),
    ],
)
def test_the_first_bytes_show_a_type_only_if_no_text_could_begin_with_them(head: bytes, mime_type: str | None) -> None:
    assert sniff(head) == mime_type


@pytest.mark.parametrize(
    ("data", "mime_type", "fits"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg", True),
        (b"\x89PNG\r\n\x1a\n", "image/jpeg", False),
        (b"\x89PNG\r\n\x1a\n", "IMAGE/PNG; charset=binary", True),
        (b"GIF87a..", "image/gif", True),
        (b"RIFF....WEBPVP8 ", "image/webp", True),
        (b"MM\0*", "image/tiff", True),
        (b"%PDF-1.7", "application/pdf", True),
        (b"<html>", "application/pdf", False),
        (b"\xff\xfa\x90", "audio/mpeg", True),
        (b"RIFF....WAVE", "audio/wav", True),
        (b"RIFF....AVI ", "audio/wav", False),
        (b"anything", "text/plain", True),
        (b"", "text/plain", False),
    ],
)
def test_first_bytes_are_compared_with_the_claimed_type(data: bytes, mime_type: str, *, fits: bool) -> None:
    assert is_what_it_claims(data, mime_type) is fits


def test_every_type_has_an_extension_but_only_text_types_are_found_by_one() -> None:
    assert (extension_of("image/PNG; q=1"), extension_of("application/x-of-nobody")) == (".png", ".bin")
    assert [text_type_of(name) for name in ("table.CSV", "picture.png", "png")] == ["text/csv", None, None]


# --- names and sizes ------------------------------------------------------------------------------------------------


@given(st.text())
def test_a_sanitized_name_is_a_plain_file_name_in_any_folder(name: str) -> None:
    safe = sanitize_filename(name)
    assert safe
    assert len(safe.encode()) <= NAME_LIMIT_BYTES
    assert not {"/", "\\", "\0", "\n", "\u202e"} & {*safe}
    assert not safe.startswith(".")
    assert sanitize_filename(safe) == safe


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("C:\\Users\\me\\cat.png", "cat.png"),
        ("a/b/", "unnamed"),
        ("photo\u202egnp.exe", "photognp.exe"),
        ("  report .pdf", "report .pdf"),
        (".hidden", "hidden"),
        ("name." + "x" * 300, "name." + "x" * 250),
        ("é" * 200 + ".jpeg", "é" * 125 + ".jpeg"),
        ("\ud800", "unnamed"),
    ],
)
def test_sanitizing_keeps_the_harmless_part_of_a_name(name: str, safe: str) -> None:
    assert sanitize_filename(name) == safe


def test_a_size_may_equal_the_limit_but_not_exceed_it() -> None:
    require_size(10, limit_bytes=10)
    with pytest.raises(MediaTooLarge) as caught:
        require_size(11, limit_bytes=10)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (11, 10)


@given(st.binary(min_size=1, max_size=50))
def test_the_decoded_size_is_known_without_decoding(data: bytes) -> None:
    assert MediaRef.from_bytes(data).inline_size_bytes == len(data)


# --- from a file ----------------------------------------------------------------------------------------------------


async def test_a_file_becomes_inline_media_with_the_type_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "cat.txt"
    path.write_bytes(PNG)
    media = MediaRef.from_file(path, mime_type="text/plain")
    assert media.decoded() == PNG
    assert (media.mime_type, media.filename, media.size_bytes) == ("image/png", "cat.txt", len(PNG))
    assert MediaRef.from_file(str(path)) == await media_from_file(path) == media
    with pytest.raises(FileNotFoundError):
        await media_from_file(tmp_path / "dog.png")


def test_the_name_of_a_file_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.png")
    path.write_bytes(PNG)
    assert MediaRef.from_file(path).filename == "caf\ufffd.png"
    path.write_bytes(b"")
    with pytest.raises(MediaRefused, match="caf\ufffd"):
        MediaRef.from_file(path)


@pytest.mark.parametrize(
    ("name", "claimed", "found"),
    [
        ("notes.md", None, "text/markdown"),
        ("data.json", None, "application/json"),
        ("cat.png", None, "application/octet-stream"),
        ("cat", "text/html", "text/html"),
        ("cat", "application/x-own", "application/x-own"),
    ],
)
def test_a_type_comes_from_the_claim_or_the_file_name_if_the_bytes_show_none(
    tmp_path: Path, name: str, claimed: str | None, found: str
) -> None:
    (tmp_path / name).write_text("words")
    assert MediaRef.from_file(tmp_path / name, mime_type=claimed).mime_type == found


def test_a_claimed_type_that_the_bytes_do_not_match_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_text("<svg onload=alert(1)>")
    with pytest.raises(MediaRefused) as caught:
        MediaRef.from_file(tmp_path / "cat.png", mime_type="image/png")
    assert caught.value.name == "cat.png"


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(PNG)
    assert MediaRef.from_file(path, limit_bytes=len(PNG)).size_bytes == len(PNG)
    with pytest.raises(MediaTooLarge):
        MediaRef.from_file(path, limit_bytes=len(PNG) - 1)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(MediaTooLarge) as caught:
        MediaRef.from_file(path)
    assert caught.value.size_bytes == 1 << 40


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
def test_a_path_to_something_else_than_a_regular_file_with_content_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "empty"):
        with pytest.raises((MediaRefused, IsADirectoryError)):
            MediaRef.from_file(path)


def test_links_and_dots_do_not_lead_out_of_the_allowed_folder(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (tmp_path / "secret").write_text("secret")
    (allowed / "link").symlink_to(tmp_path / "secret")
    (allowed / "own").write_text("own")
    for path in (allowed / "link", allowed / ".." / "secret", tmp_path / "secret"):
        with pytest.raises(MediaRefused):
            MediaRef.from_file(path, within=allowed)
    assert MediaRef.from_file(allowed / "own", within=allowed).decoded() == b"own"


# --- from a text or an image ----------------------------------------------------------------------------------------


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


def test_empty_media_are_refused() -> None:
    calls: list[Callable[[], object]] = [
        lambda: MediaRef.from_bytes(b""),
        lambda: UserMessage.with_images("look", [b""]),
    ]
    for call in calls:
        with pytest.raises(DecodeError, match="no bytes") as caught:
            call()
        assert caught.value.path == "data"


# --- references -----------------------------------------------------------------------------------------------------

LOCAL = [
    *("/etc/passwd", "./a.png", "../a.png", "~/a.png", "~root/a.png", "a.png", "C:\\a.png", "C:/a.png", "\\\\host\\a"),
    *("file:///etc/passwd", "file:/etc/passwd", "FILE:///etc/passwd", "file:a", " file:///etc/passwd", "\tfile:///x"),
    *(
        "%66ile:///etc/passwd",
        "file%3A///etc/passwd",
        "%2Fetc%2Fpasswd",
        "fi\nle:///etc/passwd",
        "\0file:///etc/passwd",
    ),
    *("http:/etc/passwd", "https:///etc/passwd", "https:a.png", "http:\\\\host\\a", "https://good\\@evil/a", "s3:/a"),
    *("javascript:alert(1)", "java\tscript:alert(1)", "data:text/html,<script>", "data:image/png;base64,QUJD"),
    *("vbscript:x", "blob:https://a/b", "jar:file:///x!/", "view-source:https://a", "ftp://host/a", "about:blank", ""),
    *("https://host/a\r\nX: y", "https://host/a ", "\u00a0https://host/a", "https://[::1", "//host/a", "?", "#a"),
]


@pytest.mark.parametrize("url", LOCAL)
def test_paths_and_malformed_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidContent):
        MediaRef(kind="url", url=url)
    if url != "data:image/png;base64,QUJD":  # which is media, and no reference
        with pytest.raises(InvalidContent):
            UserMessage.with_images("look", [url])
    block = {"type": "image", "media": {"kind": "url", "url": url}}
    with pytest.raises(DecodeError) as caught:
        read_message(json.dumps({"role": "user", "content": [{"type": "text", "text": "a"}, block]}))
    assert caught.value.path.startswith("content.1.media")


@given(st.text())
def test_every_accepted_url_has_a_host_and_an_allowed_scheme(text: str) -> None:
    try:
        media = MediaRef(kind="url", url=text)
    except InvalidContent:
        return
    assert (media.url or "").lower().startswith(("http://", "https://", "gs://", "s3://", "agentflow://"))


ACCEPTED = "https://host/a b.png|http://user@host:8080/a?b=c#d|gs://bucket/key|s3://bucket/key|agentflow://media/ab12"


@pytest.mark.parametrize("url", ACCEPTED.split("|"))
def test_a_url_with_a_host_is_kept_unchanged(url: str) -> None:
    assert MediaRef.from_url(url).url == url


@pytest.mark.parametrize(
    "data",
    ["@@", "QUJ", "QUJD\n", "file:/etc/passwd", "file:///etc/passwd", "/etc/passwd", "QUJD=", "QUJDQ===", "====", "é"],
)
def test_invalid_base64_is_refused_with_its_path(data: str) -> None:
    message = {"role": "user", "content": [{"type": "image", "media": {"kind": "data", "data": data}}]}
    with pytest.raises(DecodeError) as caught:
        read_message(json.dumps(message))
    assert caught.value.path == "content.0.media.data"


@pytest.mark.parametrize("kind", ["url", "file_id", "data", "sha256"])
def test_a_reference_without_the_field_of_its_kind_is_refused(kind: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_message(json.dumps({"role": "user", "content": [{"type": "audio", "media": {"kind": kind}}]}))
    assert caught.value.path.startswith("content.0.media")
    assert repr(kind) in caught.value.reason


def test_an_address_is_a_digest_or_an_agentflow_url() -> None:
    assert MediaRef(kind="sha256", sha256="0" * 64).address == "0" * 64
    assert MediaRef(kind="url", url="agentflow://media/ab").address == "agentflow://media/ab"
    assert MediaRef(kind="url", url="https://host/a", sha256="0" * 64).address is None
    assert MediaRef.from_bytes(PNG).address is None
    assert base64.b64decode(MediaRef.from_bytes(PNG).data or "") == PNG


def test_messages_of_a_batch_of_results_share_its_id() -> None:
    blocks = [ToolResultBlock(tool_call_id=call, content=(TextBlock(text=call),), terminate=True) for call in "ab"]
    messages = ToolResultMessage.from_results(blocks)
    assert [message.as_block() for message in messages] == blocks
    assert len({message.batch_id for message in messages} - {None}) == 1
    assert [message.batch_id for message in ToolResultMessage.from_results(blocks[:1])] == [None]
    assert ToolResultMessage.from_result(blocks[0]).as_block() == blocks[0]
    assert {message.batch_id for message in ToolResultMessage.from_results(blocks, batch_id="b")} == {"b"}
    given_id = ToolResultMessage.of("c", "72F", is_error=True)
    assert given_id.tool_name is None
    assert given_id.as_block() == ToolResultBlock(tool_call_id="c", content=(TextBlock(text="72F"),), is_error=True)
