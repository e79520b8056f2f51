"""Fork a session in the middle. Session and fork share the entries before the fork, and then continue separately.

    python examples/06_fork.py

prints
    the fork begins with 2 shared entries
    first:  I want to paint. | Which colour? | Blue.
    fork:   I want to paint. | Which colour? | Red.
    publishing what was said already: duplicate of position 3
    expecting another end: conflict, the session is at position 3
"""

import os

import anyio

from lanebus import (
    AssistantMessage,
    Bus,
    Conflict,
    LlmMessage,
    Receipt,
    Session,
    TextBlock,
    UserMessage,
    new_session_id,
)


async def said(session: Session) -> str:
    messages = [envelope.message async for envelope in session.read()]
    return " | ".join(message.text_content() for message in messages if isinstance(message, LlmMessage))


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus:
        session = bus.session(new_session_id())
        await session.publish(UserMessage.text("I want to paint."))
        await session.publish(AssistantMessage(content=(TextBlock(text="Which colour?"),)))
        await session.publish(UserMessage.text("Blue."), key="colour")

        fork = await session.fork(at=2)
        print(f"the fork begins with {(await fork.head()).position} shared entries")
        await fork.publish(UserMessage.text("Red."))
        print(f"first:  {await said(session)}")
        print(f"fork:   {await said(fork)}")

        # A repeated key and a wrong expected position are reported without a second entry.
        for what, outcome in (
            ("publishing what was said already", await session.try_publish(UserMessage.text("Blue."), key="colour")),
            ("expecting another end", await session.try_publish(UserMessage.text("Green."), expected=2)),
        ):
            match outcome:
                case Receipt(is_duplicate=True):
                    print(f"{what}: duplicate of position {outcome.position}")
                case Conflict():
                    print(f"{what}: conflict, the session is at position {outcome.found}")
                case _:
                    print(f"{what}: {outcome}")


if __name__ == "__main__":
    anyio.run(main)
