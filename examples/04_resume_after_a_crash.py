"""Restart a killed writer, and resume a reader from its cursor. No entry is lost or duplicated.

    python examples/04_resume_after_a_crash.py

prints
    the writer was killed after 3 of 6
    run again: 3 were there already, 3 added
    the reader resumes after 2-0: line 3, line 4, line 5, line 6
"""

import os
import signal
import sys

import anyio

from lanebus import Bus, Cursor, LlmMessage, UserMessage, new_session_id

LINES = 6


async def write(session_id: str, die_after: int) -> None:
    """Publish each line with its own idempotency key. Kill this process with SIGKILL after line `die_after`."""
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus:
        for number in range(1, LINES + 1):
            await bus.session(session_id).publish(UserMessage.text(f"line {number}"), key=f"line-{number}")
            if number == die_after:
                os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    session_id = new_session_id()
    await anyio.run_process([sys.executable, __file__, session_id], check=False)  # this writer kills itself

    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus:
        session = bus.session(session_id)
        print(f"the writer was killed after {(await session.head()).position} of {LINES}")
        receipts = [
            await session.publish(UserMessage.text(f"line {number}"), key=f"line-{number}")
            for number in range(1, LINES + 1)
        ]
        known = sum(receipt.is_duplicate for receipt in receipts)
        print(f"run again: {known} were there already, {LINES - known} added")

        cursor = Cursor.parse("2-0")  # stored by a reader that has processed entries 1 and 2
        messages = [envelope.message async for envelope in session.read(after=cursor)]
        texts = [message.text_content() for message in messages if isinstance(message, LlmMessage)]
        print(f"the reader resumes after {cursor}: {', '.join(texts)}")


if __name__ == "__main__":
    anyio.run(write, sys.argv[1], 3) if len(sys.argv) > 1 else anyio.run(main)
