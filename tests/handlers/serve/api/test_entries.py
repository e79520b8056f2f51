"""Ranges of entries, stored media that they refer to, and filtered event streams."""

import hashlib
import json
from collections.abc import Awaitable, Callable

import anyio
import pytest

from lanebus import Bus, Delta, ExtensionMessage, UserMessage
from lanebus.handlers.serve.api.entries import refers_to_media
from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.messages import DocumentBlock, ImageBlock, MediaRef, ToolResultMessage
from tests.support.page.serving import client_of, serving
from tests.support.serve import DEFAULT_UI_BOUNDS, Client, UiBounds, api, error_of

ENTRIES, EVENTS = "/api/sessions/s1/entries", "/api/sessions/s1/events"


@pytest.fixture
async def s1(bus: Bus) -> None:
    """Fill the session s1 with 12 entries: a user message at each third position, else ticks."""
    for at in range(1, 13):
        message = ExtensionMessage.of("tick.a" if at % 2 else "tick.b", at) if at % 3 else UserMessage.text(str(at))
        await bus.session("s1").publish(message)


with_s1 = pytest.mark.usefixtures("s1")


async def positions(client: Client, query: str) -> list[int]:
    reply = await client.get(f"{ENTRIES}?{query}")
    assert reply.status_code == 200, reply.text
    return [entry["position"] for entry in reply.json()["entries"]]


@with_s1
async def test_entries_are_chosen_by_position_lane_kind_and_the_time_of_their_append(client: Client) -> None:
    for query, expected in {
        "after=3&until=5": [4, 5],
        "before=5&limit=2": [3, 4],
        "after=2&before=5&limit=9": [3, 4],
        "after=3&limit=2": [4, 5],
        "lanes=llm": [3, 6, 9, 12],
        "kinds=user": [3, 6, 9, 12],
        "kinds=tick.a,user&after=6": [7, 9, 11, 12],
        "kinds=tick.*&lanes=extension&until=4": [1, 2, 4],
        "kinds=of_no_message": [],
        "since=2000-01-01T00:00:00Z&beforeTime=2200-01-01T00:00:00%2B02:00": [*range(1, 13)],
        "since=9999999999": [],
    }.items():
        assert await positions(client, query) == expected, query
    entries = (await client.get(ENTRIES)).json()["entries"]
    for at in (0, 5, 11):
        moment = entries[at]["time"]
        after = [entry["position"] for entry in entries if entry["time"] >= moment]
        assert await positions(client, f"since={moment}") == after
        assert await positions(client, f"beforeTime={moment}") == [*range(1, after[0])]


@with_s1
async def test_entries_after_the_end_or_of_another_log_are_refused_with_the_last_position(client: Client) -> None:
    for query in ("after=13", "after=9999&limit=5", "after=13&lanes=llm", "after=5-0.0_other", "after=12-0.0_other"):
        reply = await client.get(f"{ENTRIES}?{query}")
        assert error_of(reply) == (409, "log_rolled_back"), query
        assert "other" in query or "unchanged up to 12" in reply.json()["detail"]
    end = (await client.get(f"{ENTRIES}?after=12")).json()
    assert (end["entries"], end["more"]) == ([], False)
    assert (await client.get(f"{ENTRIES}?after={end['cursor']}")).status_code == 200


@with_s1
async def test_pages_backwards_return_every_entry_once_and_name_the_previous_one(client: Client) -> None:
    page = (await client.get(f"{ENTRIES}?before=12&limit=2&kinds=user")).json()
    assert (page["entries"], page["previous"]) == ([], 10)
    found = list[int]()
    before: int | None = 13
    while before is not None:
        reply = (await client.get(f"{ENTRIES}?before={before}&limit=5&kinds=tick.*")).json()
        found = [entry["position"] for entry in reply["entries"]] + found
        assert reply["previous"] is None or reply["previous"] < before
        before = reply["previous"]
    assert found == [1, 2, 4, 5, 7, 8, 10, 11]


@with_s1
async def test_a_parameter_of_a_wrong_form_is_refused(client: Client) -> None:
    for query in (
        *("before=0", "before=x", "limit=-1", "limit=1e3", "since=x", "since=nan", "since=2026-01-31T12:00:00"),
        *("beforeTime=-1", "kinds=,", "kinds=user,", "lanes=all,llm", "lanes=lll", "lanes=llm,"),
    ):
        assert error_of(await client.get(f"{ENTRIES}?{query}")) == (400, "invalid_parameter"), query
    for query in ("after=x", "until=1-2-3"):
        assert (await client.get(f"{ENTRIES}?{query}")).status_code == 400


async def test_only_an_imported_entry_says_that_it_was_imported(bus: Bus, client: Client) -> None:
    await bus.session("s1").publish(UserMessage.text("there"), imported=True)
    await bus.session("s1").publish(UserMessage.text("here"))
    imported, own = (await client.get(ENTRIES)).json()["entries"]
    assert (imported["isImported"], "isImported" in own) == (True, False)


