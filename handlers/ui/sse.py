"""Server-sent events as bytes. Pure.

Lines end in LF alone (some clients take no CRLF), `data` is one line of ASCII JSON, and nothing that ends a line or
makes a parser drop the field gets into `id` or `event`. Source: the WHATWG specification, "server-sent events".
"""

import re

__all__ = ("HEARTBEAT", "encode_frame", "encode_retry")

HEARTBEAT = b": hb\n\n"
"""A comment: no client sees it, but a dead connection is found out by it."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_NOT_IN_FIELD = re.compile(r"[\r\n\0]")
_LINE_END = re.compile(r"[\r\n]")


def encode_frame(event: str, json_text: str, *, id: str | None = None) -> bytes:
    """One event.

    Args:
        event: its name; a listener of that name gets it.
        json_text: one valid JSON text. Line ends between its tokens become spaces, as they mean the same.
        id: what the client sends back as `Last-Event-ID`; None or "" leaves the client's last one as it is.
    """
    lines = [f"event: {_field(event)}"]
    if id and (clean := _field(id)):
        lines.append(f"id: {clean}")
    lines.append(f"data: {_one_ascii_line(json_text)}")
    return ("\n".join(lines) + "\n\n").encode("ascii")


def encode_retry(seconds: float) -> bytes:
    """The wait before a reconnect, once at the start of a stream. It is a part of the frame that follows."""
    # Not a frame of its own: a browser would dispatch nothing for it, but some clients give out an event without data.
    return f"retry: {round(seconds * 1_000)}\n".encode("ascii")


def _field(text: str) -> str:
    # An id comes from a cursor and an event from our own names; what is not ASCII is nobody's we wrote.
    return _NOT_ASCII.sub("?", _NOT_IN_FIELD.sub("", text))


def _one_ascii_line(json_text: str) -> str:
    return _NOT_ASCII.sub(_escape, _LINE_END.sub(" ", json_text))


def _escape(match: re.Match[str]) -> str:
    # What is not ASCII stands inside a JSON string, so its escape means the same; above the first plane it is a pair.
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
