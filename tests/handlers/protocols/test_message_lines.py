"""One message a line, with bounds."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from lanebus.bus.errors import SetupError
from lanebus.handlers.protocols import MessageLines, ProtocolFiles, message_lines
from tests.support.agent.agents import SECONDS


@asynccontextmanager
async def lines(said: bytes, *, line_bytes: int = 64) -> AsyncGenerator[tuple[MessageLines, int]]:
    """Yield the messages of an editor that says this and ends, and the file from which it reads."""
    (stdin, editor), (answers, stdout) = os.pipe(), os.pipe()

    def say() -> None:
        with os.fdopen(editor, "wb") as pipe:
            pipe.write(said)

    files = ProtocolFiles(os.fdopen(stdin, "rb", buffering=0), os.fdopen(stdout, "wb", buffering=0))
    async with message_lines(files, line_bytes=line_bytes, end_seconds=SECONDS) as found:
        saying = asyncio.create_task(asyncio.to_thread(say))
        yield found, answers
        await saying


async def test_a_line_over_the_bound_is_refused_and_the_next_one_is_read() -> None:
    for length in (64, 65, 127, 128, 129, 1_000):
        long = json.dumps({"x": "y" * length}).encode()
        async with lines(long + b'\n{"method": "m"}\n') as (found, answers):
            assert await found.receive() == {"method": "m"}
            assert await found.receive() is None
        refused = json.loads(os.read(answers, 1_000))
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        os.close(answers)


@pytest.mark.parametrize(
    ("value", "fault"), [("[]," * 200_000 + "1", "too many values"), ("[" * 80 + "]" * 80, "deeper")]
)
async def test_a_line_of_too_many_values_or_too_deep_is_refused_and_the_next_one_is_read(
    value: str, fault: str
) -> None:
    said = f'{{"method": "m", "params": [{value}]}}\n{{"method": "n"}}\n'.encode()
    async with lines(said, line_bytes=1_000_000) as (found, answers):
        assert await found.receive() == {"method": "n"}
    assert fault in json.loads(os.read(answers, 10_000))["error"]["message"]
    os.close(answers)


async def test_the_last_line_needs_no_end_and_one_over_the_bound_is_the_end() -> None:
    async with lines(b'{"method": "m"}') as (found, answers):
        assert await found.receive() == {"method": "m"}
        assert await found.receive() is None
    os.close(answers)
    async with lines(b"[" * 1_000) as (found, answers):
        assert await found.receive() is None
    os.close(answers)


async def test_a_message_to_an_editor_that_has_gone_is_dropped() -> None:
    async with lines(b"") as (found, answers):
        os.close(answers)
        for _ in range(20):
            await found.send({"method": "m", "params": {"text": "x" * 100_000}})


async def test_a_cancelled_send_leaves_no_half_of_a_line() -> None:
    text = "x" * 1_000_000
    async with lines(b"") as (found, answers):
        sending = asyncio.create_task(found.send({"method": text}))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        after = asyncio.create_task(found.send({"method": "next"}))
        read = b""
        while read.count(b"\n") < 2:
            read += await asyncio.to_thread(os.read, answers, 65_536)
        await after
    os.close(answers)
    assert [json.loads(line)["method"] for line in read.splitlines()] == [text, "next"]


async def test_a_file_in_place_of_a_pipe_is_refused_in_words() -> None:
    file, empty = os.fdopen(os.open(__file__, os.O_RDONLY), "rb"), os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb")
    with file, empty, pytest.raises(SetupError, match="pipes"):
        async with message_lines(ProtocolFiles(file, empty), line_bytes=64, end_seconds=SECONDS):
            pass
