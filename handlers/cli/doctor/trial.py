"""Try what the bus does: write to a store, and with `--write` to the server. All that was written is removed."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import cast

import anyio

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError, SetupError, Unavailable
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.servers.pool import Pool
from lanebus.bus.servers.replies import answered
from lanebus.bus.storage.blobs import BlobStore, store_at
from lanebus.bus.storage.folder import Folder
from lanebus.bus.storage.objects import Objects, object_store_at
from lanebus.handlers.cli.access import open_bus
from lanebus.handlers.cli.doctor.finding import Finding, error, ok, warning
from lanebus.handlers.cli.next_step import next_step
from lanebus.handlers.cli.options import Settings

__all__ = ("try_store", "try_write")


async def try_store(what: str, place: str, *, seconds: float, writes: bool) -> Finding:
    """Check that a store of media or of an archive can be used. Return one finding.

    Into a directory, a file is written and removed again, and so are missing directories.

    Args:
        what: "archive" or "media".
        place: directory or URL of the store.
        seconds: longest time.
        writes: whether to write to an object store too; otherwise it is only asked for a blob that it does not have.
    """
    try:
        with anyio.fail_after(seconds):
            blobs = store_at(
                place,
                lambda path: cast("BlobStore", Folder(path, f"{what} directory")),
                lambda url: Objects(object_store_at(url, f"{what} store"), f"{what} store"),
            )
            if isinstance(blobs, Folder):
                async with _without_traces(Path(place)):
                    await _store_once(blobs)
            elif writes:
                await _store_once(blobs)
            else:
                await blobs.head(f"{_name()}/probe")
                return ok(what, "the store answers; --write tries to write to it")
    except TimeoutError:
        return error(what, f"the {what} store did not answer within {seconds:g} s", "check its address and the network")
    except BusError as fault:
        return error(what, fault.fault, next_step(fault))
    return ok(what, "the store can be written, read and cleared")


async def try_write(settings: Settings, pool: Pool, *, seconds: float) -> Finding:
    """Publish, read, lease and erase a session in a namespace of its own. Return one finding.

    Args:
        settings: which bus to use, except its namespace and stores.
        pool: connections to the same servers, for the removal of the namespace.
        seconds: longest time to write, and for the removal.
    """
    namespace = _name()
    trial = settings._replace(namespace=namespace, media=None, archive=None, redact=None)
    try:
        with anyio.fail_after(seconds):
            async with open_bus(trial) as bus:
                await _use(bus, seconds)
        finding = ok("write", "a message was published, read and erased, and a session was leased")
    except TimeoutError:
        text = f"the server did not complete a write within {seconds:g} s"
        finding = error("write", text, "look at its log and its load; `lanebus top` shows waiting work")
    except (SetupError, Unavailable) as fault:
        finding = error("write", f"a write failed: {fault.fault}", next_step(fault))
        if "NOPERM" in fault.fault:
            text = "whether a write succeeds is unknown: the user may not write to a namespace made for the trial"
            finding = warning("write", text, "run it as a user that may write to all keys")
    except BusError as fault:
        finding = error("write", f"a write failed: {fault.fault}", next_step(fault))
    left = await _remove(pool, namespace, seconds) if finding.level != "warning" else ""
    return _left(finding, namespace, left) if left else finding


def _left(finding: Finding, namespace: str, why: str) -> Finding:
    text = f"{finding.text}; keys of the namespace {namespace} may be left: {why}"
    if finding.level == "error":
        return finding._replace(text=text)
    return warning("write", text, f"delete the keys that begin with {namespace}:")


async def _use(bus: Bus, seconds: float) -> None:
    session = bus.session("trial")
    receipt = await session.publish(ExtensionMessage.of("doctor.trial"), seconds=seconds)
    async with aclosing(session.read()) as entries:
        read = [envelope.position async for envelope in entries]
    if read != [receipt.position]:
        raise Unavailable("what was published was not read back", "run `lanebus verify --all`")
    async with session.lease("doctor", wait=0.0):
        pass
    await session.erase()


async def _remove(pool: Pool, namespace: str, seconds: float) -> str:
    """Remove all keys of a namespace. Return why some may be left; "" if none is."""
    try:
        with anyio.fail_after(seconds, shield=True):
            async with aclosing(pool.scan(f"{namespace}:*")) as pages:
                async for page in pages:
                    for reply in await pool.call_many([("UNLINK", key.decode()) for key in page]):
                        answered(reply)
    except TimeoutError:
        return f"not all were found within {seconds:g} s"
    except BusError as fault:
        return fault.fault
    return ""


async def _store_once(blobs: BlobStore) -> None:
    """Write a blob in a folder of its own, read it, and clear the folder."""
    folder, data = _name(), b"lanebus doctor"
    try:
        await blobs.put_if_absent(f"{folder}/probe", data)
        if await blobs.get(f"{folder}/probe") != data:
            raise Unavailable("the store returned other bytes than were written", "choose another store")
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5.0), suppress(BusError):
            await blobs.clear(folder)


@asynccontextmanager
async def _without_traces(path: Path) -> AsyncGenerator[None]:
    """After the block, remove the directories on a path that were missing before it: they would be this user's."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    try:
        yield
    finally:
        for each in missing:
            with suppress(OSError):  # it was not created, or is in use meanwhile
                each.rmdir()


def _name() -> str:
    """Return a name that nothing else has, for a namespace or a folder."""
    return f"doctor-{token_hex(8)}"
