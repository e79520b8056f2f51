"""Read the type and location of media from a reference. Nothing is opened or fetched."""

import base64
from urllib.parse import urlsplit

from lanebus.bus.messages.media import MediaRef, sniff

__all__ = ("inline_type", "is_web", "unreachable")


def inline_type(media: MediaRef) -> str | None:
    """Return the media type that the first bytes show, or else the declared type. APIs refuse a wrong declared type."""
    return sniff(base64.b64decode((media.data or "")[:1024])) or media.mime_type


def is_web(url: str | None) -> bool:
    """Return whether a provider's server can fetch the URL: its scheme is http or https."""
    return url is not None and urlsplit(url).scheme.lower() in {"http", "https"}


def unreachable(media: MediaRef) -> str:
    """Return the reason why `media` cannot be sent: it is in the media store, or its URL is not a web URL."""
    return "its content is in the media store" if media.kind == "sha256" else "its URL is not of the web"
