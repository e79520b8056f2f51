"""A repeated key: the same content is no new message, and other content is refused."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from lanebus import Bus, UserMessage
from lanebus.messages import Redactable
from tests.support.page.serving import client_of, serving, temporary_bus, temporary_dir
from tests.support.serve import Client, error_of

__all__ = ()

PATH = "/api/sessions/s1"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)
"""larger than what stays in the message"""


def with_picture(data: bytes, text: str = "see") -> dict[str, object]:
    media = {"kind": "data", "data": base64.b64encode(data).decode()}
    return {"key": "k", "content": [{"type": "text", "text": text}, {"type": "image", "media": media}]}


@asynccontextmanager
async def begun() -> AsyncGenerator[tuple[Bus, Client]]:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("s1").publish(UserMessage.text("hi"))
        yield bus, client


@pytest.mark.parametrize(
    ("path", "first", "other"),
    [
        ("messages", {"text": "one", "key": "k"}, {"text": "two", "key": "k"}),
        ("messages", {"text": "one", "key": "k", "followUp": True}, {"text": "two", "key": "k", "followUp": True}),
        ("messages", with_picture(PICTURE), with_picture(PICTURE, "what is it?")),
        ("messages", with_picture(PICTURE), with_picture(PICTURE + b"\0")),
        ("messages", with_picture(PICTURE[:100]), with_picture(PICTURE[:101])),
        ("messages", with_picture(PICTURE), {"text": "see", "key": "k"}),
        ("commands", {"command": "abort", "key": "k"}, {"command": "abort", "key": "k", "when": "turn"}),
        ("commands", {"command": "steer", "key": "k", "text": "one"}, {"command": "steer", "key": "k", "text": "two"}),
        ("close", {"reason": "solved", "key": "k"}, {"reason": "not solved", "key": "k"}),
    ],
)
async def test_a_key_with_other_content_is_refused_and_with_the_same_is_a_repeat(
    bus: Bus, client: Client, path: str, first: dict[str, object], other: dict[str, object]
) -> None:
    done = await client.post(f"{PATH}/{path}", json=first)
    assert done.status_code == 201
    positions = done.json()["positions"]
    repeated = await client.post(f"{PATH}/{path}", json=first)
    assert (repeated.status_code, repeated.json()) == (200, {"positions": positions, "duplicate": True})
    refused = await client.post(f"{PATH}/{path}", json=other)
    assert error_of(refused) == (409, "key_reused")
    assert f"at position {', '.join(map(str, positions))}" in refused.json()["detail"]
    assert (await bus.session("s1").head()).position == positions[-1]


async def test_a_key_of_other_content_does_not_reopen_a_session_and_is_refused(bus: Bus, client: Client) -> None:
    await client.post(f"{PATH}/messages", json={"text": "one", "key": "k1"})
    for key, reason, status in (("k1", "again", 409), ("k2", "again", 201), ("k2", "again", 200), ("k2", "other", 409)):
        await client.post(f"{PATH}/close", json={})
        reply = await client.post(f"{PATH}/reopen", json={"reason": reason, "key": key})
        assert (reply.status_code, reply.json().get("error")) == (status, "key_reused" if status == 409 else None)
        assert (await bus.session("s1").head()).is_closed == (status != 201)


async def test_a_repeat_of_a_reopening_is_answered_with_its_position_while_the_session_is_open(
    bus: Bus, client: Client
) -> None:
    await client.post(f"{PATH}/close", json={})
    for reason, status in (("again", 201), ("again", 200), ("other", 409)):
        reply = await client.post(f"{PATH}/reopen", json={"reason": reason, "key": "k"})
        assert (reply.status_code, reply.json().get("positions", [3])) == (status, [3])
    unknown = await client.post(f"{PATH}/reopen", json={"reason": "again", "key": "new"})
    assert (unknown.status_code, unknown.json()) == (200, {"positions": [], "duplicate": True})
    assert (await bus.session("s1").head()).position == 3


async def test_a_repeat_of_a_message_that_was_trimmed_is_answered_as_a_repeat(bus: Bus, client: Client) -> None:
    assert (await client.post(f"{PATH}/messages", json={"text": "one", "key": "k"})).status_code == 201
    await bus.session("s1").publish(UserMessage.text("later"))
    await bus.session("s1").trim(3, force=True)
    again = await client.post(f"{PATH}/messages", json={"text": "two", "key": "k"})
    assert (again.status_code, again.json()) == (200, {"positions": [2], "duplicate": True})


def redact(message: Redactable) -> Redactable:
    if isinstance(message, UserMessage):
        return UserMessage.text(message.text_content().replace("secret", "…"))
    return message


async def test_a_repeat_of_a_redacted_message_is_a_repeat() -> None:
    async with (
        temporary_dir() as folder,
        Bus.open(data_dir=folder, redact=redact) as bus,
        serving(bus) as served,
        client_of(served) as client,
    ):
        body = {"text": "my secret", "key": "k"}
        replies = [await client.post(f"{PATH}/messages", json=body) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [201, 200]
