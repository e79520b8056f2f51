"""Put SVG pictures into the page itself, so that they take the colours of the page's light or dark mode.

As a file, each picture has its own style, for readers of the repository.
"""

import re
from pathlib import Path

__all__ = ("inline_pictures",)

_PICTURE = re.compile(r"^!\[(?P<text>[^\]]*)\]\((?P<path>[^)]+\.svg)\)$", re.MULTILINE)
_STYLE = re.compile(r"<style>.*?</style>\n?", re.DOTALL)


def inline_pictures(text: str, folder: Path) -> str:
    """Return a page's text in which each SVG link on a separate line is replaced by the picture.

    Args:
        folder: the folder of the page, to which the page's links are relative.
    """

    def drawn(match: re.Match[str]) -> str:
        if "cost.svg" in match["path"]:  # drawn by the benchmark, with its own colours
            return match[0]
        svg = _STYLE.sub("", (folder / match["path"]).read_text(encoding="utf-8"))
        body = "\n".join(line.strip() for line in svg.splitlines() if line.strip())
        named = body.replace("<svg ", f'<svg role="img" aria-label="{match["text"]}" class="drawn" ', 1)
        return f'<figure class="picture">\n{named}\n</figure>'

    return _PICTURE.sub(drawn, text)
