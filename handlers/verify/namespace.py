"""Verify all sessions of a namespace, then the keys that belong to no session."""

from collections.abc import AsyncGenerator

from lanebus.bus.bus import Bus
from lanebus.bus.inspection import Inspector
from lanebus.bus.iteration import resumable
from lanebus.bus.wire.keys import ALL_BYTES
from lanebus.handlers.verify.agents import check_agent_counts
from lanebus.handlers.verify.bounds import DEFAULT_VERIFY_BOUNDS, VerifyBounds
from lanebus.handlers.verify.open_work import check_waiting
from lanebus.handlers.verify.orphans import find_orphans
from lanebus.handlers.verify.pointers import Pointers, read_pointers
from lanebus.handlers.verify.problem import Findings, Report, typed
from lanebus.handlers.verify.session import verify_session

__all__ = ("verify_all",)


@resumable
async def verify_all(bus: Bus, *, bounds: VerifyBounds = DEFAULT_VERIFY_BOUNDS) -> AsyncGenerator[Report, None]:
    """Yield a report for each session, sorted by id. The last report, of session "", is about all other keys, and about
    losses of the whole log that no person has accepted.

    Args:
        bus: the bus whose namespace to verify.
        bounds: bounds on the problems that are kept, and on attempts.

    Raises:
        Unavailable: the server cannot be reached.
    """
    inspector, rest = bus.inspector, Findings("", bounds)
    for loss in await bus.namespace.unaccepted():
        rest.add(loss.kind, 0, f"{loss.text}: {loss.remedy(bus.namespace.name)}")
    risks = await inspector.loss_risks()
    buckets = range(inspector.keys.buckets)
    pointers = [Pointers() for _ in buckets]
    for bucket in buckets:
        await typed(read_pointers(inspector, bucket, into=pointers[bucket]), rest, f"bucket {bucket}")
    sessions = [(session, bucket) for bucket in buckets for session in await _sessions(inspector, bucket)]
    for session, bucket in sorted(sessions):
        report = await verify_session(bus, session, pointers[bucket], risks=risks, bounds=bounds)
        if report is not None:
            yield report
    for bucket in buckets:
        await typed(_check_pointers(inspector, bucket, pointers[bucket], rest), rest, f"bucket {bucket}")
        await typed(check_waiting(inspector, bucket, rest), rest, f"bucket {bucket}")
        await typed(_check_bytes(inspector, bucket, rest), rest, f"bucket {bucket}")
        await typed(check_agent_counts(inspector, bucket, rest), rest, f"bucket {bucket}")
    await typed(find_orphans(inspector, rest), rest, "keys of no session")
    yield rest.report(0)


async def _sessions(inspector: Inspector, bucket: int) -> set[str]:
    names: set[str] = set()
    async for page in inspector.hash_pages(inspector.keys.sessions(bucket)):
        names.update(name.decode(errors="replace") for name in page)
    return {name for name in names if not name.startswith(":")}


async def _check_pointers(inspector: Inspector, bucket: int, pointers: Pointers, rest: Findings) -> None:
    """Check that every pointer names a listed session. The list of sessions is read after the pointers."""
    for text in pointers.bad:
        rest.add("pointer", 0, f"bucket {bucket}: {text}")
    names = sorted(pointers.highest)
    listed = await _sessions(inspector, bucket)
    now = Pointers()
    if not listed.issuperset(names):  # sessions may have been erased, with their pointers, since the pointers were read
        await read_pointers(inspector, bucket, into=now)
    for name in names:
        if name not in listed and name in now.highest:
            text = f"bucket {bucket}: a pointer names session {name!r}, which does not exist"
            rest.add("pointer", pointers.highest[name], text)


async def _check_bytes(inspector: Inspector, bucket: int, rest: Findings) -> None:
    """Check that a bucket's byte count is the sum over its sessions. Retry if the count changed during the check."""
    key = inspector.keys.sessions(bucket)
    for _ in range(rest.bounds.byte_attempts):
        before = (await inspector.fields(key, (ALL_BYTES,))).get(ALL_BYTES, b"0")
        heads = [inspector.keys.head(name) for name in await _sessions(inspector, bucket)]
        counted = await inspector.field_of_each(heads, "bytes") if heads else []
        if before == (await inspector.fields(key, (ALL_BYTES,))).get(ALL_BYTES, b"0"):
            if not all(len(number or b"0") < 19 and (number or b"0").isdigit() for number in (*counted, before)):
                text = f"the byte count of bucket {bucket}, {before!r}, or of one of its sessions is no number"
                rest.add("bucket_bytes", 0, text)
            elif int(before) != sum(int(number or 0) for number in counted):
                total = sum(int(number or 0) for number in counted)
                rest.add("bucket_bytes", 0, f"bucket {bucket} counts {int(before)} bytes, its sessions {total}")
            return
    rest.note(f"bucket {bucket}: its byte count was not checked, as it changed all the time")
