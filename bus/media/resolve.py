"""Load the stored media that messages refer to, inline or as a signed URL, for a request to a model; and files."""

import base64
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from lanebus.bus.concurrency import run_in_thread
from lanebus.bus.errors import (
    BusError,
    InvalidMediaKey,
    MediaDamaged,
    MediaMissing,
    NoMediaStore,
    require_count,
    require_seconds,
    require_text,
)
from lanebus.bus.media.store import DEFAULT_MEDIA_BOUNDS, MediaBounds, MediaHead, MediaStore, SigningStore
from lanebus.bus.messages.content import (
    FILE_LIMIT_BYTES,
    AudioBlock,
    Block,
    DataBlock,
    DocumentBlock,
    ImageBlock,
    MediaRef,
    ToolResultBlock,
    VideoBlock,
    sniff,
)
from lanebus.bus.messages.message import LlmMessage

RESOLVE_LIMIT_BYTES = 32 * 1_048_576
"""Default limit on the decoded bytes of inline media in one provider request. Providers accept no more."""

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
    """Load the media that messages refer to, for `RequestOptions.media` of a provider request.

    Media that several messages refer to are loaded and verified once. Media that are missing, damaged or over
    `limit_bytes` are logged and left out; the provider request then has a warning for each of them.

    Args:
        messages: the messages, such as `context.messages`.
        store: the media store, such as `bus.media`. None is allowed if no message refers to stored media.
        sign_seconds: if the store can sign URLs, return URLs that are valid for this many seconds. None loads all media
            inline. Not every provider accepts URLs for every kind of media.
        keys: the media that `agentflow:` URLs refer to, see `KeyedMedia.keys`.
        limit_bytes: maximum number of decoded bytes to load inline. Media of the newest messages are loaded first.
        bounds: how many media to load at the same time.

    Returns:
        The loaded media by `MediaRef.address`, each inline or at a URL.

    Raises:
        NoMediaStore: a message refers to stored media, and `store` is None.
        Unavailable: the store cannot be reached.
        SetupError: the store refused access.
    """
    require_seconds("sign_seconds", sign_seconds, is_positive=True, is_optional=True)
    require_count("limit_bytes", limit_bytes)
    messages = tuple(messages)
    wanted = {media.address: media for message in messages for media in media_of(message) if media.address}
    if not wanted:
        return {}
    if store is None:
        raise NoMediaStore(next(iter(wanted)))
    stored = {address: _stored(media, keys) for address, media in wanted.items()}
    digests = list(dict.fromkeys(media.sha256 for media in reversed(stored.values()) if media and media.sha256))
    heads = dict(zip(digests, await _together(store.head, digests, bounds.loads_at_once), strict=True))
    found: dict[str, MediaRef] = {}
    if sign_seconds is not None and isinstance(store, SigningStore):
        found = await _signed(store, heads, sign_seconds, bounds.loads_at_once)
    chosen = _within({digest: head for digest, head in heads.items() if digest not in found}, limit_bytes)
    datas = await _together(lambda digest: _read(store, digest), chosen, bounds.loads_at_once)
    found |= {digest: _inline(data) for digest, data in zip(chosen, datas, strict=True) if data is not None}
    return {
        address: _with_type(found[media.sha256], wanted[address].mime_type or media.mime_type)
        for address, media in stored.items()
        if media is not None and media.sha256 in found
    }


def media_of(message: LlmMessage) -> Iterator[MediaRef]:
    """Yield every media reference in a message in order, including references in tool results."""
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
    """Return a reference that has the SHA-256 of stored media.

    This is `media` itself, or the reference in `keys` for its `agentflow:` URL. None means that `keys` lacks the URL.
    """
    if media.kind == "sha256":
        return media
    try:
        return keys.get(key_of(media.url or ""))
    except InvalidMediaKey:
        return None


