"""`python -m docs.site.reference`: write what is made from code into `docs/`. Print the files that changed.

These are the parts of pages, such as tables of settings, the targets of links to names, and the OpenAPI document.
"""

from collections.abc import Iterator
from pathlib import Path

from docs.site.links import with_targets
from docs.site.tables import fill_in
from lanebus.handlers.serve.api.openapi import document_text, endpoints

__all__ = ("COMMAND", "made_from_code", "write")

COMMAND = "python -m docs.site.reference"
DOCS = Path(__file__).resolve().parent.parent


def made_from_code(docs: Path = DOCS) -> Iterator[tuple[Path, str]]:
    """Yield each page of a folder, and the OpenAPI document in it, with the text that it has to have."""
    for page in sorted(docs.rglob("*.md")):
        yield page, with_targets(fill_in(page.read_text(encoding="utf-8")), page.relative_to(docs))
    yield docs / "reference" / "openapi.json", document_text(endpoints())


def write(docs: Path = DOCS) -> list[Path]:
    """Write what differs, and return the files that were written."""
    changed = [(path, text) for path, text in made_from_code(docs) if path.read_text(encoding="utf-8") != text]
    for path, text in changed:
        path.write_text(text, encoding="utf-8")
    return [path for path, _ in changed]


if __name__ == "__main__":
    for path in write():
        print(path.relative_to(DOCS.parent))