async def test_an_answer_has_at_most_a_thousand_entries_and_continues_after_a_cursor(bus: Bus, client: Client) -> None:
    await bus.session("s1").publish(*(ExtensionMessage.of("tick", number) for number in range(1, 1201)))
    assert await positions(client, "until=5000") == [*range(1, 1001)]
    bounds = UiBounds(answer_bytes=2_000, read_bytes=1_000)
    async with serving(bus, bounds=bounds) as served, client_of(served) as tight:
        await bus.session("s").publish(*[ExtensionMessage.of("big", "x" * 400) for _ in range(40)])
        found, after, answers, more = list[int](), "0", 0, True
        while more:
            reply = await tight.get("/api/sessions/s/entries", params={"after": after})
            assert len(reply.content) < 4_000
            answer = reply.json()
            found += [entry["position"] for entry in answer["entries"]]
            after, more, answers = answer["cursor"], answer["more"], answers + 1
        assert found == [*range(1, 41)]
        assert answers > 5
        for lanes, count in (("llm", 0), ("extension", 4), ("llm,extension", 4)):
            answer = (await tight.get("/api/sessions/s/entries", params={"lanes": lanes, "until": "4"})).json()
            assert (len(answer["entries"]), answer["more"]) == (count, False)
            assert answer["cursor"].partition(".")[0] == "4-0"


# --- streams --------------------------------------------------------------------------------------------------------


async def frames(
    client: Client, query: str, *, until: str, caught_up: Callable[[], Awaitable[object]] | None = None
) -> list[tuple[str, str]]:
    """Return the events and ids of a stream until an event, or until a message with this data.

    A frame that has only an id is "moved". `caught_up` is called once when the stream has caught up.
    """
    found, lines = list[tuple[str, str]](), list[str]()
    with anyio.fail_after(60):
        async with client.stream("GET", f"{EVENTS}?{query}") as reply:
            assert reply.status_code == 200
            async for line in reply.aiter_lines():
                if line:
                    lines.append(line)
                    continue
                fields = dict(each.split(": ", 1) for each in lines if not each.startswith(":"))
                lines.clear()
                if not fields:
                    continue
                data = json.loads(fields.get("data", "{}"))
                name = fields.get("event", "moved")
                found.append((name, fields["id"].split(".")[0]))
                if name == until or data.get("message", {}).get("data") == until:
                    break
                if name == "caughtup" and caught_up is not None:
                    await caught_up()
    return found


@with_s1
async def test_a_stream_sends_the_extension_lane_unless_others_are_chosen(client: Client) -> None:
    for query, expected in (
        ("", [1, 2, 4, 5, 7, 8, 10, 11]),
        ("lanes=llm", [3, 6, 9, 12]),
        ("lanes=all", [*range(1, 13)]),
        ("lanes=all&kinds=tick.b,user&after=5", [6, 8, 9, 10, 12]),
    ):
        found = await frames(client, query, until="caughtup")
        assert [int(id.partition("-")[0]) for name, id in found if name == "entry"] == expected


@with_s1
async def test_a_filtered_stream_moves_its_cursor_past_what_it_leaves_out(bus: Bus) -> None:
    async def publish() -> None:
        for at in range(13, 17):
            await bus.session("s1").publish(ExtensionMessage.of("tick.a", at))
        await bus.session("s1").publish(ExtensionMessage.of("mark", "over"))

    async with serving(bus, bounds=UiBounds(skipped_entries=3)) as served, client_of(served) as client:
        found = await frames(client, "kinds=mark", until="over", caught_up=publish)
    assert ("moved", "12-0") in found[: found.index(("caughtup", "12-0"))]  # past the stored entries
    assert found[-2:] == [("moved", "15-0"), ("entry", "17-0")]


@with_s1
@pytest.mark.parametrize(("live", "events"), [("true", {"delta", "entry"}), ("false", {"entry"})])
async def test_live_deltas_are_sent_unless_the_client_wants_none(
    bus: Bus, client: Client, live: str, events: set[str]
) -> None:
    async def publish() -> None:
        await bus.session("s1").preview(Delta(kind="text", message_id="m1", delta="x"))
        await bus.session("s1").publish(ExtensionMessage.of("mark", "over"))

    found = await frames(client, f"lanes=all&after=12&live={live}", until="over", caught_up=publish)
    assert {name for name, _ in found[1:]} - {"caughtup"} == events


# --- limits and parameters of every endpoint -------------------------------------------------------------------------


async def test_a_limit_over_the_maximum_counts_as_the_maximum() -> None:
    async with api(bounds=UiBounds(page_entries=3, sessions=1)) as (bus, client):
        for name in ("s2", "s1"):
            await bus.session(name).publish(*[UserMessage.text("hi")] * 4)
        page = (await client.get(f"{ENTRIES}?limit=9999")).json()
        assert ([entry["position"] for entry in page["entries"]], page["more"]) == ([1, 2, 3], True)
        listed = (await client.get("/api/sessions?limit=9999")).json()
        assert (listed["count"], len(listed["sessions"]), listed["cursor"] is None) == (2, 1, False)
    maximum = {"entries": DEFAULT_UI_BOUNDS.page_entries, "turns": DEFAULT_UI_BOUNDS.turns}
    maximum |= {"sessions": DEFAULT_UI_BOUNDS.sessions, "waiting": DEFAULT_UI_BOUNDS.sessions}
    maximum |= {"timeline": DEFAULT_UI_BOUNDS.turns}
    said = {each.path: every.description for each in endpoints() for every in each.parameters if every.name == "limit"}
    assert {path.rpartition("/")[2] for path in said} == maximum.keys()
    assert all(f"counts as {maximum[path.rpartition('/')[2]]:,}" in text for path, text in said.items())


