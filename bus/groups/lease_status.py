"""Read the owner of a session's lease and the time left, for monitoring. Only the epoch proves a lease."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import require_all
from lanebus.bus.log.script import Script, run_scripts
from lanebus.bus.wire.keys import check_session_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.wire.keys import Keys

__all__ = ("LeaseStatus", "read_leases")

_LEASE_STATUS = Script("lease_status", shares=("damage",))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """State of the lease of one session. `Bus.lease_status` reads it."""

    session: str
    owner: str | None
    """worker that acquired the lease last; None if the lease was released or never acquired"""
    epoch: int
    """epoch of the lease acquired last; 0 if the lease was never acquired"""
    seconds_left: float | None
    """seconds until the lease expires, by the server's clock; 0 or less if it has expired, None if it has no owner"""
    position: int
    """position of the session's last entry"""

    @property
    def is_over(self) -> bool:
        """Whether the lease acquired last was released or has expired; False if none was ever acquired."""
        return self.epoch > 0 and (self.seconds_left is None or self.seconds_left <= 0)


async def read_leases(pool: Pool, keys: Keys, sessions: Collection[str]) -> list[LeaseStatus]:
    """Read the leases of sessions in one round trip. The order of the result may differ from that of `sessions`.

    Raises:
        InvalidSessionId: an id does not match `[A-Za-z0-9_-]{1,64}`.
        Unavailable: the server did not answer.
    """
    require_all("sessions", sessions, str, "pass a list of session ids")
    shares: dict[int, list[str]] = defaultdict(list)
    for session in sessions:
        shares[keys.bucket(check_session_id(session))].append(session)
    calls = [(tuple(map(keys.head, share)), ()) for share in shares.values()]
    replies = await run_scripts(pool, _LEASE_STATUS, calls) if calls else []
    found: list[LeaseStatus] = []
    for share, reply in zip(shares.values(), replies, strict=True):
        rows = cast("list[list[bytes]]", reply)
        found += [_read(session, row) for session, row in zip(share, rows, strict=True)]
    return found


def _read(session: str, row: list[bytes]) -> LeaseStatus:
    owner, epoch, milliseconds_left, position = (word.decode(errors="replace") for word in row)
    return LeaseStatus(
        session=session,
        owner=owner or None,
        epoch=int(epoch),
        seconds_left=int(milliseconds_left) / 1000 if owner else None,
        position=int(position),
    )
