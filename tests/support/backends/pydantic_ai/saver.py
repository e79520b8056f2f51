"""Saves a turn to one conversation in its own process, for the race of two processes.

The arguments are URL NAME COUNT. It loads the conversation `c`, adds a message with NAME and saves, until it has saved
COUNT times. It prints how often it lost the race.
"""

import sys

import anyio
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, UserPromptPart

from lanebus import Bus
from lanebus.pydantic_ai import LanebusConversationStore

__all__ = ("main",)


def main() -> None:
    """Save until done."""
    anyio.run(_save)


async def _save() -> None:
    url, name, count = sys.argv[1:]
    lost = saved = 0
    async with Bus.open(url) as bus:
        store = LanebusConversationStore(bus)
        while saved < int(count):
            conversation = await store.load("c")
            assert conversation is not None
            conversation.messages.append(ModelRequest(parts=[UserPromptPart(f"{name} {saved}")]))
            try:
                await store.save(conversation)
            except ConversationConflict:
                lost += 1
            else:
                saved += 1
    print(lost)


if __name__ == "__main__":
    main()
