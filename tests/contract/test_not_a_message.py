"""What is no message is refused before anything is sent, with an error that says what it is and how to make one."""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import cast

import pytest

from lanebus import BusError, Delta, ExtensionMessage, MessageError, Usage, UserMessage
from lanebus.bus.messages import Publishable
from lanebus.errors import NotAMessage
from lanebus.messages import ImageBlock, MediaRef, TurnEnded, TurnId
from tests.support.agent.agents import fresh_bus

__all__ = ()

EVENT = TurnEnded(turn_id=TurnId(loop_id="s.main.1", turn_index=0), stop_reason="stop", usage=Usage())

WRONG: dict[str, tuple[object, str, str]] = {
    "dict": ({"role": "user", "content": []}, "dict", "read_message"),
    "text": ("hello", "str", "UserMessage.text"),
    "nothing": (None, "NoneType", "UserMessage.text"),
    "bytes": (b"{}", "bytes", "read_message"),
    "number": (5, "int", "UserMessage.text"),
    "list": ([UserMessage.text("a")], "list", r"publish\(\*messages\)"),
    "class": (UserMessage, "the class UserMessage", "UserMessage.text"),
    "event": (EVENT, "TurnEnded", "as_extension"),
    "delta": (Delta(kind="text", message_id="m"), "Delta", "preview"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("method", ["publish", "try_publish", "close", "reopen"])
async def test_what_is_no_message_is_refused_before_anything_is_sent(name: str, method: str) -> None:
    wrong, given, advice = WRONG[name]
    async with fresh_bus() as bus:
        session = bus.session("s")
        calls: dict[str, Callable[..., Awaitable[object]]] = {
            "publish": session.publish,
            "try_publish": session.try_publish,
            "close": session.close,
            "reopen": session.reopen,
        }
        with pytest.raises(NotAMessage, match=advice) as refused:
            await calls[method](ExtensionMessage.of("note"), wrong)
        assert refused.value.given == given
        assert isinstance(refused.value, MessageError | BusError)
        assert isinstance(refused.value, TypeError)
        assert (await session.head()).position == 0
        assert (await session.publish(UserMessage.text("hello"))).position == 1


async def test_media_of_a_batch_with_something_else_in_it_are_not_stored() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s")
        data = b"\x89PNG\r\n\x1a\n" + bytes(100_000)
        with pytest.raises(NotAMessage):
            await session.publish(
                UserMessage.of(ImageBlock(media=MediaRef.from_bytes(data))), cast("Publishable", "hello")
            )
        assert await session.media.head(sha256(data).hexdigest()) is None
