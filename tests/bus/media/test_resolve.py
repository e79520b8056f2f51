"""Media that messages refer to are loaded once, verified, and returned inline or as a URL."""

import base64
import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import ImageBlock, MediaRef, TextBlock, ToolResultMessage, Unavailable, UserMessage
from lanebus.bounds import MediaBounds
from lanebus.bus.errors import InvalidMediaKey, NoMediaStore
from lanebus.bus.media.store import offloaded
from lanebus.bus.messages import DataBlock
from lanebus.errors import MediaMissing
from lanebus.handlers.providers.request import Target
from lanebus.media import KeyedMedia, ObjectMedia, as_agentflow, media_of, resolve_media
from lanebus.messages import AudioBlock, Block, DocumentBlock, ToolResultBlock, VideoBlock
from tests.support.servers.real import shortly

if TYPE_CHECKING:
    from obstore.store import S3Store

PNG = b"\x89PNG\r\n\x1a\ncat"
PDF = b"%PDF-1.7 dog"


class Watched(ObjectMedia):
    """A store in memory that counts what is got, and how much of it at a time."""

    def __init__(self) -> None:
        from obstore.store import MemoryStore

        self.objects = MemoryStore()
        super().__init__(self.objects)
        self.gets: Counter[str] = Counter()
        self.under_way = self.most = 0

    async def get(self, sha256: str) -> bytes:
        self.gets[sha256] += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await anyio.lowlevel.checkpoint()
        try:
            return await super().get(sha256)
        finally:
            self.under_way -= 1


def reference(data: bytes, /, **known: str | int) -> MediaRef:
    return MediaRef.model_validate({"kind": "sha256", "sha256": hashlib.sha256(data).hexdigest(), **known})


def image(media: MediaRef) -> ImageBlock:
    return ImageBlock(media=media)


def inline(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def stored(*datas: bytes) -> Watched:
    store = Watched()
    for data in datas:
        await store.put_if_absent(data)
    return store


def shows(*media: MediaRef) -> list[UserMessage]:
    """Return one message with these images."""
    return [UserMessage.of(*map(image, media))]


async def test_each_reference_is_loaded_once_wherever_it_occurs() -> None:
    store = await stored(PNG, PDF)
    messages = [
        UserMessage.of(image(reference(PNG)), "and", image(MediaRef.from_url("https://host/a.png"))),
        ToolResultMessage(tool_call_id="a", content=(image(reference(PNG)), DataBlock(mime_type="x/y"))),
        UserMessage.of(
            ToolResultBlock(
                tool_call_id="b",
                content=(VideoBlock(media=MediaRef.from_bytes(b"v"), thumbnail=reference(PDF)), image(reference(PNG))),
            )
        ),
    ]
    found = await resolve_media(messages, store)
    assert {address: media.data for address, media in found.items()} == {
        reference(PNG).sha256: inline(PNG),
        reference(PDF).sha256: inline(PDF),
    }
    assert store.gets == Counter({reference(PNG).sha256: 1, reference(PDF).sha256: 1})
    assert [media.kind for message in messages for media in media_of(message)] == [
        *("sha256", "url", "sha256", "data", "sha256", "sha256")
    ]


async def test_resolved_media_have_the_detected_type_or_else_the_declared_one() -> None:
    store = await stored(PNG, b"words", b"more")
    html, plain = reference(PNG, mime_type="text/html"), reference(b"words", mime_type="text/plain")
    found = await resolve_media(shows(html, plain, reference(b"more")), store)
    assert [media.mime_type for media in found.values()] == ["image/png", "text/plain", None]


async def test_without_references_no_store_is_needed_or_asked() -> None:
    messages = [UserMessage.text("a"), UserMessage.of(image(MediaRef.from_bytes(PNG)))]
    assert await resolve_media(messages, None) == {}
    with pytest.raises(NoMediaStore):
        await resolve_media(shows(reference(PNG)), None)


async def test_missing_and_damaged_media_stay_unresolved(caplog: pytest.LogCaptureFixture) -> None:
    import obstore

    store = await stored(PNG)
    damaged = reference(PDF)
    await obstore.put_async(store.objects, f"lanebus/sha256/{(damaged.sha256 or '')[:2]}/{damaged.sha256}", b"other")
    messages = shows(reference(PNG), damaged, reference(b"never put"))
    assert [*await resolve_media(messages, store)] == [reference(PNG).sha256]
    assert "damaged" in caplog.text
    assert "not found" in caplog.text


async def test_a_store_that_cannot_be_reached_is_no_missing_media() -> None:
    class Gone(Watched):
        async def get(self, sha256: str) -> bytes:
            raise Unavailable(sha256)

    store = Gone()
    await store.put_if_absent(PNG)
    with pytest.raises(Unavailable):
        await resolve_media(shows(reference(PNG)), store)


async def test_the_newest_media_come_first_if_not_all_fit() -> None:
    old, middle, new = (bytes([number]) * 100 for number in range(3))
    store = await stored(old, middle, new)
    messages = [UserMessage.of(image(reference(data))) for data in (old, middle, new)]
    found = await resolve_media(messages, store, limit_bytes=250)
    assert {*found} == {reference(middle).sha256, reference(new).sha256}
    assert store.gets[reference(old).sha256 or ""] == 0
    # The size that a message declares is not trusted.
    assert await resolve_media(shows(reference(new, size_bytes=1)), store, limit_bytes=5) == {}


@pytest.mark.parametrize("most", [1, 3])
async def test_lookups_are_concurrent_up_to_the_bound(most: int) -> None:
    datas = [bytes([number]) for number in range(40)]
    store = await stored(*datas)
    async with shortly():
        found = await resolve_media(shows(*map(reference, datas)), store, bounds=MediaBounds(loads_at_once=most))
    assert len(found) == 40
    assert store.most == most


async def test_a_signing_store_returns_urls_and_reads_no_media(s3: "S3Store") -> None:
    store = ObjectMedia(s3)
    await store.put_if_absent(PNG, mime_type="image/png")
    messages = shows(reference(PNG, mime_type="image/png"), reference(b"never put"))
    found = await resolve_media(messages, store, sign_seconds=60)
    (media,) = found.values()
    assert (media.kind, media.mime_type, media.data) == ("url", "image/png", None)
    assert "X-Amz-Signature" in (media.url or "")


async def test_a_store_that_cannot_sign_returns_all_media_inline() -> None:
    found = await resolve_media(shows(reference(PNG)), await stored(PNG), sign_seconds=60)
    assert [media.data for media in found.values()] == [inline(PNG)]


# --- there and back -----------------------------------------------------------------------------------------------

references = st.binary(min_size=1, max_size=30).map(MediaRef.from_bytes) | st.just(MediaRef.from_url("https://host/a"))
leaves = st.one_of(
    st.builds(ImageBlock, media=references),
    st.builds(AudioBlock, media=references),
    st.builds(DocumentBlock, media=references),
    st.builds(VideoBlock, media=references, thumbnail=st.none() | references),
    (st.none() | references).map(lambda media: DataBlock(mime_type="x/y", media=media)),
    st.builds(TextBlock, text=st.text(max_size=5)),
)
blocks = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3).map(
        lambda content: ToolResultBlock(tool_call_id="a", content=tuple(content))
    ),
    max_leaves=6,
)


