"""Media on its way to a provider: what a reference shows of itself. Nothing is opened and nothing is fetched."""

import base64
from urllib.parse import urlsplit

from lanebus.bus.messages.media import MediaRef, sniff

__all__ = ("inline_type", "is_web", "unreachable")


def inline_type(media: MediaRef) -> str | None:
    """What the first bytes of inline media show: APIs refuse media whose claimed type is another. Else what was
    claimed."""
    return sniff(base64.b64decode((media.data or "")[:1024])) or media.mime_type


def is_web(url: str | None) -> bool:
    """Whether a provider's server may be expected to fetch it."""
    return url is not None and urlsplit(url).scheme.lower() in {"http", "https"}


def unreachable(media: MediaRef) -> str:
    """Why media that is neither inline, nor on the web, nor the provider's own cannot go."""
    return "its content is in the media store" if media.kind == "sha256" else "its URL is not of the web"
