"""Encode server-sent events. Pure.

Lines end in LF, because some clients do not accept CRLF. `data` is one line of ASCII JSON. `id` and `event` contain no
character that ends a line or makes a parser drop the field.

Source: the WHATWG specification, "server-sent events".
"""

import re

__all__ = ("HEARTBEAT", "encode_end", "encode_frame", "encode_lines", "encode_retry")

HEARTBEAT = b": hb\n\n"
"""A comment in the format of server-sent events. Clients ignore it, and sending it detects a dead connection."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_NOT_IN_FIELD = re.compile(r"[\r\n\0]")
_LINE_END = re.compile(r"[\r\n]")


def encode_frame(event: str, json_text: str, *, id: str | None = None) -> bytes:
    """Encode one event.

    Args:
        event: the event's name, by which clients listen.
        json_text: a valid JSON text. Line breaks between its tokens become spaces.
        id: the id that the client sends back as `Last-Event-ID`; None or "" keeps the client's previous id.
    """
    return encode_lines(event, json_text) + encode_end(id)


def encode_lines(event: str, json_text: str) -> bytes:
    """Encode one event without its end. `encode_end` follows. The arguments are those of `encode_frame`."""
    return f"event: {_field(event)}\ndata: {_one_ascii_line(json_text)}\n".encode("ascii")


def encode_end(id: str | None) -> bytes:
    """Encode the id of an event and the event's end. None or "" keeps the client's previous id."""
    return f"id: {clean}\n\n".encode("ascii") if id and (clean := _field(id)) else b"\n"


def encode_retry(seconds: float) -> bytes:
    """Encode the pause before a reconnect. The pause is sent once, in the first frame of a stream."""
    # Not a separate frame: browsers ignore such a frame, but some clients report it as an event without data.
    return f"retry: {round(seconds * 1_000)}\n".encode("ascii")


def _field(text: str) -> str:
    # Cursors and event names are ASCII, so any other character is not from this program.
    return _NOT_ASCII.sub("?", _NOT_IN_FIELD.sub("", text))


def _one_ascii_line(json_text: str) -> str:
    return _NOT_ASCII.sub(_escape, _LINE_END.sub(" ", json_text))


def _escape(match: re.Match[str]) -> str:
    # Non-ASCII characters occur only in JSON strings, where an escape means the same. A character above U+FFFF needs a
    # pair of escapes.
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
