"""Check media from outside: URL, file name, size, and whether the first bytes match the claimed type. Pure.

Source: the second graph format's rules for names and sizes, and its table of first bytes, with the audio types of the
`coding-agent` system added.

A file that is valid as two types at once can pass these checks. So serve foreign media as an attachment, never inline.
"""

import re
import unicodedata
from urllib.parse import urlsplit

from lanebus.bus.errors import MediaTooLarge

__all__ = (
    "FILE_LIMIT_BYTES",
    "check_url",
    "extension_of",
    "is_what_it_claims",
    "require_size",
    "sanitize_filename",
    "text_type_of",
)

FILE_LIMIT_BYTES = 10 * 1_048_576
"""Default for the largest file that may become media."""

NAME_LIMIT_BYTES = 255
"""Maximum number of bytes of a file name. This is the limit of common file systems."""

SCHEMES = frozenset({"http", "https", "gs", "s3", "agentflow"})
"""Allowed schemes of media URLs."""

# Some URL parsers drop control characters and surrounding space, or read a backslash as a slash. Such a parser would
# read another URL than the URL that is checked here.
_UNCLEAR = re.compile(r"[\x00-\x1f\x7f\\]|^\s|\s$")

Signature = tuple[tuple[int, bytes], ...]
"""The first bytes of a file type: offsets in the file, each with the bytes expected there. All must match."""

# The first bytes that a type may have. A type that is missing here cannot be checked by its first bytes.
_SIGNATURES: dict[str, tuple[Signature, ...]] = {
    "image/jpeg": (((0, b"\xff\xd8\xff"),),),
    "image/png": (((0, b"\x89PNG"),),),
    "image/gif": (((0, b"GIF87a"),), ((0, b"GIF89a"),)),
    "image/webp": (((0, b"RIFF"), (8, b"WEBP")),),
    "image/bmp": (((0, b"BM"),),),
    "image/tiff": (((0, b"II*\0"),), ((0, b"MM\0*"),)),
    "application/pdf": (((0, b"%PDF"),),),
    "application/zip": (((0, b"PK\x03\x04"),), ((0, b"PK\x05\x06"),)),
    "audio/mpeg": (((0, b"ID3"),), *(((0, bytes((0xFF, second))),) for second in (0xFB, 0xF3, 0xF2, 0xFA))),
    "audio/ogg": (((0, b"OggS"),),),
    "audio/flac": (((0, b"fLaC"),),),
    "audio/wav": (((0, b"RIFF"), (8, b"WAVE")),),
}

_EXTENSIONS = {
    **{"image/jpeg": ".jpg", "image/png": ".png", "image/gif": ".gif", "image/webp": ".webp", "image/bmp": ".bmp"},
    **{"image/tiff": ".tiff", "image/avif": ".avif", "image/heic": ".heic", "image/svg+xml": ".svg"},
    **{"audio/mpeg": ".mp3", "audio/ogg": ".ogg", "audio/flac": ".flac", "audio/wav": ".wav", "audio/mp4": ".m4a"},
    **{"video/mp4": ".mp4", "video/webm": ".webm", "video/quicktime": ".mov"},
    **{"application/pdf": ".pdf", "application/zip": ".zip", "application/json": ".json", "application/xml": ".xml"},
    **{"text/plain": ".txt", "text/html": ".html", "text/csv": ".csv", "text/markdown": ".md"},
}

# Text types, which only the file name shows.
_TEXTS = {
    extension: mime_type
    for mime_type, extension in _EXTENSIONS.items()
    if mime_type.startswith("text/") or mime_type.endswith(("json", "xml"))
}


def check_url(url: str) -> str:
    """Return the URL if it has an allowed scheme and a host, and no character that URL parsers read differently.

    Such characters are control characters, backslashes and surrounding spaces.

    Raises:
        ValueError: the URL has another scheme, no host, or such a character.
    """
    parts = urlsplit(url)
    if (scheme := parts.scheme.lower()) not in SCHEMES:
        raise ValueError(f"scheme {scheme!r} is not one of {', '.join(sorted(SCHEMES))}")
    if not parts.netloc:
        raise ValueError("a URL needs a host")  # "http:/etc/passwd" is a path to some readers
    if _UNCLEAR.search(url):
        raise ValueError("a URL must not contain control characters or backslashes, nor have space around it")
    return url


def is_what_it_claims(data: bytes, mime_type: str) -> bool:
    """Return whether the first bytes match the claimed media type.

    Empty data match no type. A type without known first bytes, such as text, matches any other data.
    """
    if not data:
        return False
    signatures = _SIGNATURES.get(mime_type.partition(";")[0].strip().lower())
    return signatures is None or any(
        all(data.startswith(expected, offset) for offset, expected in signature) for signature in signatures
    )


def sanitize_filename(name: str) -> str:
    """Return a file name that is safe in any folder.

    The result has no folders, no control characters and no text direction characters, and it is not empty. It has at
    most 255 bytes; if the name is shortened, a suffix of up to 16 bytes is kept.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    plain = "".join(char for char in last if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"})
    plain = plain.strip(". ")
    if not plain:
        return "unnamed"
    stem, dot, suffix = plain.rpartition(".")
    if not stem or len(suffix.encode()) > 16:
        stem, dot, suffix = plain, "", ""
    room = NAME_LIMIT_BYTES - len(f"{dot}{suffix}".encode())
    return f"{stem.encode()[:room].decode(errors='ignore')}{dot}{suffix}"


def require_size(size_bytes: int, *, limit_bytes: int) -> None:
    """Check that media are not larger than a limit.

    Raises:
        MediaTooLarge: `size_bytes` is larger than `limit_bytes`.
    """
    if size_bytes > limit_bytes:
        raise MediaTooLarge(size_bytes, limit_bytes)


def extension_of(mime_type: str) -> str:
    """Return the file name extension for a media type, such as ".png"; ".bin" for unknown types.

    Source: a table of lanebus, because the standard library's table depends on the machine.
    """
    return _EXTENSIONS.get(mime_type.partition(";")[0].strip().lower(), ".bin")


def text_type_of(name: str) -> str | None:
    """Return the text type for a file name's extension; None if it is not the extension of a text type."""
    _, dot, suffix = name.rpartition(".")
    return _TEXTS.get(f"{dot}{suffix.lower()}")
