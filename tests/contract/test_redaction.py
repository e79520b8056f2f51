"""The `redact` function of a bus: it sees each message before anything of it leaves the process."""

from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import cast

import anyio
import anyio.lowlevel
import pytest

from lanebus import AssistantMessage, Bus, ExtensionMessage
from lanebus.agent import AgentLoop, Worker, tool
from lanebus.bus import RetryPolicy
from lanebus.errors import InvalidArgument, NotAMessage, RedactionFailed
from lanebus.messages import Delta, ImageBlock, MediaRef, Redact, Redactable, TextBlock, ToolCallBlock, UserMessage
from lanebus.telemetry import otel_tracing
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, calls, log, said, watch_deltas
from tests.support.servers.contents import contents
from tests.support.servers.real import RealServer, eventually
from tests.support.telemetry.recorded import Recorded, attributes_of

SECRET = "4111-1111"

_namespaces = count()


def redacted_bus(
    server: RealServer, redact: object, recorded: Recorded | None = None
) -> AbstractAsyncContextManager[Bus]:
    """Open a bus with a `redact` function, which may be none at all."""
    name, function = f"redacted{next(_namespaces)}", cast("Redact", redact)
    if recorded is None:
        return Bus.open(server.url, namespace=name, redact=function)
    tracing = otel_tracing(recorded.provider, capture_content=True)
    return Bus.open(server.url, namespace=name, redact=function, tracing=tracing)


def hide(message: Redactable) -> Redactable:
    """Replace the secret wherever it is in a message."""
    return type(message).model_validate_json(message.to_json().replace(SECRET, "###"))


@tool(idempotent=True)
async def card(name: str) -> str:
    """Look up a card."""
    return f"{name} has {SECRET}"


@tool
async def fails() -> str:
    """Fail."""
    raise ValueError(SECRET)


async def test_no_text_that_the_function_replaces_is_stored_followed_or_traced(shared_valkey: RealServer) -> None:
    recorded, pause = Recorded(), Pause()
    first = ToolCallBlock(id="c1", name="card", arguments={"name": SECRET})
    second = ToolCallBlock(id="c2", name="fails", arguments={})
    model = ScriptedModel(calls(first, second), [pause, *answer(f"It is {SECRET}, as I said.")])
    async with redacted_bus(shared_valkey, hide, recorded) as bus, Worker(bus, AgentLoop(model, (card, fails))):
        session = bus.session("s1")
        await session.publish(UserMessage.text(f"my card is {SECRET}"), ExtensionMessage.of("form", {"n": SECRET}))
        deltas = await watch_deltas(session, pause, "agent.ended")
        lines = await said(session)
        entries = [envelope.message for envelope in await log(session)]
        await eventually(lambda: bool(recorded.spans("process")))
        stored = contents(shared_valkey, bus.log.keys.namespace)
    assert "user: my card is ###" in lines
    assert "result: ### has ###" in lines
    assert "result error: ValueError: ###" in lines
    assert "assistant stop: It is ###, as I said." in lines
    assert any("###" in delta.delta for delta in deltas)
    assert "my card is ###" in stored
    for shown in (stored, entries, deltas, [attributes_of(span) for span in recorded.spans()]):
        assert SECRET not in str(shown)
    assert SECRET not in str([request.context.messages for request in model.requests])


def raises(message: Redactable) -> Redactable:
    raise ValueError(f"cannot redact {message}")


async def is_async(message: Redactable) -> Redactable:
    await anyio.lowlevel.checkpoint()
    return message


class Late:
    """An async function that does not look like one."""

    def __call__(self, message: Redactable) -> object:
        return is_async(message)


class AsyncObject:
    async def __call__(self, message: Redactable) -> Redactable:
        await anyio.lowlevel.checkpoint()
        return message


def to_other_lane(_: Redactable) -> Redactable:
    return ExtensionMessage.of("x")


def renumbers(message: Redactable) -> Redactable:
    if isinstance(message, Delta):
        return message.model_copy(update={"message_id": "other"})
    if isinstance(message, ExtensionMessage):
        return message.model_copy(update={"kind": "other"})
    return UserMessage(id="other")


FAILING: tuple[object, ...] = (raises, to_other_lane, renumbers, Late(), repr)


