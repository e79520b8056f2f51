"""The TypeScript client in Node uploads to a real server, over a connection that is cut in the middle of a piece."""

import hashlib
import json
from pathlib import Path

import anyio

from lanebus.bus.messages import Lane
from lanebus.handlers.serve.bounds import UiBounds
from lanebus.handlers.serve.uploads.folder import UploadBounds
from lanebus.messages import UserMessage
from tests.support.node.running import NODE
from tests.support.page.browsing import wire_to
from tests.support.page.serving import TOKEN, serving, temporary_bus
from tests.support.servers.real import eventually

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 200


async def test_an_upload_that_is_cut_in_a_piece_goes_on_behind_what_has_come(
    built_client: Path, tmp_path: Path
) -> None:
    digest = hashlib.sha256(PICTURE).hexdigest()
    bounds = UiBounds(uploads=UploadBounds(buffer_bytes=1))
    async with (
        temporary_bus() as bus,
        wire_to() as wire,
        serving(bus, bounds=bounds, allowed_hosts=[f"127.0.0.1:{wire.port}"], uploads=tmp_path / "u") as served,
    ):
        wire.target = served.port
        wire.passed = 20_000
        asked = {"url": f"http://127.0.0.1:{wire.port}", "token": TOKEN, "session": "s", "hex": PICTURE.hex()}
        script = Path(__file__).parent / "upload.mjs"
        done: list[bytes] = []

        async def run() -> None:
            command = [str(NODE), str(script), str(built_client), json.dumps(asked)]
            done.append((await anyio.run_process(command)).stdout)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await eventually(lambda: wire.is_held)
            # The server drops what it has received and not read yet, when the connection is lost.
            await eventually(lambda: any(each.stat().st_size for each in (tmp_path / "u").rglob("*.part")))
            wire.passed = None
            wire.cut()
        (envelope,) = [each async for each in bus.session("s").read(lanes={Lane.LLM})]
    told = json.loads(done[0])
    assert told["block"] == {"type": "image", "media": {"kind": "sha256", "sha256": digest}}
    assert told["progress"][0] == 0
    assert 0 < told["progress"][1] < 20_000
    assert told["progress"][-1] == len(PICTURE)
    assert isinstance(envelope.message, UserMessage)
    assert named(envelope.message) == digest


def named(message: UserMessage) -> str | None:
    """Return the SHA-256 that the last block names."""
    block = message.content[-1]
    media = getattr(block, "media", None)
    return None if media is None else media.sha256
