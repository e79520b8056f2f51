"""Responses of the API: JSON, and errors as problem details (RFC 9457) that are named after their class."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.errors import BusError, Closed, MessageError, MessageTooLarge, OutcomeUnknown, StreamError, Unavailable
from lanebus.bus.text import without_secrets
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.handlers.context import ContextTooLarge
from lanebus.handlers.serve.errors import (
    ServerBusy,
    SessionMissing,
    TooManyStreams,
    TooManyUploads,
    TooManyWaiting,
    UnknownAgent,
    UploadMissing,
)
from lanebus.handlers.serve.json_text import spliced

_STATUS: tuple[tuple[type[BusError], int], ...] = (
    (TooManyStreams, 429),
    (TooManyWaiting, 429),
    (TooManyUploads, 429),
    (UploadMissing, 404),
    (SessionMissing, 404),
    (UnknownAgent, 404),
    (MessageTooLarge, 413),
    (ContextTooLarge, 413),
    (MessageError, 400),
    (StreamError, 409),
    (OutcomeUnknown, 504),
    (Unavailable, 503),
    (Closed, 503),
)
"""HTTP status of error classes; the first class that matches is used"""

PROBLEM = "application/problem+json"
"""content type of errors"""

RAW_SHOWN = 4000
"""maximum number of characters that are shown of an unreadable entry"""

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class RequestRefused(HTTPException):
    """A request is refused, and the bus has no part in it. Fields: `error`, the name of the HTTP error; `message`."""

    def __init__(self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, error, headers)
        self.error, self.message = error, message


class AccessDenied(RequestRefused):
    """The access rules refuse a request."""

    def __init__(self, reason: str) -> None:
        super().__init__(403, "access_refused", reason or "this token does not allow this")


def answer(value: object, status: int = 200) -> Response:
    """Return a JSON response. Raises TypeError or ValueError if `value` has no JSON form."""
    return Response(json_bytes(value), status, media_type="application/json")


def json_bytes(value: object) -> bytes:
    """Return a value as JSON in ASCII. Raises TypeError or ValueError if `value` has no JSON form."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def refuse(status: int, error: str, message: str) -> Response:
    """Return an error response, in the form of problem details (RFC 9457).

    `type` is always `about:blank`: clients tell errors apart by the member `error`.

    Args:
        status: HTTP status.
        error: name of the error, such as `session_closed`.
        message: text for people, sent as `detail`.
    """
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": message,
        "error": error,
    }
    return Response(json_bytes(problem), status, media_type=PROBLEM)


def answer_error(request: Request, error: Exception) -> Response:
    """Turn an error of the bus or of the router into a JSON response. Raise other errors again."""
    if isinstance(error, BusError):
        reply = refuse(status_of(error), name_of(error), without_secrets(str(error)))
        if isinstance(error, ServerBusy | TooManyStreams | TooManyWaiting):
            reply.headers["Retry-After"] = str(error.retry_after)
        return reply
    if isinstance(error, HTTPException):
        if isinstance(error, RequestRefused):
            name, text = error.error, error.message
        else:
            name, text = error.detail.lower().replace(" ", "_"), _router_text(request, error)
        reply = refuse(error.status_code, name, text)
        reply.headers.update(error.headers or {})
        return reply
    raise error


def _router_text(request: Request, error: HTTPException) -> str:
    """Return the text of an error of the router, whose own names no remedy."""
    headers = error.headers or {}
    match error.status_code:
        case 404:
            return "there is no such address: /api/openapi.json lists those that exist"
        case 405 if "Allow" in headers:
            return f"this address takes no {request.method}: send {headers['Allow']}"
        case _:
            return error.detail


def status_of(error: BusError) -> int:
    """Return the HTTP status of a bus error; 500 if neither the client nor an outage caused it."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def name_of(error: BusError) -> str:
    """Return the name by which clients tell a bus error: its class in snake case."""
    return _WORD_START.sub("_", type(error).__name__).lower()


def envelope_json(envelope: Envelope) -> str:
    """Encode an envelope as a JSON object: position, delta, cursor, lane, time, producer, message.

    An imported entry also has `isImported`, which is true. Others do not have this field.
    """
    imported = {"isImported": True} if envelope.is_imported else {}
    place = {
        "position": envelope.position,
        "delta": envelope.delta,
        "cursor": str(envelope.cursor),
        "lane": envelope.lane.value,
        "time": envelope.time,
        "producer": envelope.producer,
        **imported,
    }
    message = envelope.message
    return spliced(
        place, "message", _unreadable_json(message) if isinstance(message, DecodeFailure) else message.to_json()
    )


def _unreadable_json(entry: DecodeFailure) -> str:
    raw = entry.raw.decode("utf-8", "replace")
    return json.dumps({"role": "unreadable", "error": str(entry.error), "raw": raw[:RAW_SHOWN]})
