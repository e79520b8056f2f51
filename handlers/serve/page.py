"""Load the files of the page, and compute their security headers."""

import base64
import gzip
import hashlib
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

# Not `mimetypes`: its type for .js depends on the machine, and with nosniff a wrong type breaks the page.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MAIN = re.compile(rb'<script type="module" src="([^"]*)app/main\.js">')
_IMPORT = re.compile(rb'^(?:import|export)[^"]*"\./([^"]+)"', re.MULTILINE)
_NAMED_BY_CONTENT = re.compile(r"-[0-9A-Z]{8}\.\w+$")
"""names that `.ci/bundle` gives: they end with a hash of the content"""

_IMPORT_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    zipped: bytes
    """the content as gzip, made once when the page is loaded"""
    tag: str
    """its `ETag`, a hash of the content. It is weak, as the content is sent as gzip and as it is"""
    caching: str
    """its `Cache-Control`"""


class PageFiles(NamedTuple):
    """All files of the page, and the headers of every response."""

    document: Asset
    assets: Mapping[str, Asset]
    """files by path below /static/. Only these files are served, so no path can leave the folder."""
    headers: tuple[tuple[str, str], ...]
    """headers of every response, such as the Content-Security-Policy"""


def load_page(base_path: str = "") -> PageFiles:
    """Read the files of the installed page.

    Args:
        base_path: path below which they are served, such as `/lanebus`. The document names its files with this path, so
            that it works at `/lanebus` and at `/lanebus/`. The scripts find the path in their own addresses.
    """
    assets = _assets(page_folder())  # type: ignore[arg-type]  # the protocol does not say that paths are hashable
    text = _preloading(assets["index.html"].content, assets).replace(b'"/static/', f'"{base_path}/static/'.encode())
    document = _asset("index.html", text)
    return PageFiles(document, assets, _headers(document.content))


def page_folder() -> Traversable:
    """Return the folder of the files: the bundle, which only a released wheel has, or else the readable sources."""
    here = files(__package__ or "lanebus.handlers.serve")
    bundle = here / "bundle"
    return bundle if bundle.is_dir() else here / "static"


@cache  # the servers of a process share them; compressing them takes 70 ms
def _assets(folder: Traversable) -> Mapping[str, Asset]:
    return dict(_walk(folder, ""))


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for item in folder.iterdir():
        path = prefix + item.name
        if item.is_dir():
            found += _walk(item, path + "/")
        else:
            found.append((path, _asset(item.name, item.read_bytes())))
    return found


def _asset(name: str, content: bytes) -> Asset:
    media_type = _TYPES.get(posixpath.splitext(name)[1], "text/plain; charset=utf-8")
    tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
    caching = "max-age=31536000, immutable" if _NAMED_BY_CONTENT.search(name) else "no-cache"
    return Asset(content, media_type, gzip.compress(content, mtime=0), tag, caching)


def _preloading(document: bytes, assets: Mapping[str, Asset]) -> bytes:
    """Name the modules that the main one imports, so that a browser requests all at once and not level by level.

    The document of the bundle names its files itself.
    """
    if "app/main.js" not in assets:
        return document
    found, waiting = list[str](), ["main.js"]
    while waiting:
        name = waiting.pop()
        for each in _IMPORT.findall(assets[f"app/{name}"].content):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), each.decode()))
            if path not in found:
                found.append(path)
                waiting.append(path)

    def links(script: re.Match[bytes]) -> bytes:
        base = script[1].decode()
        text = "".join(f'<link rel="modulepreload" href="{base}app/{path}">\n' for path in sorted(found))
        return text.encode() + script[0]

    return _MAIN.sub(links, document)


def _headers(document: bytes) -> tuple[tuple[str, str], ...]:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in _IMPORT_MAP.findall(document)
    )
    policy = (
        "default-src 'none'",
        f"script-src 'self' {hashes}".rstrip(),  # the bundle has no import map
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        # The page's code never turns text into HTML or script, but for the one worker of code.js. These two rules make
        # browsers enforce that.
        "require-trusted-types-for 'script'",
        "trusted-types lanebus",
    )
    return (
        ("Content-Security-Policy", "; ".join(policy)),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
    )
