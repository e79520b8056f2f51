"""Pictures are put into the page itself: there they take the colours of its light or dark mode.

As a file each has a style of its own, for readers of the repository.
"""

import re
from pathlib import Path

__all__ = ("inline_pictures",)

_PICTURE = re.compile(r"^!\[(?P<text>[^\]]*)\]\((?P<path>[^)]+\.svg)\)$", re.MULTILINE)
_STYLE = re.compile(r"<style>.*?</style>\n?", re.DOTALL)


def inline_pictures(text: str, folder: Path) -> str:
    """A page's text with each SVG that stands on a line of its own put in.

    Args:
        folder: of the page, from which its links lead.
    """

    def drawn(match: re.Match[str]) -> str:
        if "cost.svg" in match["path"]:  # drawn by the benchmark, in colours of its own
            return match[0]
        svg = _STYLE.sub("", (folder / match["path"]).read_text(encoding="utf-8"))
        body = "\n".join(line.strip() for line in svg.splitlines() if line.strip())
        named = body.replace("<svg ", f'<svg role="img" aria-label="{match["text"]}" class="drawn" ', 1)
        return f'<figure class="picture">\n{named}\n</figure>'

    return _PICTURE.sub(drawn, text)
