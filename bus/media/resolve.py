"""Stored media looked up for a request: each once, verified, and inline or at a URL that the provider may read."""

import base64
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import anyio

from lanebus.bus.errors import BusError, InvalidMediaKey, MediaDamaged, MediaMissing, NoMediaStore
from lanebus.bus.media.agentflow import key_of
from lanebus.bus.media.bounds import DEFAULT_MEDIA_BOUNDS, MediaBounds
from lanebus.bus.media.store import MediaHead, MediaStore, SigningStore
from lanebus.bus.messages.content import (
    AudioBlock,
    Block,
    DataBlock,
    DocumentBlock,
    ImageBlock,
    ToolResultBlock,
    VideoBlock,
)
from lanebus.bus.messages.media import MediaRef, sniff
from lanebus.bus.messages.message import LlmMessage

__all__ = ("RESOLVE_LIMIT_BYTES", "media_of", "resolve_media")

RESOLVE_LIMIT_BYTES = 32 * 1_048_576
"""What is put inline for one request, decoded; providers take no more."""

T = TypeVar("T")

_NO_KEYS: Mapping[str, MediaRef] = {}

_log = logging.getLogger(__name__)


async def resolve_media(
    messages: Iterable[LlmMessage],
    store: MediaStore | None,
    *,
    sign_seconds: float | None = None,
    keys: Mapping[str, MediaRef] = _NO_KEYS,
    limit_bytes: int = RESOLVE_LIMIT_BYTES,
    bounds: MediaBounds = DEFAULT_MEDIA_BOUNDS,
) -> dict[str, MediaRef]:
    """What the messages' references into the store stand for: the option `media` of a provider's form.

    Media that are missing or damaged, or beyond `limit_bytes` counted from the newest message, are left out: the form
    then warns of them by their place.

    Args:
        messages: such as `context.messages`.
        sign_seconds: give URLs that hold for so long, where the store can; None puts all inline. Not every provider
            reads every kind of media from a URL.
        keys: what seed 003's `agentflow:` keys stand for.

    Returns:
        `MediaRef.address` of a reference → the same media inline, or at a URL.

    Raises:
        NoMediaStore: there are such references and no store.
        Unavailable, SetupError: the store cannot be reached, or does not let us in.
    """
    wanted = {media.address: media for message in messages for media in media_of(message) if media.address}
    if not wanted:
        return {}
    if store is None:
        raise NoMediaStore(next(iter(wanted)))
    stored = {address: _stored(media, keys) for address, media in wanted.items()}
    digests = list(dict.fromkeys(media.sha256 for media in reversed(stored.values()) if media and media.sha256))
    heads = dict(zip(digests, await _together(store.head, digests, bounds.together), strict=True))
    found: dict[str, MediaRef] = {}
    if sign_seconds is not None and isinstance(store, SigningStore):
        found = await _signed(store, heads, sign_seconds, bounds.together)
    chosen = _within({digest: head for digest, head in heads.items() if digest not in found}, limit_bytes)
    datas = await _together(lambda digest: _read(store, digest), chosen, bounds.together)
    found |= {digest: _inline(data) for digest, data in zip(chosen, datas, strict=True) if data is not None}
    return {
        address: _with_type(found[media.sha256], wanted[address].mime_type or media.mime_type)
        for address, media in stored.items()
        if media is not None and media.sha256 in found
    }


def media_of(message: LlmMessage) -> Iterator[MediaRef]:
    """Every reference to media in a message, also inside of results, in order."""
    return _media_of(message.content)


def _media_of(content: Iterable[Block]) -> Iterator[MediaRef]:
    for block in content:
        match block:
            case ToolResultBlock():
                yield from _media_of(block.content)
            case ImageBlock() | AudioBlock() | VideoBlock() | DocumentBlock():
                yield block.media
                if isinstance(block, VideoBlock) and block.thumbnail is not None:
                    yield block.thumbnail
            case DataBlock(media=MediaRef() as media):
                yield media
            case _:
                pass


def _stored(media: MediaRef, keys: Mapping[str, MediaRef]) -> MediaRef | None:
    """The reference by content that this one is or stands for."""
    if media.kind == "sha256":
        return media
    try:
        return keys.get(key_of(media.url or ""))
    except InvalidMediaKey:
        return None


def _within(heads: Mapping[str, MediaHead | None], limit_bytes: int) -> list[str]:
    """As many as there is room for, in their order."""
    chosen: list[str] = []
    for digest, head in heads.items():
        if head is None:
            _log.warning("%s", MediaMissing(digest))
        elif head.size_bytes > limit_bytes:
            _log.warning("media %s of %d bytes are over what one request may hold", digest, head.size_bytes)
        else:
            limit_bytes -= head.size_bytes
            chosen.append(digest)
    return chosen


async def _signed(
    store: SigningStore, heads: Mapping[str, MediaHead | None], seconds: float, together: int
) -> dict[str, MediaRef]:
    digests = [digest for digest, head in heads.items() if head is not None]
    urls = await _together(lambda digest: store.sign(digest, seconds=seconds), digests, together)
    return {
        digest: MediaRef(kind="url", url=url, sha256=digest)
        for digest, url in zip(digests, urls, strict=True)
        if url is not None
    }


async def _read(store: MediaStore, digest: str) -> bytes | None:
    try:
        return await store.get(digest)
    except (MediaMissing, MediaDamaged) as error:
        _log.warning("%s", error)
        return None


def _inline(data: bytes) -> MediaRef:
    encoded = base64.b64encode(data).decode("ascii")
    return MediaRef(kind="data", data=encoded, mime_type=sniff(data), size_bytes=len(data))


def _with_type(media: MediaRef, mime_type: str | None) -> MediaRef:
    return media if media.mime_type else media.model_copy(update={"mime_type": mime_type})


async def _together(step: Callable[[str], Awaitable[T]], digests: Sequence[str], together: int) -> list[T]:
    """The step's result for each, `together` under way at a time.

    Raises:
        BusError: of the first that failed; out of a task group it would come inside of another one.
    """
    limiter = anyio.CapacityLimiter(together)
    results: dict[str, T] = {}
    failures: list[BusError] = []

    async def one(digest: str) -> None:
        async with limiter:
            try:
                results[digest] = await step(digest)
            except BusError as error:
                failures.append(error)

    async with anyio.create_task_group() as tasks:
        for digest in digests:
            tasks.start_soon(one, digest)
    if failures:
        raise failures[0]
    return [results[digest] for digest in digests]
