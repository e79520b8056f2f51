"""Forks, dead letters, trims, closing and reopening, over HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue

from lanebus import Bus, UserMessage
from lanebus.handlers.serve import Principal
from tests.support.page.serving import client_of, serving
from tests.support.serve import Client, UiBounds, client_at, error_of, signed

S = "/api/sessions/s1"


@pytest.fixture
async def bus(bus: Bus) -> Bus:
    """A bus whose session s1 has three entries."""
    await bus.session("s1").publish(*(UserMessage.text(text) for text in ("a", "b", "c")))
    return bus


@asynccontextmanager
async def limited(bus: Bus, folder: Path, *actions: str) -> AsyncGenerator[Client]:
    """Yield a client for the sessions `s1*`, where s1 has six entries and the fork s1-a."""
    files, token = signed(folder, Principal(name="ops", sessions=("s1*",), actions=actions))
    await bus.session("s1").publish(*(UserMessage.text(text) for text in "def"))
    await bus.session("s1").fork(2, id="s1-a")
    async with serving(bus, token_files=files) as served, client_at(served.base, token) as client:
        yield client


async def test_a_fork_shares_the_entries_up_to_its_position_and_is_listed_with_its_origin(client: Client) -> None:
    made = await client.post(f"{S}/forks", json={"position": 2, "id": "s2"})
    assert (made.status_code, made.json()) == (201, {"session": "s2", "parent": "s1", "position": 2})
    again = await client.post(f"{S}/forks", json={"position": 2, "id": "s2"})
    assert (again.status_code, again.json()) == (200, made.json())
    taken = await client.post(f"{S}/forks", json={"position": 1, "id": "s2"})
    assert error_of(taken) == (409, "session_exists")
    fork = {"session": "s2", "position": 2, "agent": "agent", "last": 2}
    assert (await client.get(f"{S}/forks")).json() == {"origin": None, "forks": [fork], "more": False}
    assert (await client.get("/api/sessions/s2/forks")).json()["origin"] == {"session": "s1", "position": 2}
    entries = (await client.get("/api/sessions/s2/entries")).json()["entries"]
    assert [entry["position"] for entry in entries] == [1, 2]


async def test_an_answer_has_a_bounded_number_of_forks(bus: Bus) -> None:
    for name in ("s4", "s2", "s3"):
        await bus.session("s1").fork(1, id=name)
    async with serving(bus, bounds=UiBounds(sessions=2)) as served, client_of(served) as client:
        answer = (await client.get(f"{S}/forks")).json()
    assert ([each["session"] for each in answer["forks"]], answer["more"]) == (["s2", "s3"], True)


async def test_a_repeat_with_the_same_key_is_the_same_fork_and_its_id_begins_as_the_sessions(client: Client) -> None:
    made = [await client.post(f"{S}/forks", json={"position": 1, **key}) for key in ({"key": "k"}, {"key": "k"}, {})]
    names = [each.json()["session"] for each in made]
    assert [each.status_code for each in made] == [201, 200, 201]
    assert names[0] == names[1] != names[2]
    assert all(name.startswith("s1-") for name in names)
    long = "s" * 64
    await client.post(f"/api/sessions/{long}/messages", json={"text": "x"})
    assert len((await client.post(f"/api/sessions/{long}/forks", json={})).json()["session"]) == 64


async def test_a_token_forks_only_into_sessions_that_it_allows_and_sees_only_those(bus: Bus, tmp_path: Path) -> None:
    async with limited(bus, tmp_path, "read", "fork") as client:
        await bus.session("s1").fork(1, id="secret")
        assert (await client.post(f"{S}/forks", json={"position": 1, "id": "other"})).status_code == 403
        assert (await client.post(f"{S}/forks", json={"position": 1, "id": "s1-mine"})).status_code == 201
        forks = (await client.get(f"{S}/forks")).json()["forks"]
        assert sorted(each["session"] for each in forks) == ["s1-a", "s1-mine"]


@pytest.mark.parametrize("hidden", ["a fork", "a fork of a fork"])
async def test_a_trim_names_and_deletes_nothing_of_forks_that_the_token_may_not_trim(
    bus: Bus, tmp_path: Path, hidden: str
) -> None:
    async with limited(bus, tmp_path, "read", "trim") as client:
        await bus.session("s1" if hidden == "a fork" else "s1-a").fork(2, id="x-secret")
        planned = await client.post(f"{S}/trim", json={"before": 4, "dryRun": True})
        told = planned.json()
        assert (planned.status_code, told["holders"], told["hiddenForks"]) == (200, {"f:s1-a": 0}, 1)
        refused = await client.post(f"{S}/trim", json={"before": 4})
        assert error_of(refused) == (409, "trim_refused")
        assert "f:s1-a at 0, 1 fork that this token may not trim" in refused.json()["detail"]
        forced = [
            await client.post(f"{S}/trim", json={"before": 4, "force": True, "dryRun": is_dry})
            for is_dry in (True, False)
        ]
        assert [error_of(each) for each in forced] == [(403, "access_refused")] * 2
        assert "x-secret" not in "".join(each.text for each in (planned, refused, *forced))
        assert [e.position async for e in bus.session("x-secret").read()] == [1, 2]
        assert (await bus.session("s1").head()).trimmed == 0


async def test_a_trim_by_force_deletes_the_entries_of_forks_that_the_token_may_trim(bus: Bus, tmp_path: Path) -> None:
    async with limited(bus, tmp_path, "read", "trim") as client:
        forced = await client.post(f"{S}/trim", json={"before": 4, "force": True})
        assert (forced.status_code, forced.json()["hiddenForks"]) == (200, 0)
        assert (await bus.session("s1").head()).trimmed == 3


async def test_the_origin_of_a_fork_is_told_only_to_a_token_that_allows_it(bus: Bus, tmp_path: Path) -> None:
    async with limited(bus, tmp_path, "read") as client:
        await bus.session("x-secret").publish(UserMessage.text("hidden"))
        await bus.session("x-secret").fork(1, id="s1-b")
        for name, origin in (("s1-a", {"session": "s1", "position": 2}), ("s1-b", None)):
            assert (await client.get(f"/api/sessions/{name}")).json()["origin"] == origin
            assert (await client.get(f"/api/sessions/{name}/forks")).json()["origin"] == origin
        listed: list[dict[str, JsonValue]] = (await client.get("/api/sessions")).json()["sessions"]
        origins = {each["id"]: each["origin"] for each in listed}
        assert origins == {"s1": None, "s1-a": {"session": "s1", "position": 2}, "s1-b": None}


@pytest.mark.parametrize("path", ["s1-b/entries", "s1-b/turns", "s1-b/context?model=m", "s1-b/events", "s1-b/forks"])
async def test_no_error_about_a_fork_names_its_parent_to_a_token_that_does_not_allow_it(
    bus: Bus, tmp_path: Path, path: str
) -> None:
    async with limited(bus, tmp_path, "read", "fork") as client:
        await bus.session("x-secret").publish(UserMessage.text("hidden"), UserMessage.text("more"))
        await bus.session("x-secret").fork(2, id="s1-b")
        taken = await client.post(f"{S}/forks", json={"position": 1, "id": "s1-b"})
        assert (taken.status_code, "x-secret" in taken.text) == (409, False)
        for spoil in ("trim", "erase"):
            if spoil == "trim":
                await bus.session("x-secret").trim(2, force=True)
            else:
                await bus.session("x-secret").erase(force=True)
            heard = b""
            async with client.stream("GET", f"/api/sessions/{path}") as reply:
                with anyio.fail_after(120):
                    async for chunk in reply.aiter_raw():
                        heard += chunk
                        if b"caughtup" in heard:
                            break
            assert b"x-secret" not in heard


async def test_dead_letters_are_listed_and_redriven(bus: Bus, client: Client) -> None:
    async with bus.consumer("agents", "w1", agents=["agent"]) as consumer:
        (work,) = await consumer.fetch(1)
        await consumer.dead_letter(work, reason="it broke")
    (letter,) = (await client.get(f"{S}/dead-letters")).json()["letters"]
    assert (letter["group"], letter["reason"], letter["position"]) == ("agents", "it broke", 3)
    assert (await client.post(f"{S}/redrive", json={})).json() == {"letters": 1}
    assert (await client.post(f"{S}/redrive", json={})).json() == {"letters": 0}
    assert (await client.get(f"{S}/dead-letters")).json() == {"letters": []}


async def test_a_trim_tells_its_holders_before_it_deletes(bus: Bus, client: Client) -> None:
    await bus.session("s1").save_checkpoint("mirror", (await bus.session("s1").head()).cursor_at(1))
    planned = (await client.post(f"{S}/trim", json={"before": 3, "dryRun": True})).json()
    assert (planned["entries"], planned["holders"], planned["isDryRun"]) == (2, {"r:mirror": 1}, True)
    refused = await client.post(f"{S}/trim", json={"before": 3})
    assert error_of(refused) == (409, "trim_refused")
    done = (await client.post(f"{S}/trim", json={"before": 3, "force": True})).json()
    assert (done["entries"], done["firstKept"]) == (2, 3)


async def test_a_closed_session_takes_no_message_until_it_is_reopened(client: Client) -> None:
    assert (await client.post(f"{S}/reopen", json={})).json() == {"positions": [], "duplicate": True}
    closed = await client.post(f"{S}/close", json={"reason": "solved", "key": "k"})
    assert (closed.status_code, closed.json()) == (201, {"positions": [4], "duplicate": False})
    again = await client.post(f"{S}/close", json={"reason": "solved", "key": "k"})
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert (await client.post(f"{S}/close", json={})).json() == {"positions": [], "duplicate": True}
    assert (await client.post(f"{S}/messages", json={"text": "x"})).status_code == 409
    assert (await client.post(f"{S}/reopen", json={"reason": "again"})).status_code == 201
    assert (await client.post(f"{S}/messages", json={"text": "x"})).status_code == 201


WRONG: tuple[tuple[str, JsonValue], ...] = (
    ("forks", {"position": -1}),
    ("forks", {"position": True}),
    ("forks", {"at": 1}),
    ("forks", {"id": "a", "key": "k", "position": 1}),
    ("forks", {"key": "k"}),
    ("forks", {"id": "no such id!"}),
    ("trim", {}),
    ("trim", {"before": 1, "force": "yes"}),
    ("trim", []),
    ("redrive", {"letters": []}),
    ("close", {"by": "boss"}),
    ("reopen", {"reason": 7}),
)


async def test_a_wrong_body_changes_nothing(bus: Bus, client: Client) -> None:
    for path, body in WRONG:
        assert (await client.post(f"{S}/{path}", json=body)).status_code == 400, (path, body)
    assert [(head.session, head.position) for head in await bus.sessions()] == [("s1", 3)]
