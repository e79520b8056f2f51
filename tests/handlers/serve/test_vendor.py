"""The page's vendored files equal those of their packages byte for byte, and include the licences."""

import hashlib
import json
import re

from pydantic import BaseModel, TypeAdapter

from tests.support.paths import ROOT

VENDOR = ROOT / "handlers" / "serve" / "static" / "vendor"
STATIC = VENDOR.parent


class _File(BaseModel):
    sha256: str


class _Package(BaseModel):
    name: str
    version: str
    license: str
    integrity: str
    files: dict[str, _File]


def packages() -> list[_Package]:
    return TypeAdapter(list[_Package]).validate_json((VENDOR / "VENDORED.json").read_bytes())


def test_each_vendored_file_has_its_recorded_hash_and_no_file_is_unrecorded() -> None:
    recorded = {path: file.sha256 for package in packages() for path, file in package.files.items()}
    found = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "VENDORED.json"
    }
    assert found == recorded


def test_each_vendored_package_names_its_licence_and_ships_its_text() -> None:
    opening = {
        "MIT": "Permission is hereby granted, free of charge",
        "Apache-2.0": "Apache License",
        "BSD-3-Clause": "Redistributions in binary form must reproduce",
        "CC0-1.0": "CC0 1.0 Universal",
    }
    for package in packages():
        text = (VENDOR / package.name / "LICENSE").read_text()
        assert [name for name, words in opening.items() if words in text] == package.license.split(" AND ")
        assert package.integrity.startswith("sha512-")
        assert re.fullmatch(r"\d+\.\d+\.\d+", package.version)


def test_the_import_map_names_a_vendored_module_of_each_package_and_nothing_else() -> None:
    found = re.search(r'<script type="importmap">(.*?)</script>', (STATIC / "index.html").read_text())
    assert found is not None
    named = {STATIC.parent / path.removeprefix("/") for path in json.loads(found[1])["imports"].values()}
    named.add(VENDOR / "@speed-highlight/core/tokenize.js")  # of a worker, which has no import map
    modules = {path for path in VENDOR.rglob("*") if path.suffix in {".js", ".mjs"}}
    assert named <= modules
    # Other modules, such as the rules of a language, lie below one that the map names.
    assert all(any(path.is_relative_to(other.parent) for other in named) for path in modules)


def test_the_pages_own_files_name_no_other_host_and_never_write_html() -> None:
    own = [path for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".html"} and VENDOR not in path.parents]
    assert len(own) > 10
    for path in own:
        text = path.read_text()
        assert "://" not in text, path
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|dangerously|document\.write|eval\(|Function\(", text
        ), path
