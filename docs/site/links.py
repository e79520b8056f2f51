"""Links to public names, such as `[`ask`][lanebus.agent.ask]`.

On the site each leads to the description of its name. In a checkout there is none, so the end of each page has targets
for its links: the tables of names on the page of the API. `python -m docs.site.reference` writes the targets.
"""

import os
import re
from pathlib import Path

from docs.site.api import GROUPS

__all__ = ("with_targets", "without_targets")

_MARK = "<!-- where names lead in a checkout; made from code -->"
_NAME = re.compile(r"\]\[(lanebus(?:\.\w+)+)\]")
_PAGE = "reference/api.md"


def with_targets(text: str, page: Path) -> str:
    """Return a page with a target for each of its names.

    Args:
        page: its path in `docs/`.
    """
    text = without_targets(text)
    names = sorted({*_NAME.findall(text)})
    if not names:
        return text
    place = os.path.relpath(_PAGE, page.parent)
    return "\n".join([text, _MARK, "", *(f"[{name}]: {place}#{_group(name).replace('.', '')}" for name in names), ""])


def without_targets(text: str) -> str:
    """Return a page as the site needs it, where each name leads to its description."""
    return text.partition(f"\n{_MARK}\n")[0]


def _group(name: str) -> str:
    return max((group for group in GROUPS if name.startswith(f"{group}.")), key=len)
