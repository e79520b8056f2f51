"""Run the steps that make the site. The first step that finds a fault ends the build."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.site.api import GROUPS, api_page
from docs.site.crawl import dead_links
from docs.site.links import without_targets
from docs.site.llms import write_llms
from docs.site.navigation import Menu, menu, pages_of
from docs.site.pictures import inline_pictures
from docs.site.tables import without_marks

__all__ = ("OUTPUT", "BuildFailed", "build", "inside", "is_quiet", "unlisted_pages")

ROOT = Path(__file__).resolve().parents[2]
DOCS, DOWNLOADS = ROOT / "docs", ROOT / "handlers/serve/data"
OUTPUT = ROOT / "build" / "site"

_OUTSIDE = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>\.\./[^)#]*)\)")


class BuildFailed(Exception):
    """The site cannot be built, or has a dead link; the text contains the details."""


def build(output: Path) -> Path:
    """Delete the folder `output`, build the site into it, and return the path of the site's first page.

    Raises:
        BuildFailed: the build printed a warning, or a link leads nowhere.
    """
    work = output.with_name(f"{output.name}-source")
    for folder in (output, work):
        shutil.rmtree(folder, ignore_errors=True)
    pages = work / "docs"
    _gather(pages)
    found = menu(pages)
    if unlisted := unlisted_pages(pages, found):
        raise BuildFailed(f"docs/site/navigation.py does not list {', '.join(unlisted)}")
    (work / "mkdocs.yml").write_text(json.dumps(_settings(found), indent=1), encoding="utf-8")  # JSON is YAML
    run = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "mkdocs.yml"],
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode != 0 or not is_quiet(run.stdout):
        raise BuildFailed(run.stdout)
    (work / "site").rename(output)  # moved, as the site has to be built within its project folder
    (output / "sitemap.xml").unlink(missing_ok=True)  # it is empty, because the address of the site is not known here
    write_llms(pages, output, found)
    if dead := dead_links(output):
        raise BuildFailed("these links lead nowhere:\n" + "\n".join(dead))
    return output / "index.html"


def _gather(target: Path) -> None:
    """Copy the pages and their files, and write the pages that are made from docstrings."""
    shutil.copytree(DOCS, target, ignore=shutil.ignore_patterns("site", "*.py", "__pycache__"))
    shutil.copytree(DOWNLOADS, target / DOWNLOADS.relative_to(ROOT))  # the alerts and the dashboard
    for page in target.rglob("*.md"):
        text = inside(page.read_text(encoding="utf-8"), DOCS / page.relative_to(target).parent)
        text = without_marks(without_targets(text))
        page.write_text(inline_pictures(text, page.parent), encoding="utf-8")
    for group in GROUPS:
        page = target / "reference" / f"{group}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(api_page(group), encoding="utf-8")


def inside(text: str, folder: Path) -> str:
    """Replace links to repository files that are not pages by the links' texts, except links into `DOWNLOADS`.

    Raises:
        BuildFailed: a linked file does not exist.
    """

    def kept(match: re.Match[str]) -> str:
        path = (folder / match["path"]).resolve()
        if path.is_relative_to(DOCS):
            return match[0]
        if not path.exists():
            raise BuildFailed(f"{match[0]}: there is no {path.relative_to(ROOT)}")
        if path.is_relative_to(DOWNLOADS):
            return match[0].replace(match["path"], os.path.relpath(DOCS / path.relative_to(ROOT), folder))
        return match["text"]

    return _OUTSIDE.sub(kept, text)


def unlisted_pages(pages: Path, found: Menu) -> list[str]:
    """Return the pages that no entry of the menu leads to."""
    listed = {page for _, _, page in pages_of(found)}
    return sorted({path.relative_to(pages).as_posix() for path in pages.rglob("*.md")} - listed)


def is_quiet(printed: str) -> bool:
    """Return whether the build printed only its progress. A warning about a docstring does not fail the build by
    itself."""
    return all(
        line.startswith(("Build started", "No issues found", "Build finished")) for line in printed.splitlines() if line
    )


def _settings(found: Menu) -> dict[str, object]:
    shown = {
        "docstring_style": "google",
        "docstring_options": {"warn_unknown_params": False, "warn_missing_types": False},
        "docstring_section_style": "list",
        "extensions": [f"{DOCS / 'site' / 'methods.py'}:TakenOver"],
        "filters": ["!^_"],
        "heading_level": 3,
        "members_order": "source",
        "merge_init_into_class": True,
        "separate_signature": True,
        "show_root_heading": True,
        "show_root_full_path": False,
        "show_signature_annotations": True,
        "show_if_no_docstring": True,
        "show_labels": False,
        "show_source": False,
        "signature_crossrefs": False,
        "line_length": 100,
    }
    return {
        "site_name": "lanebus",
        "site_description": "An event-sourced message bus for agent loops, on Redis streams.",
        "docs_dir": "docs",
        "site_dir": "site",
        "use_directory_urls": True,
        "theme": {
            "name": "material",
            "font": False,
            "language": "en",
            "palette": [
                {
                    "media": "(prefers-color-scheme: light)",
                    "scheme": "default",
                    "toggle": {"icon": "lucide/sun", "name": "Switch to dark mode"},
                },
                {
                    "media": "(prefers-color-scheme: dark)",
                    "scheme": "slate",
                    "toggle": {"icon": "lucide/moon", "name": "Switch to light mode"},
                },
            ],
            "features": [
                "navigation.tabs",
                "navigation.sections",
                "navigation.top",
                "navigation.footer",
                "content.code.copy",
                "toc.follow",
            ],
        },
        "extra_css": ["assets/site.css"],
        "extra": {"generator": False},
        "markdown_extensions": [
            "admonition",
            "attr_list",
            "md_in_html",
            "tables",
            {"toc": {"permalink": True}},
            {"pymdownx.highlight": {"anchor_linenums": False}},
            "pymdownx.superfences",
            "pymdownx.inlinehilite",
        ],
        "plugins": [
            "search",
            {
                "mkdocstrings": {
                    "custom_templates": str(DOCS / "site" / "templates"),
                    "handlers": {"python": {"paths": [str(ROOT)], "options": shown}},
                }
            },
        ],
        "nav": found,
    }