@pytest.mark.full
@given(st.lists(blocks, max_size=4), st.integers(0, 31))
async def test_stored_media_reach_a_request_unchanged(content: list[Block], limit: int) -> None:
    from obstore.store import MemoryStore

    store = ObjectMedia(MemoryStore())
    before = UserMessage(content=tuple(content))
    after = await offloaded(before, store, limit_bytes=limit)
    target = Target(provider="p", model="m", media=await resolve_media([after], store))
    for old, new in zip(media_of(before), media_of(after), strict=True):
        assert new.kind == ("sha256" if old.kind == "data" and old.inline_size_bytes >= limit else old.kind)
        shown = target.resolved(new)
        assert (shown.kind, shown.url, shown.data, shown.mime_type) == (old.kind, old.url, old.data, old.mime_type)
    assert await offloaded(after, store, limit_bytes=limit) is after


# --- keys of seed 003 ---------------------------------------------------------------------------------------------


async def test_an_agentflow_key_resolves_to_the_callers_media() -> None:
    keyed = KeyedMedia(await stored())
    key = await keyed.put(PNG)
    assert await keyed.put(PNG) == key
    assert await keyed.get(key) == (PNG, "image/png")
    url = f"agentflow://media/{key}"
    messages = shows(MediaRef.from_url(url), MediaRef.from_url("agentflow://media/other"))
    store = await stored(PNG)
    found = await resolve_media(messages, store, keys=keyed.keys)
    assert {address: media.data for address, media in found.items()} == {url: inline(PNG)}
    assert await resolve_media(messages, store) == {}


async def test_the_same_media_under_two_addresses_are_read_once() -> None:
    store = await stored(PNG)
    messages = shows(reference(PNG), MediaRef.from_url("agentflow://media/k"))
    assert len(await resolve_media(messages, store, keys={"k": reference(PNG)})) == 2
    assert store.gets == Counter({reference(PNG).sha256: 1})


async def test_a_text_that_is_no_key_is_not_looked_up() -> None:
    keyed = KeyedMedia(await stored())
    with pytest.raises(InvalidMediaKey):
        await keyed.get("../../etc/passwd")
    with pytest.raises(MediaMissing):
        await keyed.get("nobody")
    odd = MediaRef.from_url("agentflow://media/..%2f..%2fetc")
    assert await resolve_media(shows(odd), await stored(), keys=keyed.keys) == {}


def test_a_reference_is_written_as_seed_003_does() -> None:
    media = reference(PNG, mime_type="image/png", width=8)
    written = as_agentflow(media)
    assert written.url == f"agentflow://media/{(media.sha256 or '')[:32]}"
    assert (written.kind, written.width, written.sha256) == ("url", 8, media.sha256)
    assert as_agentflow(MediaRef.from_bytes(PNG)) == MediaRef.from_bytes(PNG)
    with pytest.raises(InvalidMediaKey):
        as_agentflow(media, "a/b")
