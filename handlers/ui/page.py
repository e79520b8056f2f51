"""The page's files, read once, and the policy they are served under."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

__all__ = ("Asset", "PageFiles", "load_page")

# Own table: what the system's says of .js is up to the machine, and with nosniff a wrong one breaks the page.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_IMPORT_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)


class Asset(NamedTuple):
    content: bytes
    media_type: str


class PageFiles(NamedTuple):
    document: Asset
    assets: Mapping[str, Asset]
    """by their path below /static/; what is not in here is not served, so no path can lead outside"""
    headers: tuple[tuple[str, str], ...]
    """for every answer of the server"""


def load_page() -> PageFiles:
    """The page as it is installed."""
    assets = dict(_walk(files(__package__ or "lanebus.handlers.ui") / "static", ""))
    document = assets["index.html"]
    return PageFiles(document, assets, _headers(document.content))


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for item in folder.iterdir():
        path = prefix + item.name
        if item.is_dir():
            found += _walk(item, path + "/")
        else:
            suffix = path[path.rfind(".") :] if "." in item.name else ""
            found.append((path, Asset(item.read_bytes(), _TYPES.get(suffix, "text/plain; charset=utf-8"))))
    return found


def _headers(document: bytes) -> tuple[tuple[str, str], ...]:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in _IMPORT_MAP.findall(document)
    )
    policy = (
        "default-src 'none'",
        f"script-src 'self' {hashes}",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        # No code of the page turns text into HTML or script; with these no code can.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return (
        ("Content-Security-Policy", "; ".join(policy)),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
    )
