"""Cut a JSON answer to a number of bytes. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from pydantic import JsonValue

from lanebus.handlers.context import cut_text

_LISTS = ("messages", "contents", "input")
"""where the providers' requests hold the conversation"""


class Fitted(NamedTuple):
    """An answer that fits."""

    value: JsonValue
    text: str
    note: str = ""
    """says what was cut; "" if nothing was"""


def json_text(value: JsonValue) -> str:
    """Return a value as JSON, with letters of all scripts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fitted(value: JsonValue, *, most_bytes: int, shortest: int, is_request: bool = False) -> Fitted | None:
    """Return an answer of at most `most_bytes`: whole, with long texts cut, or without the oldest messages.

    Texts are cut to a length that halves until the answer fits. The `cursor` of an answer stays whole, as the client
    sends it back.

    Args:
        value: the answer.
        most_bytes: maximum number of bytes of its JSON.
        shortest: number of characters to which a text may be cut.
        is_request: whether the answer is a request to a model, whose oldest messages may be left out.

    Returns:
        The answer. None if it does not fit.
    """
    text = json_text(value)
    if (size := len(text.encode())) <= most_bytes:
        return Fitted(value, text)
    del text
    long, length = list(_long_texts(value, shortest)), most_bytes
    while length > shortest:
        length = max(length // 2, shortest)
        if size - sum(max(each - length, 0) for each in long) > most_bytes:
            continue  # even without each byte beyond the length: do not write megabytes only to see this
        short = _shortened(value, length)
        if len((text := json_text(short)).encode()) <= most_bytes:
            return Fitted(short, text, f"Texts of more than {length} characters are cut, to fit in {most_bytes} bytes.")
    return _newest(_shortened(value, shortest), most_bytes, shortest) if is_request else None


def _shortened(value: JsonValue, length: int) -> JsonValue:
    short = _cut(value, length)
    if isinstance(value, dict) and isinstance(short, dict) and "cursor" in value:
        short["cursor"] = value["cursor"]
    return short


def _long_texts(value: JsonValue, shortest: int) -> Iterator[int]:
    """Yield the number of bytes, in JSON, of each text that may be cut."""
    match value:
        case str():
            if len(value) > shortest:
                yield len(json_text(value).encode())
        case list():
            for each in value:
                yield from _long_texts(each, shortest)
        case dict():
            for each in value.values():
                yield from _long_texts(each, shortest)
        case _:
            pass


def _cut(value: JsonValue, length: int) -> JsonValue:
    match value:
        case str():
            return value if len(value) <= length else f"{cut_text(value, length)}… [{len(value)} characters]"
        case list():
            return [_cut(each, length) for each in value]
        case dict():
            return {name: _cut(each, length) for name, each in value.items()}
        case _:
            return value


def _newest(value: JsonValue, most_bytes: int, shortest: int) -> Fitted | None:
    """Return a request with as many of its newest messages as fit."""
    if not isinstance(value, dict) or not isinstance(request := value.get("request"), dict):
        return None
    body = cast("Mapping[str, JsonValue]", request)
    name = next((each for each in _LISTS if isinstance(body.get(each), list)), None)
    if name is None:
        return None
    messages, parts = cast("list[JsonValue]", body[name]), value.get("messages")
    kept = len(messages)
    while kept:
        kept //= 2
        short: JsonValue = {
            **value,
            "messages": parts[-kept:] if isinstance(parts, list) and kept else [],
            "request": {**body, name: messages[-kept:] if kept else []},
        }
        if len((text := json_text(short)).encode()) <= most_bytes:
            left_out = len(messages) - kept
            note = f"The oldest {left_out} of {len(messages)} messages are left out, and texts of more than {shortest}"
            return Fitted(short, text, f"{note} characters are cut. Ask for an earlier position to see them.")
    return None
