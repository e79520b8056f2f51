"""Publish to both lanes of a session, and follow it. A model sees the LLM lane; the extension lane is for programs.

    python examples/01_publish_and_follow.py

prints
    1 llm        user: What is 17 × 23?
    2 extension  progress: {'percent': 40}
    3 extension  progress: {'percent': 100}
    4 llm        assistant: 391
"""

import os
from contextlib import aclosing

import anyio

from lanebus import AssistantMessage, Bus, ExtensionMessage, LlmMessage, UserMessage, new_session_id


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus:
        session = bus.session(new_session_id())
        await session.publish(UserMessage.text("What is 17 × 23?"))
        await session.publish(ExtensionMessage.of("progress", {"percent": 40}))
        # All messages of one publish are appended atomically, in either lane.
        await session.publish(ExtensionMessage.of("progress", {"percent": 100}), AssistantMessage.text("391"))

        async with aclosing(session.follow()) as envelopes:  # first the history, then new entries, without an end
            async for envelope in envelopes:
                match envelope.message:
                    case LlmMessage() as message:
                        said = f"{type(message).__name__.removesuffix('Message').lower()}: {message.text_content()}"
                    case ExtensionMessage(kind=kind, data=data):
                        said = f"{kind}: {data}"
                    case other:
                        said = str(other)
                print(f"{envelope.position} {envelope.lane:10} {said}")
                if envelope.position == 4:
                    break


if __name__ == "__main__":
    anyio.run(main)
