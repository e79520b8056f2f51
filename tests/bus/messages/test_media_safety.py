"""Checks of names, sizes and first bytes of foreign media."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus.bus.errors import MediaTooLarge
from lanebus.bus.messages import is_what_it_claims, require_size, sanitize_filename
from lanebus.bus.messages.media import NAME_LIMIT_BYTES, extension_of, text_type_of


@given(st.text())
def test_a_sanitized_name_is_a_plain_file_name_in_any_folder(name: str) -> None:
    safe = sanitize_filename(name)
    assert safe
    assert len(safe.encode()) <= NAME_LIMIT_BYTES
    assert not {"/", "\\", "\0", "\n", "\u202e"} & {*safe}
    assert safe not in {".", ".."}
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


def test_a_size_may_equal_the_limit_but_not_exceed_it() -> None:
    require_size(10, limit_bytes=10)
    with pytest.raises(MediaTooLarge) as caught:
        require_size(11, limit_bytes=10)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (11, 10)


def test_every_type_has_an_extension_but_only_text_types_are_found_by_one() -> None:
    assert extension_of("image/PNG; q=1") == ".png"
    assert extension_of("application/x-of-nobody") == ".bin"
    assert text_type_of("table.CSV") == "text/csv"
    assert text_type_of("picture.png") is None
    assert text_type_of("png") is None
