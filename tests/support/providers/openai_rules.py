"""Rules of both OpenAI APIs that their types do not express: ids, names, arguments, media."""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import cast

__all__ = (
    "Object",
    "argument_faults",
    "base64_faults",
    "image_faults",
    "list_of",
    "name_faults",
    "offer_faults",
    "pdf_or_file_faults",
)
Object = dict[str, object]
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE_URL = re.compile(r"https?://.+|data:image/(png|jpeg|gif|webp);base64,(.*)", re.DOTALL)
_FILE_DATA = re.compile(r"data:([a-z0-9.+-]+/[a-zA-Z0-9.+-]+);base64,(.+)", re.DOTALL)


def argument_faults(arguments: object) -> Iterator[str]:
    """Check that the arguments are the text of a JSON object."""
    try:
        value: object = json.loads(str(arguments))
    except ValueError:
        yield f"arguments are no JSON: {arguments!r}"
        return
    if not isinstance(value, dict):
        yield f"arguments are no object: {arguments!r}"


def name_faults(name: object) -> Iterator[str]:
    if not _NAME.fullmatch(str(name)):
        yield f"illegal tool name {name!r}"


def base64_faults(data: str) -> Iterator[str]:
    try:
        binascii.a2b_base64(data, strict_mode=True)
        base64.b64decode(data, validate=True)
    except binascii.Error:
        yield "not base64"
    if not data:
        yield "no data"


def image_faults(url: object) -> Iterator[str]:
    found = _IMAGE_URL.fullmatch(str(url))
    if not found:
        yield f"no web URL and no data of an image: {str(url)[:60]}"
    elif found[1]:
        yield from base64_faults(found[2])


def pdf_or_file_faults(file: Object, *, only_pdf: bool) -> Iterator[str]:
    """Check that the file has exactly one source, and a name if the source is data."""
    places = [name for name in ("file_data", "file_id", "file_url") if file.get(name)]
    if len(places) != 1:
        yield f"a file in {len(places)} places"
    if "file_data" in file:
        found = _FILE_DATA.fullmatch(str(file["file_data"]))
        if not found or (only_pdf and found[1] != "application/pdf"):
            yield f"no data of a file that is read here: {str(file['file_data'])[:60]}"
        else:
            yield from base64_faults(found[2])
        if not file.get("filename"):
            yield "data of a file without a name"
    if "file_url" in file and not str(file["file_url"]).startswith(("http://", "https://")):
        yield f"not a web URL: {file['file_url']}"


def offer_faults(names: list[object], choice: object, named: object) -> Iterator[str]:
    """Check that tools have different, legal names, and that a tool that must be called is offered."""
    for name in names:
        yield from name_faults(name)
    if len(set(map(str, names))) != len(names):
        yield "tools: a name twice"
    if choice is not None and not names:
        yield "tool_choice: there are no tools"
    if named is not None and named not in names:
        yield f"tool_choice: {named!r} is not offered"


def list_of(value: object) -> list[Object]:
    return cast("list[Object]", value) if isinstance(value, list) else []
