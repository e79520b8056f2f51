"""The session that a transcript goes into where nobody names one."""

from itertools import islice
from pathlib import Path

import click

from bus.errors import InvalidSessionId, MessageError
from bus.keys import check_session_id
from bus.messages.reading import parse_json
from handlers.cli.errors import FileUnread
from handlers.transcripts.lines import read_lines

__all__ = ("session_for",)

_LINES_WITH_HEADER = 100
"""where a header may stand: damaged lines may come before it"""


def session_for(file: Path) -> str:
    """Where a transcript goes by itself.

    Raises:
        click.UsageError: neither its header nor its name gives a session id.
    """
    if str(file) == "-":
        raise click.UsageError("a transcript from stdin needs --session")
    for candidate in (_id_in_header(file), file.stem):
        try:
            return check_session_id(candidate)
        except InvalidSessionId:
            continue
    raise click.UsageError(f"{file.name!r} gives no session id: give one with --session")


def _id_in_header(file: Path) -> str:
    """The id that a transcript's header gives it; "" if none does."""
    try:
        with file.open("rb") as lines:
            for line in islice(read_lines(lines), _LINES_WITH_HEADER):
                try:
                    value = parse_json(line.data or b"")
                except MessageError:
                    continue
                match value:
                    case (
                        {"type": "session" | "session_header", "id": str(found)}
                        | {"type": "lanebus.export", "session": str(found)}
                        | {"sessionId": str(found)}
                    ):
                        return found
                    case _:
                        pass
    except OSError as error:
        raise FileUnread(file, error.strerror or str(error)) from error
    return ""
