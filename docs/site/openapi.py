"""`python -m docs.site.openapi`: write the OpenAPI document of the code to `docs/reference/openapi.json`."""

from pathlib import Path

from lanebus.handlers.ui.api.openapi import document_text
from lanebus.handlers.ui.api.table import endpoints

__all__ = ("FILE",)

FILE = Path(__file__).parent.parent / "reference" / "openapi.json"

if __name__ == "__main__":
    FILE.write_text(document_text(endpoints()))