@pytest.mark.parametrize("function", FAILING)
async def test_nothing_is_published_or_shown_if_the_function_fails(shared_valkey: RealServer, function: object) -> None:
    async with redacted_bus(shared_valkey, function) as bus:
        session = bus.session("s1")
        with pytest.raises(RedactionFailed) as caught:
            await session.publish(ExtensionMessage.of("y"), UserMessage.text(SECRET), key="k")
        with pytest.raises(RedactionFailed):
            await session.preview(Delta(kind="text", message_id="m", delta=SECRET))
        with pytest.raises(RedactionFailed):
            await session.close(UserMessage.text(SECRET))
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
        assert (await session.head()).position == 0
        assert SECRET not in contents(shared_valkey, bus.log.keys.namespace)


@pytest.mark.parametrize("function", [is_async, AsyncObject(), str, "hide", 3])
def test_what_is_no_plain_function_is_refused(function: object) -> None:
    with pytest.raises(InvalidArgument, match="redact"):
        Bus.open(redact=cast("Redact", function))


async def test_what_is_no_message_is_refused_as_without_a_function(shared_valkey: RealServer) -> None:
    async with redacted_bus(shared_valkey, raises) as bus:
        with pytest.raises(NotAMessage):
            await bus.session("s1").publish(cast("UserMessage", "text"))


async def test_large_media_are_seen_before_they_are_stored(shared_valkey: RealServer) -> None:
    def drop(message: Redactable) -> Redactable:
        if not isinstance(message, UserMessage):
            return message
        return message.model_copy(update={"content": tuple(b for b in message.content if isinstance(b, TextBlock))})

    picture = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 200_000)
    async with redacted_bus(shared_valkey, drop) as bus:
        session = bus.session("s1")
        await session.publish(UserMessage(content=(TextBlock(text="see"), ImageBlock(media=picture))))
        assert await said(session) == ["user: see"]
        assert "xxxxxxxx" not in contents(shared_valkey, bus.log.keys.namespace)


async def test_texts_of_errors_in_retries_and_dead_letters_go_through_the_function(shared_valkey: RealServer) -> None:
    async with redacted_bus(shared_valkey, hide) as bus:
        await bus.session("s1").publish(UserMessage.text("hi"))
        async with bus.consumer("g", "c") as consumer:
            (work,) = await consumer.fetch(1)
            await consumer.nack(work, delay=0, error=f"{SECRET} sk-aaaaaaaaaaaaaaaaaaaa")
            (work,) = await consumer.fetch(1)
            assert work.error == "### ***"
            await consumer.dead_letter(work, reason=f"no {SECRET}")
        assert [letter.reason async for letter in bus.dead_letters("g").read()] == ["no ###"]
        assert SECRET not in contents(shared_valkey, bus.log.keys.namespace)


async def test_a_dead_letter_is_kept_without_its_text_if_the_function_fails(shared_valkey: RealServer) -> None:
    def only_llm(message: Redactable) -> Redactable:
        return raises(message) if isinstance(message, ExtensionMessage) else message

    async with redacted_bus(shared_valkey, only_llm) as bus:
        await bus.session("s1").publish(UserMessage.text("hi"))
        async with bus.consumer("g", "c") as consumer:
            (work,) = await consumer.fetch(1)
            await consumer.dead_letter(work, reason=SECRET)
        (letter,) = [letter async for letter in bus.dead_letters("g").read()]
        assert "withheld" in letter.reason


async def test_a_loop_whose_messages_cannot_be_redacted_ends_in_a_dead_letter(shared_valkey: RealServer) -> None:
    def no_answers(message: Redactable) -> Redactable:
        return raises(message) if isinstance(message, AssistantMessage) else message

    model = ScriptedModel(*[answer(SECRET)] * 3)
    retry = RetryPolicy(attempts=2, base=0.0)
    async with redacted_bus(shared_valkey, no_answers) as bus, Worker(bus, AgentLoop(model), retry=retry):
        await bus.session("s1").publish(UserMessage.text("hi"))
        with anyio.fail_after(SECONDS):
            while not (letters := [letter async for letter in bus.dead_letters("agents").read()]):  # noqa: ASYNC110
                await anyio.sleep(0.02)
    assert "RedactionFailed" in letters[0].reason
    assert SECRET not in letters[0].reason