async def test_every_endpoint_refuses_an_unknown_and_a_repeated_parameter_by_name(client: Client) -> None:
    values = {"session": "s1", "agent": "a", "sha256": "0" * 64, "turn": "main.1%230", "name": "usage"}
    for each in endpoints():
        if each.is_file:
            continue
        path = each.path.replace("{position:int}", "1").format(**values)
        reply = await client.request(each.method, f"{path}?lane=llm")
        assert error_of(reply) == (400, "unknown_parameter"), each.path
        assert all(parameter.name in reply.text for parameter in each.parameters)
        for parameter in each.parameters:
            reply = await client.request(each.method, f"{path}?{parameter.name}=1&{parameter.name}=1")
            assert error_of(reply) == (400, "repeated_parameter")
    assert (await client.get("/?theme=dark")).status_code == 200


# --- stored media: only those that an entry of the session refers to --------------------------------------------------

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)
SECRET = b"%PDF-1.7\n" + b"secret" * 10_000
HTML = b"<!doctype html><script>alert(1)</script>" + b" " * 60_000


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def shown(data: bytes) -> UserMessage:
    return UserMessage(content=(ImageBlock(media=MediaRef.from_bytes(data)),))


def path(session: str, position: int | str, data: bytes) -> str:
    return f"/api/sessions/{session}/entries/{position}/media/{sha256_of(data)}"


async def test_media_are_served_to_a_client_that_names_an_entry_that_refers_to_them(bus: Bus, client: Client) -> None:
    document = DocumentBlock(media=MediaRef.from_bytes(SECRET))
    markup = DocumentBlock(media=MediaRef.from_bytes(HTML, mime_type="text/html"))
    await bus.session("s").publish(
        shown(PICTURE), ToolResultMessage(tool_call_id="a", content=(document,)), UserMessage(content=(markup,))
    )
    await bus.session("s").fork(2, id="f")
    for session, position, data, kind in (
        ("s", 1, PICTURE, "image/png"),
        ("s", 2, SECRET, "application/octet-stream"),
        ("f", 2, SECRET, "application/octet-stream"),
        ("s", 3, HTML, "application/octet-stream"),  # never as a page
    ):
        reply = await client.get(path(session, position, data))
        assert (reply.status_code, reply.content, reply.headers["content-type"]) == (200, data, kind)
        assert reply.headers["content-disposition"] == "attachment"
        assert reply.headers["x-content-type-options"] == "nosniff"
    for wrong in ("-1", "x", "1.0", "²", ""):
        assert (await client.get(path("s", wrong, PICTURE))).status_code == 404


async def test_media_of_another_session_are_not_served_by_their_sha256(bus: Bus, client: Client) -> None:
    await bus.session("private").publish(shown(SECRET))
    await bus.session("s").publish(UserMessage.text(f'{{"sha256":"{sha256_of(SECRET)}"}}'), shown(PICTURE))
    await bus.session("s").publish(ExtensionMessage.of("x.y", {"sha256": sha256_of(SECRET)}))
    for position in (0, 1, 2, 3, 4, 999, 10**30):
        assert error_of(await client.get(path("s", position, SECRET))) == (404, "not_found"), position
    assert (await client.get(path("private", 1, SECRET))).content == SECRET


async def test_media_that_are_too_large_deleted_or_of_an_erased_session_are_refused_by_name() -> None:
    async with api(bounds=UiBounds(media_bytes=len(PICTURE) - 1)) as (bus, client):
        await bus.session("s").publish(shown(PICTURE))
        assert error_of(await client.get(path("s", 1, PICTURE))) == (413, "media_too_large")
        await bus.media.delete(sha256_of(PICTURE))
        assert (await client.get(path("s", 1, PICTURE))).status_code == 404
        await bus.session("s").erase()
        assert error_of(await client.get(path("s", 1, PICTURE))) == (409, "session_erased")


async def test_the_check_reads_one_position_of_a_long_session(bus: Bus) -> None:
    async def bytes_sent() -> int:
        info = await bus.log.call("INFO", "stats")
        assert isinstance(info, bytes)
        return int(info.split(b"total_net_output_bytes:")[1].split()[0])

    session = bus.session("s")
    await session.publish(*(UserMessage.text("x") for _ in range(400)), shown(PICTURE))
    before = await bytes_sent()
    assert await refers_to_media(session, 401, sha256_of(PICTURE))
    assert await bytes_sent() - before < 20_000
