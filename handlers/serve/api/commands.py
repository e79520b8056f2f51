"""Endpoints that write: messages, commands and handovers.

A key names one content: a publish with a repeated key must repeat the first one.
"""

import base64
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from hashlib import sha256

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import Session
from lanebus.bus.errors import Conflict, CursorTrimmed, StreamError
from lanebus.bus.messages import (
    Approve,
    AudioBlock,
    Block,
    Deny,
    DocumentBlock,
    ExtensionMessage,
    ImageBlock,
    Lane,
    MediaRef,
    SessionAssigned,
    UserMessage,
    VideoBlock,
)
from lanebus.bus.wire import START, Cursor, DecodeFailure, Receipt
from lanebus.handlers.agent import BY, decide_call, follow_up, send
from lanebus.handlers.projections import STATUS, Projected, Status
from lanebus.handlers.serve.api.bodies import (
    CommandBody,
    HandoverBody,
    MessageBody,
    Published,
    read_command,
    read_handover,
    read_posted_message,
    with_media,
)
from lanebus.handlers.serve.api.endpoint import ApiContext, ApiEndpoint, Handler
from lanebus.handlers.serve.errors import CommandsWaiting, KeyReused
from lanebus.handlers.serve.guard import identified, owner_of, require_valid
from lanebus.handlers.serve.replies import answer


