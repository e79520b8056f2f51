"""What media from outside may be: their place, name and size, and whether their bytes are what they claim. Pure.

Source: seed 003's rules for names and sizes, and its table of first bytes with the sounds of seed 000 added. A file
that is two things at once passes every look at first bytes: serve what is foreign as an attachment, never inline.
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
"""The most that a file may have to become media, unless the caller says otherwise."""

NAME_LIMIT_BYTES = 255
"""Of a file's name, as file systems have it."""

SCHEMES = frozenset({"http", "https", "gs", "s3", "agentflow"})
"""Of URLs under which media may be."""

# Some readers of URLs drop control characters and space around them, and take a backslash for a slash: they would not
# see what we look at.
_UNCLEAR = re.compile(r"[\x00-\x1f\x7f\\]|^\s|\s$")

Signature = tuple[tuple[int, bytes], ...]
"""Bytes that stand at offsets, all of them."""

# The first bytes that a type may have; a type that is not here cannot be told by them.
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

# Types whose bytes are text, so that nothing but a name tells them.
_TEXTS = {
    extension: mime_type
    for mime_type, extension in _EXTENSIONS.items()
    if mime_type.startswith("text/") or mime_type.endswith(("json", "xml"))
}


def check_url(url: str) -> str:
    """The URL, if it names a host of a scheme that is no place of this machine, and says the same to every reader.

    Raises:
        ValueError: it does not.
    """
    parts = urlsplit(url)
    if (scheme := parts.scheme.lower()) not in SCHEMES:
        raise ValueError(f"scheme {scheme!r} is not one of {', '.join(sorted(SCHEMES))}")
    if not parts.netloc:
        raise ValueError("a URL needs a host")  # "http:/etc/passwd" is a path to some readers
    if _UNCLEAR.search(url):
        raise ValueError("a URL holds no control character or backslash, and no space around it")
    return url


def is_what_it_claims(data: bytes, mime_type: str) -> bool:
    """Whether the first bytes fit the type that is claimed for them.

    Nothing at all fits no type; a type that has no first bytes of its own, as text, fits everything else.
    """
    if not data:
        return False
    signatures = _SIGNATURES.get(mime_type.partition(";")[0].strip().lower())
    return signatures is None or any(
        all(data.startswith(expected, offset) for offset, expected in signature) for signature in signatures
    )


def sanitize_filename(name: str) -> str:
    """A name that is one file's in whatever folder it is put: no folders, control or direction characters, never empty.

    It has at most 255 bytes, of which a suffix of usual length is kept.
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
    """See that media are no larger than a limit; as large is allowed.

    Raises:
        MediaTooLarge: they are.
    """
    if size_bytes > limit_bytes:
        raise MediaTooLarge(size_bytes, limit_bytes)


def extension_of(mime_type: str) -> str:
    """The end of a file's name for a type, such as ".png"; ".bin" for one that is not known.

    Source: a table of our own, as the standard library's depends on the machine.
    """
    return _EXTENSIONS.get(mime_type.partition(";")[0].strip().lower(), ".bin")


def text_type_of(name: str) -> str | None:
    """The kind of text that a file's name stands for by its end; None if for none. Bytes tell of everything else."""
    _, dot, suffix = name.rpartition(".")
    return _TEXTS.get(f"{dot}{suffix.lower()}")
