"""References to media: their validation, and reading a file into one."""

import base64
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import MediaRef
from lanebus.bus.messages import sniff
from lanebus.errors import DecodeError, InvalidContent, MediaRefused, MediaTooLarge
from lanebus.media import media_from_file
from lanebus.messages import read_message

PNG = b"\x89PNG\r\n\x1a\n1234"


# --- from a file --------------------------------------------------------------------------------------------------


def test_a_file_becomes_inline_media_with_the_type_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "cat.txt"
    path.write_bytes(PNG)
    media = MediaRef.from_file(path, mime_type="text/plain")
    assert media.decoded() == PNG
    assert (media.mime_type, media.filename, media.size_bytes) == ("image/png", "cat.txt", len(PNG))
    assert MediaRef.from_file(str(path)) == media.model_copy()


def test_the_name_of_a_file_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.png")
    path.write_bytes(PNG)
    assert MediaRef.from_file(path).filename == "caf\ufffd.png"
    path.write_bytes(b"")
    with pytest.raises(MediaRefused, match="caf\ufffd"):
        MediaRef.from_file(path)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"RIFF\x10\0\0\0WEBP", "image/webp"),
        (b"RIFF\x10\0\0\0WAVE", "audio/wav"),
        (b"RIFF\x10\0\0\0what", None),
        (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "image/bmp"),
        (b"BMW sold more cars than in the year before", None),
    ],
)
def test_first_bytes_show_a_type_only_if_no_text_could_begin_with_them(data: bytes, found: str | None) -> None:
    assert sniff(data) == found


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
def test_a_path_to_something_else_than_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises((MediaRefused, IsADirectoryError)):
            MediaRef.from_file(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(MediaRefused):
        MediaRef.from_file(tmp_path / "empty")


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


async def test_media_from_file_reads_in_a_thread(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    assert await media_from_file(tmp_path / "cat.png") == MediaRef.from_file(tmp_path / "cat.png")
    with pytest.raises(FileNotFoundError):
        await media_from_file(tmp_path / "dog.png")


# --- refused references -------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    "url",
    [
        "https://host/a b.png",
        "http://user@host:8080/a?b=c#d",
        "gs://bucket/key",
        "s3://bucket/key",
        "agentflow://media/ab12",
    ],
)
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


def test_empty_media_are_refused() -> None:
    with pytest.raises(DecodeError) as caught:
        MediaRef.from_bytes(b"")
    assert caught.value.path == "data"


@given(st.binary(min_size=1, max_size=50))
def test_the_decoded_size_is_known_without_decoding(data: bytes) -> None:
    assert MediaRef.from_bytes(data).inline_size_bytes == len(data)


def test_an_address_is_a_digest_or_an_agentflow_url() -> None:
    assert MediaRef(kind="sha256", sha256="0" * 64).address == "0" * 64
    assert MediaRef(kind="url", url="agentflow://media/ab").address == "agentflow://media/ab"
    assert MediaRef(kind="url", url="https://host/a", sha256="0" * 64).address is None
    assert MediaRef.from_bytes(PNG).address is None
    assert base64.b64decode(MediaRef.from_bytes(PNG).data or "") == PNG
