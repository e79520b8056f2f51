"""Check every link of the built site that leads to a page, a file or an anchor of the same site."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

__all__ = ("dead_links",)

_LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


@dataclass
class _Page(HTMLParser):
    """The links and anchors of one page."""

    links: list[str] = field(default_factory=list[str])
    anchors: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        if tag in _LINKS and (link := found.get(_LINKS[tag])):
            self.links.append(link)


def dead_links(site: Path) -> list[str]:
    """Return the links that lead to no file or to a missing anchor, as `page: link`. Sorted; empty if all links
    work."""
    pages: dict[Path, _Page] = {}
    for path in site.rglob("*.html"):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    dead = set[str]()
    for path, page in pages.items():
        here = path.relative_to(site).as_posix()
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = site / unquote(urlsplit(urljoin(f"/{here}", link)).path).lstrip("/")
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in pages and not _has(pages[target], anchor)):
                dead.add(f"{here}: {link}")
    return sorted(dead)


def _has(page: _Page, anchor: str) -> bool:
    return anchor in page.anchors or anchor.startswith(":~:")