def _within(heads: Mapping[str, MediaHead | None], limit_bytes: int) -> list[str]:
    """Return the digests of the media that fit in `limit_bytes`, in order. Log the media that are left out."""
    chosen: list[str] = []
    for digest, head in heads.items():
        if head is None:
            _log.warning("%s", MediaMissing(digest))
        elif head.size_bytes > limit_bytes:
            _log.warning("media %s left out: %d bytes do not fit into the request", digest, head.size_bytes)
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
    """Await `step` for each digest, `together` at a time, and return the results in order.

    Raises:
        BusError: the first error that a step raised, as it is and not in an exception group.
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


# Media references in agentflow's form, `agentflow://media/<key>`, on top of a media store.
#
# Source: the second graph format (see `bus/messages`). In that format, keys are random, and the declared checksums are
# never computed. Here a key is the beginning of the SHA-256, so the same media always get the same key.

_PREFIX = "agentflow://media/"
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY_LENGTH = 32


class KeyedMedia:
    """Stores and loads media under agentflow keys.

    The caller must keep the mapping `keys`, because the media store knows media only by their SHA-256.
    """

    def __init__(self, store: MediaStore, keys: MutableMapping[str, MediaRef] | None = None) -> None:
        """Use a media store.

        Args:
            store: the store that holds the bytes.
            keys: mapping from key to reference, to which `put` adds. None starts with an empty mapping.
        """
        self._store = store
        self.keys: MutableMapping[str, MediaRef] = {} if keys is None else keys

    async def put(self, data: bytes, mime_type: str | None = None) -> str:
        """Store bytes and return their key.

        Args:
            data: the bytes.
            mime_type: MIME type of the bytes. None detects the type from the first bytes; an unknown type becomes
                `application/octet-stream`.

        Raises:
            BusError: as for `MediaStore.put_if_absent`.
        """
        known = mime_type or sniff(data) or "application/octet-stream"
        sha256 = await self._store.put_if_absent(data, mime_type=known)
        key = sha256[:_KEY_LENGTH]
        self.keys[key] = MediaRef(kind="sha256", sha256=sha256, mime_type=known, size_bytes=len(data))
        return key

    async def get(self, key: str) -> tuple[bytes, str]:
        """Return the bytes under a key, and their MIME type.

        Raises:
            InvalidMediaKey: `key` does not match `[A-Za-z0-9_-]{1,64}`.
            MediaMissing: `key` is not in `keys`.
            BusError: as for `MediaStore.get`.
        """
        if (media := self.keys.get(_checked(key))) is None:
            raise MediaMissing(key)
        data = await self._store.get(media.sha256 or "")
        return data, media.mime_type or sniff(data) or "application/octet-stream"


def as_agentflow(media: MediaRef, key: str | None = None) -> MediaRef:
    """Return a reference with an `agentflow://media/<key>` URL in place of its SHA-256.

    Args:
        media: the reference. A reference that does not refer to a media store is returned unchanged.
        key: the key to use. None means the first 32 digits of the SHA-256.

    Raises:
        InvalidMediaKey: `key` does not match `[A-Za-z0-9_-]{1,64}`.
    """
    require_text("key", key, is_optional=True)
    if media.kind != "sha256":
        return media
    url = _PREFIX + _checked(key or (media.sha256 or "")[:_KEY_LENGTH])
    return media.model_copy(update={"kind": "url", "url": url})


def key_of(url: str) -> str:
    """Return the key in an `agentflow://media/<key>` URL.

    Raises:
        InvalidMediaKey: the URL does not have this form.
    """
    if not url.startswith(_PREFIX):
        raise InvalidMediaKey(url)
    return _checked(url.removeprefix(_PREFIX))


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise InvalidMediaKey(key)
    return key


async def media_from_file(
    path: Path | str,
    *,
    mime_type: str | None = None,
    limit_bytes: int = FILE_LIMIT_BYTES,
    within: Path | None = None,
) -> MediaRef:
    """Read a file as inline media, in a worker thread. See `MediaRef.from_file` for the arguments and errors.

    A cancelled call waits for the thread to end.
    """
    read = partial(MediaRef.from_file, path, mime_type=mime_type, limit_bytes=limit_bytes, within=within)
    return await run_in_thread(read)