async def post_message(api: ApiContext, request: Request) -> Response:
    """Publish `{"text": …, "key"?: …, "followUp"?: …, "agent"?: …, "expected"?: …}` as a user message, and wake a
    worker.

    In place of `text`, `content` has blocks: texts, and images, audio, videos and documents. Their media are a complete
    upload of yours to this session, at most 512 KiB inline, or at an address that the server allows.

    201 with positions. A new session belongs to `agent`; 409 if an existing session belongs to another agent. With
    `agent`, the answer has `hasWorker`: if it is false, the message waits until a worker serves the agent. `expected`
    is the cursor of the session's end as the client saw it: 409 if the session has moved on, or has lost that entry.

    A follow-up waits until the running loop has ended. A client that got no response repeats the request with the
    same key. If the message was already published, it is not published again, and the status is 200. 409 if the key
    belongs to a message of other content.
    """
    session = api.session(request)
    posted = read_posted_message(await api.body(request), api.content)
    principal = await api.gate.require(request, "send", session=session.id, agent=posted.agent, lanes=(Lane.LLM,))
    decided = api.gate.decided_agent(request, session.id)
    async with api.budget.share(_nothing, owner=owner_of(request.scope)) as share:

        async def hold(size: int) -> None:  # less than the principal's part: another may have one too
            await share.take(min(size, api.bounds.principal_bytes // 2), seconds=api.bounds.wait_seconds)

        async def store(digest: str) -> MediaRef:
            return await api.uploads.store(principal.name, session.id, digest, hold)

        message = UserMessage(content=await with_media(posted.content, store), metadata={BY: principal.name})
    api.gate.count_appended(request, message)
    if posted.is_follow_up:
        receipt = await follow_up(session, message, key=posted.key, agent=decided)
    else:
        receipt = await session.publish(
            message, key=posted.key, wake=True, agent=posted.agent or decided, expected=posted.expected
        )
    await check_repeat(session, receipt, posted.key, message)
    return _published(receipt, **await _service_of(api, session, receipt, posted.agent))


async def post_command(api: ApiContext, request: Request) -> Response:
    """Publish a command, `{"command": "abort", "key"?: …, …}`. 201 with positions. [Commands](#commands)
    lists the commands and their fields.

    The last of the positions is the command's. A worker answers with a `ControlAnswered` event that names this
    position. If a request is repeated with the same key, nothing is published, and the status is 200. 404 if the
    session has no entries, 409 if the key belongs to a command of other content, if somebody has approved or denied the
    call before (`call_decided`), or if too many commands wait for a worker (`commands_waiting`).
    """
    session, scope = api.session(request), request.scope
    by = identified(scope).principal.name
    posted = read_command(await api.body(request), session.id, by)
    lanes = (Lane.EXTENSION,) if posted.text is None else (Lane.LLM, Lane.EXTENSION)
    await api.gate.require(request, f"command.{posted.name}", session=session.id, lanes=lanes)
    await api.require_entries(session)
    said = None if posted.text is None else _said(posted.text, by)
    appended = (*(() if said is None else (said,)), posted.control.as_extension())
    api.gate.count_appended(request, *appended)
    decided = api.gate.decided_agent(request, session.id)
    control, key = posted.control, posted.key

    async def status() -> Projected[Status]:
        now = await api.folded(owner_of(scope), partial(api.views.look, session, STATUS))
        require_valid(scope)  # the turn may have come after the token's end
        return now

    if len((await status()).state.commands) >= api.bounds.commands:
        if said is not None:  # `send` has a place of its own for a message
            raise CommandsWaiting(session.id, api.bounds.commands)
        try:  # before the first entry, only a repeat succeeds
            receipt = await send(session, control, said, key=key, agent=decided, expected=START)
        except Conflict:
            raise CommandsWaiting(session.id, api.bounds.commands) from None
    elif isinstance(control, Approve | Deny):
        receipt = await decide_call(session, control, key=key, agent=decided, status=status)
    else:
        receipt = await send(session, control, said, key=key, agent=decided)
    await check_repeat(session, receipt, posted.key, *appended)
    return _published(receipt)


async def post_agent(api: ApiContext, request: Request) -> Response:
    """Hand the session over with `{"agent": …, "reason"?: …, "key"?: …, "expected"?: …}`. 201 with the position of the
    event. `expected` is as for messages.

    If the session belongs to the agent already, nothing changes, and the status is 200. If a request is repeated with
    the same key, nothing changes either, even after another handover. 404 if the session has no entries, 409 if the key
    belongs to other content. Any agent's name is accepted: if `hasWorker` of the answer is false, the session waits
    until a worker serves this agent.
    """
    session = api.session(request)
    posted = read_handover(await api.body(request))
    principal = await api.gate.require(
        request, "hand_over", session=session.id, agent=posted.agent, lanes=(Lane.EXTENSION,)
    )
    await api.require_entries(session)
    receipt = await session.hand_over(
        posted.agent,
        by=principal.name,
        reason=posted.reason,
        key=posted.key,
        expected=posted.expected,
        belongs_to=api.gate.decided_agent(request, session.id),
    )
    await check_repeat(session, receipt, posted.key, SessionAssigned(agent=posted.agent).as_extension())
    return _published(receipt, **await _service_of(api, session, receipt, posted.agent))


def _nothing() -> None:
    """Disconnect no client: the memory is given back when its upload was stored."""


def _said(text: str, by: str) -> UserMessage:
    return UserMessage.text(text).model_copy(update={"metadata": {BY: by}})


async def _service_of(api: ApiContext, session: Session, receipt: Receipt, agent: str | None) -> dict[str, JsonValue]:
    """Return the fields of the session's agent; nothing if the request names no agent.

    The server cannot know an agent before a worker of it has run, so it accepts every name. After a repeat, the session
    may have been handed on.
    """
    if agent is None:
        return {}
    if receipt.is_duplicate:
        with suppress(StreamError):  # the messages are in the log; this says only more about them
            agent = (await session.head()).agent or agent
    has_worker = await api.has_worker(agent)
    return {"agent": agent, **({} if has_worker is None else {"hasWorker": has_worker})}


def _published(receipt: Receipt, **more: JsonValue) -> Response:
    published: dict[str, JsonValue] = {"positions": list(receipt.positions), "duplicate": receipt.is_duplicate}
    return answer({**published, **more}, 200 if receipt.is_duplicate else 201)


def _writes(path: str, handler: Handler, body: object) -> ApiEndpoint:
    return ApiEndpoint(
        method="POST",
        path=f"/api/sessions/{{session}}/{path}",
        handler=handler,
        body=body,
        answer=Published,
        statuses=(200, 201),
        is_traced=True,
    )


ENDPOINTS = (
    _writes("messages", post_message, MessageBody),
    _writes("commands", post_command, CommandBody),
    _writes("agent", post_agent, HandoverBody),
)


# Check that a publish with a repeated key repeats the first one. The log compares keys and not contents: without this
# check, a client that uses a key twice would lose its second text.

_BY_SERVER = frozenset({"by", "position"})
"""fields of a command that the server writes. Another principal may repeat a command"""


async def check_repeat(
    session: Session,
    receipt: Receipt,
    key: str | None,
    *posted: UserMessage | ExtensionMessage,
    shown: Callable[[UserMessage], UserMessage] | None = None,
) -> None:
    """Check that a receipt is of the posted messages. Read the log only if the receipt is of a repeat.

    Entries that were trimmed or cannot be read are not compared.

    Args:
        session: the session.
        receipt: what the publish returned.
        key: the key of the publish, or the client's id that the key was made of. The error names it.
        posted: the messages that were to be published, in order.
        shown: returns a stored user message as clients of a protocol get it. Such a client may send it back in this
            form, which is a repeat too. None means that clients get messages as they are stored.

    Raises:
        KeyReused: the messages that the first publish with this key has stored are others.
        BusError: the log could not be read.
    """
    if not receipt.is_duplicate or key is None or not receipt.position:  # 0: the handover was not needed
        return
    if receipt.positions[0] <= (await session.head()).trimmed:
        return  # perhaps in the archive, of which whole segments would be read
    stored = dict[int, object]()
    try:
        entries = session.read(after=Cursor(receipt.positions[0] - 1), until=receipt.position)
        async with aclosing(entries):
            async for entry in entries:
                stored[entry.position] = entry.message
    except CursorTrimmed:
        return
    redact = session.resources.redaction.message
    if len(posted) != len(receipt.positions) or not all(
        _are_same(stored.get(position), redact(each))
        or (shown is not None and _is_shown(stored[position], each, shown))
        for position, each in zip(receipt.positions, posted, strict=True)
    ):
        raise KeyReused(session.id, key, receipt.positions)


def _are_same(found: object, posted: object) -> bool:
    return found is None or isinstance(found, DecodeFailure) or _content_of(found) == _content_of(posted)


def _is_shown(found: object, posted: object, shown: Callable[[UserMessage], UserMessage]) -> bool:
    return isinstance(found, UserMessage) and _content_of(shown(found)) == _content_of(posted)


def _content_of(message: object) -> object:
    """Return what a client has said with a message; None for a message of another kind."""
    match message:
        case UserMessage(content=content):
            return [_without_place(block) for block in content]
        case ExtensionMessage(kind=SessionAssigned.KIND as kind, data=Mapping() as data):
            # A handover that was not needed is answered with an earlier one, which may have another reason.
            return kind, data.get("agent")
        case ExtensionMessage(kind=kind, data=Mapping() as data):
            return kind, {name: value for name, value in data.items() if name not in _BY_SERVER}
        case _:
            return None


def _without_place(block: Block) -> object:
    """Return a block, with the SHA-256 or the address of its media: the bus moves large inline media to the media
    store."""
    match block:
        case ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media) | DocumentBlock(media=media):
            return block.type, media.sha256 or _digest(media) or media.url
        case _:
            return block


def _digest(media: MediaRef) -> str | None:
    return None if media.data is None else sha256(base64.b64decode(media.data)).hexdigest()
