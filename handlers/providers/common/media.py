"""Media in requests: what a reference says about itself. Nothing is opened or fetched."""

import base64
from urllib.parse import urlsplit

from lanebus.bus.messages.media import MediaRef, sniff

__all__ = ("inline_type", "is_web", "unreachable")


def inline_type(media: MediaRef) -> str | None:
    """Return the media type that the first bytes show, else the declared one. APIs refuse a wrong declared type."""
    return sniff(base64.b64decode((media.data or "")[:1024])) or media.mime_type


def is_web(url: str | None) -> bool:
    """Return whether a provider's server can be expected to fetch the URL."""
    return url is not None and urlsplit(url).scheme.lower() in {"http", "https"}


def unreachable(media: MediaRef) -> str:
    """Return why media cannot be sent that is neither inline, nor on the web, nor stored by the provider."""
    return "its content is in the media store" if media.kind == "sha256" else "its URL is not of the web"
