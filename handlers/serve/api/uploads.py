"""Endpoints of uploads: files that a client sends in pieces, so that a message can name them."""

import re
from collections.abc import AsyncGenerator
from dataclasses import replace

import anyio
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import check_sha256
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Lane
from lanebus.handlers.context import as_text, as_whole
from lanebus.handlers.protocols import check_name, check_type
from lanebus.handlers.serve.api.bodies import UploadAnswer, UploadBody, check_fields
from lanebus.handlers.serve.api.endpoint import ApiContext, ApiEndpoint, count_parameter
from lanebus.handlers.serve.budget import Share
from lanebus.handlers.serve.errors import InvalidParameter, UploadMissing
from lanebus.handlers.serve.guard import identified, require_valid
from lanebus.handlers.serve.replies import RequestRefused, answer
from lanebus.handlers.serve.transfer import announced_bytes, body_too_large, body_too_slow, holding
from lanebus.handlers.serve.uploads import Upload

_PATH = "/api/sessions/{session}/uploads"
_BYTES = "application/octet-stream"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OFFSET = replace(count_parameter("offset", "number of bytes that were sent before this piece"), is_required=True)


async def post_upload(api: ApiContext, request: Request) -> Response:
    """Begin an upload of a file with this size and SHA-256, or continue it: send the bytes from `offset` on. 201 if it
    is new.

    The token must allow `send` in the session. Once `isComplete` is true, a message of yours to this session can name
    the file: `{"type": "image", "media": {"kind": "sha256", "sha256": …}}`. Nobody can read it before. 429 if you have
    too many uploads. An upload without a new piece for a day is removed.
    """
    session = str(request.path_params["session"])
    wanted = read_upload(await api.body(request), api.session(request).id)
    owner = await _owner(api, request)
    upload = await api.uploads.begin(owner, wanted)
    reply = _answer(api, request, upload, 201 if upload == wanted else 200)
    reply.headers["Location"] = f"{request.scope.get('root_path', '')}{_PATH}/{upload.sha256}".format(session=session)
    return reply


async def get_upload(api: ApiContext, request: Request) -> Response:
    """Return an upload of yours to this session, with the `offset` from which to continue."""
    owner = await _owner(api, request)
    return _answer(api, request, await _found(api, request, owner))


async def patch_upload(api: ApiContext, request: Request) -> Response:
    """Add a piece of at most `pieceBytes` bytes that begins at `offset`. 409 if the upload ends elsewhere.

    After a lost connection, ask for the offset and continue there: bytes that arrived are kept. With the last byte, the
    SHA-256 of the file is checked. If it is wrong, the upload is removed (400, `upload_damaged`).
    """
    owner, offset = await _owner(api, request), _OFFSET.of(request)
    if offset is None:
        raise InvalidParameter("offset", "", "give the number of bytes that were sent before")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _BYTES:
        raise RequestRefused(415, "bytes_only", f"send the bytes of the piece, with the header Content-Type: {_BYTES}")
    upload = await _found(api, request, owner)
    most = min(_piece_bytes(api, request), max(upload.size_bytes - offset, 0))
    announced = announced_bytes(request)
    if announced > most:
        raise body_too_large(most, will_end=announced <= api.bounds.dropped_bytes)
    api.gate.count_bytes(request, announced or most)
    held = api.bounds.uploads.buffer_bytes + api.bounds.http.received_bytes
    async with holding(request, api.bodies, min(announced or most, held), api.bounds) as (share, timeout):
        upload = await api.uploads.add(owner, upload, offset, _chunks(request, share, most))
    if timeout.cancelled_caught:
        raise body_too_slow(api.bounds.body_seconds)
    return _answer(api, request, upload)


async def delete_upload(api: ApiContext, request: Request) -> Response:
    """Remove an upload of yours to this session. Messages that name it keep their media."""
    owner = await _owner(api, request)
    upload = await _found(api, request, owner)
    await api.uploads.remove(owner, upload.session, upload.sha256)
    return _answer(api, request, upload)


async def _owner(api: ApiContext, request: Request) -> str:
    principal = await api.gate.require(request, "send", session=api.session(request).id, lanes=(Lane.LLM,))
    return principal.name


async def _found(api: ApiContext, request: Request, owner: str) -> Upload:
    digest = str(request.path_params["sha256"])
    if _SHA256.fullmatch(digest) is None:
        raise UploadMissing(digest)
    return await api.uploads.find(owner, api.session(request).id, digest)


async def _chunks(request: Request, share: Share, most: int) -> AsyncGenerator[bytes]:
    """Yield the body. Raise RequestRefused if it has more than `most` bytes, or if the token has ended, before more are
    yielded."""
    left = most
    async for chunk in request.stream():
        share.blocked_at = anyio.current_time()
        left -= len(chunk)
        if left < 0:
            raise body_too_large(most, will_end=False)
        require_valid(request.scope)
        yield chunk


def _piece_bytes(api: ApiContext, request: Request) -> int:
    own = identified(request.scope).principal.body_bytes
    limits = api.bounds.access
    most = min(api.bounds.uploads.piece_bytes, limits.burst * limits.append_bytes)
    return most if own is None else min(own, most)


def _answer(api: ApiContext, request: Request, upload: Upload, status: int = 200) -> Response:
    return answer(
        {
            "session": upload.session,
            "sha256": upload.sha256,
            "sizeBytes": upload.size_bytes,
            "mimeType": upload.mime_type,
            "filename": upload.filename,
            "offset": upload.offset,
            "isComplete": upload.is_complete,
            "pieceBytes": _piece_bytes(api, request),
        },
        status,
    )


ENDPOINTS = (
    ApiEndpoint(
        method="POST", path=_PATH, handler=post_upload, body=UploadBody, answer=UploadAnswer, statuses=(200, 201)
    ),
    ApiEndpoint(path=f"{_PATH}/{{sha256}}", handler=get_upload, answer=UploadAnswer),
    ApiEndpoint(
        method="PATCH",
        path=f"{_PATH}/{{sha256}}",
        handler=patch_upload,
        parameters=(_OFFSET,),
        body_type=_BYTES,
        answer=UploadAnswer,
    ),
    ApiEndpoint(method="DELETE", path=f"{_PATH}/{{sha256}}", handler=delete_upload, answer=UploadAnswer),
)


def read_upload(body: JsonValue, session: str) -> Upload:
    """Decode `{"sha256": …, "sizeBytes": …, "mimeType"?: …, "filename"?: …}`.

    Raises:
        DecodeError: the body has another shape, or a value is not allowed.
        InvalidMediaKey: the SHA-256 is not 64 lower-case hex digits.
    """
    if not isinstance(body, dict) or not {"sha256", "sizeBytes"} <= body.keys():
        raise DecodeError("", 'begin an upload with {"sha256": …, "sizeBytes": …}')
    check_fields(body, ("sha256", "sizeBytes", "mimeType", "filename"))
    size_bytes = as_whole(body["sizeBytes"], "sizeBytes")
    if size_bytes == 0:
        raise DecodeError("sizeBytes", "must be 1 or more: an empty file is no media")
    return Upload(
        session=session,
        sha256=check_sha256(as_text(body["sha256"], "sha256")),
        size_bytes=size_bytes,
        mime_type=check_type(body.get("mimeType"), "mimeType"),
        filename=check_name(body.get("filename"), "filename"),
    )
