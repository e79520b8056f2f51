"""A parser of server-sent events that follows the steps of the WHATWG specification, to check our encoder."""

from typing import NamedTuple


class Event(NamedTuple):
    name: str
    data: str
    last_id: str


def parse(stream: bytes) -> list[Event]:
    """Return the events that a browser would dispatch, as in "9.2.6 Interpreting an event stream"."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    # Lines end in CRLF, LF or CR only; str.splitlines would also split at U+2028 and others.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    events: list[Event] = []
    name, data, last_id = "", "", ""
    for line in lines:
        if line == "":
            if data:
                events.append(Event(name or "message", data.removesuffix("\n"), last_id))
            name, data = "", ""
            continue
        field, colon, value = line.partition(":")
        if colon and not field:
            continue
        value = value.removeprefix(" ")
        match field:
            case "event":
                name = value
            case "data":
                data += value + "\n"
            case "id" if "\0" not in value:
                last_id = value
            case _:
                pass
    return events
